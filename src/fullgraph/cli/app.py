"""The group of commands, and what its errors exit with."""

from __future__ import annotations

import importlib.metadata
import sys

import click

from fullgraph.cli.audit import audit
from fullgraph.cli.doctor import doctor
from fullgraph.cli.exits import Exit
from fullgraph.cli.explain import explain
from fullgraph.cli.loop import loop
from fullgraph.cli.report import report
from fullgraph.errors import FullgraphException, MissingBackendError

__all__ = ["cli", "run"]

_EPILOG = """\b
Exit codes: 0 all is well; 1 something is not (not whole, not equal, worse than a baseline, tests
failed); 2 arguments that cannot be followed; 3 a library or program is missing; 130 interrupted.
"""


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(importlib.metadata.version("fullgraph"), prog_name="fullgraph")
def cli() -> None:
    """Array code under torch.compile: what is captured, what breaks, and what to write instead."""


for command in (explain, audit, report, loop, doctor):
    cli.add_command(command)


def run() -> None:
    """Run the group; errors of this package become a line and an exit code."""
    try:
        code = cli.main(prog_name="fullgraph", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(Exit.INTERRUPTED)
    except MissingBackendError as error:
        click.echo(f"fullgraph: {error}", err=True)
        sys.exit(Exit.MISSING)
    except FullgraphException as error:
        click.echo(f"fullgraph: {error}", err=True)
        sys.exit(Exit.USAGE)
    sys.exit(code if isinstance(code, int) else Exit.OK)
