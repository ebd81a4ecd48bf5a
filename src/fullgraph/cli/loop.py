"""``fullgraph loop``: what the native loop compiler makes of a body."""

from __future__ import annotations

import dataclasses
import importlib
import json
from typing import Any

import click

from fullgraph.cli.exits import Exit

__all__ = ["loop"]


@click.command()
@click.argument("body", metavar="MODULE:BODY")
@click.option(
    "--init",
    multiple=True,
    required=True,
    metavar="VALUE",
    help="The carry before the first step; given several times, a tuple.",
)
@click.option("--xs", multiple=True, metavar="VALUE", help="What is scanned over; as --init.")
@click.option("--length", type=int, help="Number of steps, without --xs.")
@click.option("--c", "show_c", is_flag=True, help="Print the C text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def loop(
    context: click.Context,
    body: str,
    init: tuple[str, ...],
    xs: tuple[str, ...],
    length: int | None,
    show_c: bool,
    as_json: bool,
) -> None:
    """Compile a loop body for the native adapter, run it once, and say what became of it.

    \b
    fullgraph loop mypkg.filters:step --init "float64[8]=zeros" --xs "float64[100,8]"

    Exits with 0 if it compiles, with 1 if it is refused; the line and the operation are named.
    """  # noqa: D301 - click reads \b, not its spelling
    from fullgraph.cli.values import imported, parse_value
    from fullgraph.errors import MissingBackendError

    try:
        torch_loop: Any = importlib.import_module("fullgraph.torch_loop")
        explain_loop = torch_loop.explain_loop
    except (ImportError, AttributeError) as error:
        raise MissingBackendError(
            f"this installation cannot explain loops: fullgraph.torch_loop.explain_loop is missing "
            f"({error})"
        ) from error
    function = imported(body)
    carry = [parse_value(text, n) for n, text in enumerate(init)]
    scanned = [parse_value(text, len(init) + n) for n, text in enumerate(xs)]
    found: Any = explain_loop(function, _one_or_all(carry), _one_or_all(scanned), length=length)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=1, default=str))
    else:
        text = str(found)
        if not show_c and found.c_text:
            text = text.replace(found.c_text.strip(), "").rstrip()
        click.echo(text)
    context.exit(Exit.FOUND if found.refused else Exit.OK)


def _one_or_all(values: list[Any]) -> Any:
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)
