"""``fullgraph explain``: one function, run, compared, and its breaks shown in their source."""

from __future__ import annotations

import json
import linecache
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fullgraph.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from fullgraph.testing._records import BreakSite, FunctionRecord

__all__ = ["explain"]

_CONTEXT = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one mode came to."""

    record: FunctionRecord
    comparison: str
    """"equal", or what differs."""
    equal: bool
    raised: bool = False
    """Whether the call raises, eagerly too."""


@click.command()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--arg", "args", multiple=True, metavar="VALUE", help="A positional argument.")
@click.option("--kwarg", "kwargs", multiple=True, metavar="NAME=VALUE", help="A keyword argument.")
@click.option(
    "--backend",
    type=click.Choice(["trace", "aot_eager", "inductor"]),
    default="trace",
    show_default=True,
    help="What runs the graphs.",
)
@click.option("--grad", is_flag=True, help="Compare first gradients too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def explain(
    context: click.Context,
    function: str,
    args: tuple[str, ...],
    kwargs: tuple[str, ...],
    backend: str,
    grad: bool,
    as_json: bool,
) -> None:
    """Run a function eagerly and compiled, compare, and show where the graph breaks.

    \b
    fullgraph explain mypkg.stats:mode --arg "float64[3,4]" --kwarg axis=0

    A VALUE is float64[3,4] (values from a fixed seed), float64[3]=arange (or ones, zeros), a Python
    literal such as 2 or (1, 2) or 'sum', or @module:name for an object to import.

    Exits with 0 if the call is one whole graph in both modes, or needs none, and equal to eager;
    with 1 if it is not, or raises.
    """  # noqa: D301 - click reads \b, not its spelling
    from fullgraph.cli.values import imported, parse_keyword, parse_value
    from fullgraph.errors import UsageError
    from fullgraph.testing._dynamo.versions import torch_release

    torch_release()  # says what to install, if it is not there
    func = imported(function)
    if ":" not in function or not callable(func):
        raise UsageError(f"{function!r} names no function: write module:function")
    values = tuple(parse_value(text, n) for n, text in enumerate(args))
    named = dict(parse_keyword(text, len(args) + n) for n, text in enumerate(kwargs))
    verdicts = {
        mode: _judge(func, values, named, mode=mode, backend=backend, grad=grad)
        for mode in ("compile", "fullgraph")
    }
    if as_json:
        click.echo(_json(function, verdicts))
    else:
        _print(function, verdicts)
    context.exit(Exit.OK if all(map(_is_well, verdicts.values())) else Exit.FOUND)


def _is_well(verdict: Verdict) -> bool:
    from fullgraph.report.measures import is_whole

    return verdict.equal and is_whole(verdict.record)


def _judge(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    mode: str,
    backend: str,
    grad: bool,
) -> Verdict:
    from fullgraph.errors import MismatchError, NothingCompiledError, UsageError
    from fullgraph.testing import Outcome, check_compiled, record

    comparison, equal = "equal to eager", True
    with record() as recording, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check_compiled(
                func, args, kwargs, mode=mode, backend=backend, graph_breaks=True, grad=grad
            )
        except MismatchError as error:
            comparison, equal = str(error), False
        except NothingCompiledError as error:
            comparison = f"not compared: {str(error).partition(chr(10))[0]}"
    found = [item for item in recording.record.functions if item.backend == backend]
    if len(found) != 1:
        raise UsageError("the function could not be called: see its arguments")
    raised = found[0].calls.get(Outcome.RAISED, 0) > 0
    if raised:
        comparison = "raises, eagerly too: " + _raised(func, args, kwargs)
    return Verdict(found[0], comparison, equal, raised)


def _raised(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    try:
        func(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is said
        return f"{type(error).__name__}: {error}"
    return "not the second time"


def _json(function: str, verdicts: dict[str, Verdict]) -> str:
    import torch

    from fullgraph.report.measures import is_whole, status
    from fullgraph.testing import Record

    record = Record(tuple(v.record for v in verdicts.values()), (), str(torch.__version__))
    data = {
        "function": function,
        "modes": {
            mode: {
                "status": status(verdict.record).text,
                "whole": is_whole(verdict.record),
                "equal": verdict.equal,
                "comparison": verdict.comparison,
            }
            for mode, verdict in verdicts.items()
        },
        "record": json.loads(record.to_json()),
    }
    return json.dumps(data, indent=1)


_COLOURS = {"good": "green", "warn": "yellow", "bad": "red", "bug": "magenta", "none": "dim"}


def _print(function: str, verdicts: dict[str, Verdict]) -> None:
    import torch
    from rich.console import Console
    from rich.markup import escape

    from fullgraph.report.measures import status
    from fullgraph.testing._records import merge_sites

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(function)}[/], torch {torch.__version__}")
    for mode, verdict in verdicts.items():
        known = status(verdict.record)
        graphs = verdict.record.graphs_run
        console.print(
            f"  {mode.ljust(10)} [{_COLOURS[known.level]}]{known.text.ljust(13)}[/] "
            f"{graphs} graph{' ' if graphs == 1 else 's'} run  {escape(verdict.comparison)}"
        )
    for failure in dict.fromkeys(f for v in verdicts.values() for f in v.record.failures):
        console.print(f"  compiling failed: {escape(failure)}")
    told = [v.record for v in verdicts.values() if not v.raised]
    for site in merge_sites(site for record in told for site in record.breaks):
        _print_site(console, site)


def _print_site(console: Console, site: BreakSite) -> None:
    from rich.markup import escape
    from rich.syntax import Syntax

    from fullgraph.cli.instead import instead

    bug = f" [magenta](known bug of torch: {site.torch_bug})[/]" if site.torch_bug else ""
    where = f"{site.where} in {site.function or '?'}"
    console.print(f"\n[bold yellow]{escape(site.reason)}[/]{bug}\n{escape(where)}")
    lines = linecache.getlines(site.file)
    if 0 < site.line <= len(lines):
        first = max(1, site.line - _CONTEXT)
        text = "".join(lines[first - 1 : site.line + _CONTEXT]).rstrip("\n")
        console.print(
            Syntax(
                text,
                "python",
                theme="ansi_dark",
                background_color="default",
                line_numbers=True,
                start_line=first,
                highlight_lines={site.line},
            )
        )
    if site.skips_frame:
        console.print("  the whole function runs eagerly here, not only this line")
    if site.callers:
        console.print(f"  reached through {escape(', '.join(site.callers))}")
    if not site.torch_bug:
        for what in instead(site, "".join(lines)):
            console.print(f"  [green]instead:[/] {escape(what)}")
    if site.explanation:
        console.print(f"  [dim]torch: {escape(site.explanation)}[/]")
