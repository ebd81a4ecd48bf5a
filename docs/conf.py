"""Sphinx: ``make docs`` builds this folder; warnings are errors."""

from __future__ import annotations

import importlib.metadata

project = "fullgraph"
author = "The fullgraph authors"
release = importlib.metadata.version("fullgraph")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.intersphinx", "numpydoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Array code that compiles whole, provably",
    "page_width": "70rem",
}
html_extra_path = ["schema", "adopt"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# code blocks of the pages are run by tests; what they show of the terminal has no lexer
myst_fence_as_directive: list[str] = []

numpydoc_show_class_members = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
intersphinx_mapping: dict[str, tuple[str, None]] = {}
linkcheck_timeout = 20
