"""Behind `fullgraph.pytest_plugin`: loaded only by a run that asks for something."""
