"""Sphinx: ``make docs`` builds this folder; warnings, dead links inside it included, are errors.

Links that leave the site need a network and are checked apart, by ``make linkcheck``.
"""

from __future__ import annotations

import importlib.metadata

project = "fullgraph"
author = "The fullgraph authors"
release = importlib.metadata.version("fullgraph")

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_build"]
default_role = "py:obj"
html_theme = "alabaster"
html_theme_options = {
    "description": "Array code that compiles whole, provably, and runs at the speed of C",
    "page_width": "72rem",
    "sidebar_width": "16rem",
    "fixed_sidebar": True,
}
html_extra_path = ["schema", "adopt"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

numpydoc_show_class_members = False
# A docstring of the reference that leaves out what a caller needs stops the build. Not asked of it:
# PR01 (fields of a dataclass are described under "Attributes").
numpydoc_validation_checks = {
    *("GL01", "GL03", "GL06", "GL07", "GL08", "PR02", "PR03", "PR04", "PR06", "PR07", "PR10"),
    *("RT01", "RT03", "YD01", "SS01", "SS03", "SS05", "SA02", "SA03"),
}
# Left alone: enums, and methods whose one sentence says all.
numpydoc_validation_exclude = {r"Record\.(merge|to_json)$", r"\.Mode$", r"\.Outcome$", r"\.Status$"}
autodoc_typehints = "none"
autodoc_member_order = "bysource"
linkcheck_timeout = 20
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]  # drawn by scripts
