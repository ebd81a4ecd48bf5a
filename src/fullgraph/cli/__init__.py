"""The command ``fullgraph``: parsing and printing, thin over the library.

Nothing but the standard library is imported here, and click when `main` is called; array libraries
and rich only by the command that needs them.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; ends the process with a documented exit code."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.stderr.write("fullgraph: the command line needs click and rich: ")
        sys.stderr.write("pip install 'fullgraph[cli]'\n")
        raise SystemExit(3) from None
    from fullgraph.cli.app import run

    run()
