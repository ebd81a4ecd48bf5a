"""Capability tables."""

from __future__ import annotations

import pytest
from made_records import function, record, site

from fullgraph.errors import UsageError
from fullgraph.report.capabilities import capabilities, render_capabilities
from fullgraph.testing import Outcome
from fullgraph.testing._tags import Tag

RECORD = record(
    function("m:whole"),
    function("m:whole", mode="fullgraph"),
    function("m:breaks", sites=[site(), site(50)]),
    function("m:breaks", mode="fullgraph", sites=[site()]),
    function("m:skipped", sites=[site(skips_frame=True)], calls={Outcome.FRAME_SKIPPED: 2}),
    function("m:raises", calls={Outcome.RAISED: 2}, whole=0),
)


def test_markdown():
    assert render_capabilities(capabilities(RECORD)) == (
        "| function | torch eager | torch.compile | fullgraph |\n"
        "|---|---|---|---|\n"
        "| `m:breaks` | ✅ | ✅ 2 graph breaks | ⛔ |\n"
        "| `m:raises` |  |  |  |\n"
        "| `m:skipped` | ✅ | ⛔ |  |\n"
        "| `m:whole` | ✅ | ✅ | ✅ |\n"
    )


def test_tags_say_what_jax_and_dask_are_held_to():
    tags = {
        "m:whole": Tag(upstream=(("jax_jit", False), ("allow_dask_compute", 2))),
        "m:untested": Tag(),
    }
    rows = {row.function: row for row in capabilities(RECORD, tags)}
    assert (rows["m:whole"].jit, rows["m:whole"].dask) == ("⛔", "✅ computes 2x")
    assert rows["m:untested"].cells == ("m:untested", "", "", "", "✅", "✅ lazy")
    assert rows["m:breaks"].jit == ""


def test_rst_has_every_cell_of_every_row():
    text = render_capabilities(capabilities(RECORD), "rst")
    assert text.startswith(".. list-table::\n   :header-rows: 1\n\n   * - function\n     - torch")
    assert "   * - ``m:breaks``\n     - ✅\n     - ✅ 2 graph breaks\n     - ⛔\n" in text
    assert text.count("   * - ") == 5
    assert text.count("\n     -") == 15


def test_another_form_is_refused():
    with pytest.raises(UsageError, match="no table in the form 'html': accepted are markdown, rst"):
        render_capabilities([], "html")
