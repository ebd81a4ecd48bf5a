"""Records made readable: a summary as data, and its renderings."""
