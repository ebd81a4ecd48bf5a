"""Code blocks marked `python` run, links lead somewhere, and the reference names what is public.

Fragments are marked `py`. Sphinx checks more, in `make docs`; this needs no Sphinx.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.glob("**/*.md") if "_build" not in p.parts)]
TEXTS = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)\s]*)\)")
PUBLIC = ["fullgraph", "fullgraph.torch_loop", "fullgraph.testing", "fullgraph.ode"]


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_python_blocks_run(page: Path) -> None:
    source = page.read_text()
    namespace: dict[str, object] = {"__name__": "documentation"}
    for match in BLOCK.finditer(source):
        line = source[: match.start(1)].count("\n")
        # padded, so that an error names the line of the page
        exec(compile("\n" * line + match[1], str(page), "exec"), namespace)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", TEXTS, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        name, _, anchor = target.partition("#")
        found = (page.parent / name) if name else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("module", PUBLIC)
def test_reference_names_what_is_public(module: str) -> None:
    text = (DOCS / "reference.md").read_text()
    for name in importlib.import_module(module).__all__:
        assert re.search(rf":: {name}\b|`{name}`", text), name


def test_pytest_reference_names_every_option_and_marker() -> None:
    source = ROOT / "src" / "fullgraph"
    options = set(re.findall(r'"(--fg-[a-z-]+)"', (source / "plugin" / "options.py").read_text()))
    plugin = (source / "pytest_plugin.py").read_text()
    markers = set(re.findall(r'^    "(\w+)\(', plugin, re.MULTILINE))
    text = (DOCS / "reference-pytest.md").read_text()
    assert len(options) > 10
    assert len(markers) > 2
    for name in sorted(options | markers):
        assert f"`{name}" in text, name
