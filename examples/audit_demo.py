"""What of array-api-extra and SciPy does torch.compile capture? A table, in under a minute.

Every public function of array-api-extra and a dozen of SciPy, as their wheels ship them, called on
small inputs in three modes: eager, compiled with graph breaks, and as one whole graph. Each result
is compared with the eager one.

Run with ``make demo``, or ``python examples/audit_demo.py [--json FILE]``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["SCIPY_ARRAY_API"] = "1"  # SciPy reads it when it is imported

import array_api_compat.torch as xp
import array_api_extra as xpx
import scipy.cluster.vq
import scipy.integrate
import scipy.signal
import scipy.special
import scipy.stats
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullgraph.errors import FullGraphError, MismatchError, NothingCompiledError
from fullgraph.testing import FunctionRecord, Outcome, Record, check_compiled, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Case:
    """A call to audit."""

    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def case(name: str, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Case:
    """Make a `Case`."""
    return Case(name, func, args, kwargs)


def set_at_index(x: Any) -> Any:
    """Use `xpx.at`, which is a class, with an integer."""
    return xpx.at(x)[1].set(9.0)


def set_at_slice(x: Any) -> Any:
    """Use `xpx.at` with a slice."""
    return xpx.at(x)[1:3].add(1.0)


def extra_cases() -> Iterator[Case]:
    """Give one call of every public function of array-api-extra."""
    v = torch.tensor([3.0, 1.0, 2.0, 1.0])
    m = torch.arange(6.0).reshape(2, 3)
    i = torch.tensor([0, 2, 1])
    nan = torch.tensor([1.0, float("nan"), 3.0])
    yield case("angle", xpx.angle, torch.tensor([1 + 1j, -1j]))
    yield case("apply_where", xpx.apply_where, v > 1, (v, v), torch.add, torch.sub)
    yield case("argpartition", xpx.argpartition, v, 2)
    yield case("at[int]", set_at_index, v)
    yield case("at[slice]", set_at_slice, v)
    yield case("atleast_nd", xpx.atleast_nd, v, ndim=3)
    yield case("broadcast_shapes", xpx.broadcast_shapes, (2, 1), (3,))
    yield case("cov", xpx.cov, m)
    yield case("create_diagonal", xpx.create_diagonal, v)
    yield case("default_dtype", xpx.default_dtype, xp)
    yield case("deg2rad", xpx.deg2rad, v)
    yield case("diag_indices", xpx.diag_indices, 3, xp=xp)
    yield case("expand_dims", xpx.expand_dims, v, axis=(0, 2))
    yield case("isclose", xpx.isclose, v, v)
    yield case("isin", xpx.isin, i, torch.tensor([1, 2]))
    yield case("kron", xpx.kron, m, m)
    yield case("lazy_apply", xpx.lazy_apply, torch.sin, v)
    yield case("nan_to_num", xpx.nan_to_num, nan)
    yield case("nanmax", xpx.nanmax, nan)
    yield case("nanmean", xpx.nanmean, nan)
    yield case("nanmin", xpx.nanmin, nan)
    yield case("nansum", xpx.nansum, nan)
    yield case("nunique", xpx.nunique, i)
    yield case("one_hot", xpx.one_hot, i, 3)
    yield case("pad", xpx.pad, v, 2)
    yield case("partition", xpx.partition, v, 2)
    yield case("rad2deg", xpx.rad2deg, v)
    yield case("searchsorted", xpx.searchsorted, torch.tensor([1.0, 2.0, 3.0]), v)
    yield case("setdiff1d", xpx.setdiff1d, i, torch.tensor([1]))
    yield case("sinc", xpx.sinc, v)
    yield case("tril_indices", xpx.tril_indices, 3, xp=xp)
    yield case("triu_indices", xpx.triu_indices, 3, xp=xp)
    yield case("union1d", xpx.union1d, i, torch.tensor([5, 1]))
    yield case("unravel_index", xpx.unravel_index, i, (2, 2))


def scipy_cases() -> Iterator[Case]:
    """Give calls of a dozen functions of SciPy."""
    x = torch.rand(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    t = torch.linspace(0, 1, 5, dtype=torch.float64)
    yield case("special.logsumexp", scipy.special.logsumexp, x)
    yield case("special.softmax", scipy.special.softmax, x)
    yield case("special.xlogy", scipy.special.xlogy, x, x)
    yield case("stats.variation", scipy.stats.variation, x)
    yield case("stats.zscore", scipy.stats.zscore, x)
    yield case("stats.skew", scipy.stats.skew, x)
    yield case("stats.gmean", scipy.stats.gmean, x)
    yield case("stats.entropy", scipy.stats.entropy, x)
    yield case("signal.windows.hann", scipy.signal.windows.hann, 8, xp=xp)
    yield case("signal.detrend", scipy.signal.detrend, x)
    yield case("integrate.trapezoid", scipy.integrate.trapezoid, x, t)
    yield case("integrate.cumulative_simpson", scipy.integrate.cumulative_simpson, x, x=t)
    yield case("cluster.vq.vq", scipy.cluster.vq.vq, x, x[:2])
    yield case("special.rel_entr", scipy.special.rel_entr, x, x)


def audit(one: Case, mode: str) -> tuple[FunctionRecord, str]:
    """Call `one` eagerly and in `mode`; return the record, and how the results compare."""
    budget = 0 if mode == "fullgraph" else True
    with record() as recording, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = "equal"
        try:
            check_compiled(one.func, one.args, one.kwargs, mode=mode, graph_breaks=budget)
        except (NothingCompiledError, FullGraphError):
            verdict = "nothing compiled"
        except MismatchError as error:
            verdict = f"differs: {error}"
    (found,) = [r for r in recording.record.functions if r.backend == "trace"]
    return found, verdict


def in_words(found: FunctionRecord, verdict: str) -> str:
    """Return a table cell: whole, breaks, nothing compiled, or a known torch bug."""
    if verdict.startswith("differs"):
        return "[red]wrong result[/]"
    if found.calls.get(Outcome.TORCH_BUG):
        return "[magenta]torch bug[/]"
    if found.calls.get(Outcome.FAILED):
        return "[yellow]not whole[/]" if found.mode == "fullgraph" else "[red]compiler failed[/]"
    if not found.breaks and not found.calls.get(Outcome.GRAPH_RAN):
        return "[dim]nothing to compile[/]"
    if found.whole:
        return "[green]whole[/]"
    if verdict == "nothing compiled":
        return "[red]nothing compiled[/]"
    count = len(found.breaks)
    return f"[yellow]{count} break{'s' * (count != 1)}[/]"


def why(found: FunctionRecord) -> str:
    """Return the first reason, with a short file name and the line."""
    if not found.breaks:
        return ""
    site = found.breaks[0]
    bug = f" (known torch bug: {site.torch_bug})" if site.torch_bug else ""
    return f"{'/'.join(Path(site.file).parts[-2:])}:{site.line} {site.reason}{bug}"


def build_table(title: str, cases: Iterator[Case], records: list[Record]) -> Table:
    """Audit `cases`, appending to `records`, and return the table."""
    table = Table(title=title, title_justify="left", expand=True)
    for column in ("function", "eager", "compile", "fullgraph"):
        table.add_column(column, no_wrap=True)
    table.add_column("first break", ratio=1, overflow="ellipsis", no_wrap=True)
    for one in cases:
        compiled_record, compiled_verdict = audit(one, "compile")
        whole_record, whole_verdict = audit(one, "fullgraph")
        records.append(Record((compiled_record, whole_record)))
        table.add_row(
            escape(one.name),
            "ok",
            in_words(compiled_record, compiled_verdict),
            in_words(whole_record, whole_verdict),
            escape(why(compiled_record) or why(whole_record)),
        )
    return table


def main() -> None:
    """Print both tables and a summary line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the records to a file")
    options = parser.parse_args()
    start = time.perf_counter()
    console = Console(width=None if sys.stdout.isatty() else 140)
    records: list[Record] = []
    console.print(build_table("array-api-extra", extra_cases(), records))
    console.print(build_table("SciPy", scipy_cases(), records))
    total = Record(torch=str(torch.__version__))
    for item in records:
        total = total.merge(item)
    whole = sum(bool(item["compile"].whole) for item in map(_by_mode, records))
    console.print(
        f"{whole} of {len(records)} functions are whole on torch {torch.__version__}; "
        f"{len(total.breaks)} break sites; {time.perf_counter() - start:.0f} s"
    )
    if options.json:
        options.json.write_text(total.to_json(indent=1))


def _by_mode(item: Record) -> dict[str, FunctionRecord]:
    return {str(found.mode): found for found in item.functions}


if __name__ == "__main__":
    main()
