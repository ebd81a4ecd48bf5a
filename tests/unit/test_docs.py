"""Blocks marked `python` or `pycon` run, links lead somewhere, the reference has what is public.

Fragments are marked `py`. Sphinx checks more, in `make docs`; this needs no Sphinx.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.glob("**/*.md") if "_build" not in p.parts)]
TEXTS = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
SESSIONS = [page for page in PAGES if "\n```pycon\n" in page.read_text()]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


@pytest.mark.parametrize("page", SESSIONS, ids=relative)
def test_sessions_run(page: Path) -> None:
    for library in ("torch", "jax", "array_api_strict", "array_api_compat"):
        pytest.importorskip(library)
    blocks = SESSION.findall(page.read_text())
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, page.name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


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


EXCERPT = re.compile(r"^<!-- excerpt: (\S+) -->\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXCERPTS = [(page, *found) for page in PAGES for found in EXCERPT.findall(page.read_text())]


@pytest.mark.parametrize(("page", "source", "text"), EXCERPTS)
def test_excerpts_are_in_the_source(page: Path, source: str, text: str) -> None:
    assert text in (ROOT / source).read_text(), f"{relative(page)} quotes {source}"


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


def test_command_line_reference_names_every_option() -> None:
    click = pytest.importorskip("click")
    from fullgraph.cli import app

    (group,) = [value for value in vars(app).values() if isinstance(value, click.Group)]
    text = (DOCS / "cli.md").read_text()
    for name, command in group.commands.items():
        assert f"`fullgraph {name} " in text or f"`fullgraph {name}`" in text
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert f"`{parameter.opts[-1]}" in text, f"{name} {parameter.opts[-1]}"


@pytest.fixture(scope="module")
def performance():
    spec = importlib.util.spec_from_file_location("fg_speed", ROOT / "tools" / "performance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md"])
def test_numbers_are_those_that_the_benchmarks_have_stored(performance, name: str) -> None:
    text = (ROOT / name).read_text()
    wanted = performance.readme(text) if name == "README.md" else performance.page()
    assert "<!-- numbers: " in text or name != "README.md"
    assert text == wanted, "results have changed: run python tools/performance.py"
