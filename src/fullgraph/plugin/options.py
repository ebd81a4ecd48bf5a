"""The plugin's command line: its options, and what they mean as one frozen value.

Only the standard library and pytest are imported here.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MODES", "Options", "add_options", "add_ratchet_options", "ends_with_something"]

MODES = ("eager", "compile", "fullgraph", "jit")
BACKENDS = ("trace", "aot_eager", "inductor")
_DYNAMIC = {"no": False, "yes": True, "auto": None}
_DEFAULT_LIMIT = 256


def _modes(text: str) -> tuple[str, ...]:
    modes = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise argparse.ArgumentTypeError(
            f"unknown mode {', '.join(unknown) or repr(text)}: accepted are {', '.join(MODES)}, "
            "with commas between them"
        )
    return modes


def _limit(text: str) -> int:
    try:
        limit = int(text)
    except ValueError:
        limit = 0
    if limit < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted: give a whole number >= 1")
    return limit


def add_options(parser: pytest.Parser) -> None:
    """Declare the options and settings."""
    group = parser.getgroup("fullgraph", "array code under torch.compile (fullgraph)")
    add = group.addoption
    add(
        "--fg-modes",
        type=_modes,
        metavar="MODES",
        help="run every test whose xp fixture yields torch (eager, compile, fullgraph) or JAX "
        "(eager, jit) once in each of these modes, e.g. eager,compile,fullgraph",
    )
    add(
        "--fg-backend",
        choices=BACKENDS,
        default="trace",
        help="what runs the graphs: trace interprets them, the cheapest proof of what is captured "
        "(default); inductor is what torch.compile runs for users",
    )
    add(
        "--fg-recompile-limit",
        type=_limit,
        default=_DEFAULT_LIMIT,
        metavar="N",
        help="specialisations that are compiled of one frame; calls beyond run eagerly and are "
        f"reported as over the limit (default: {_DEFAULT_LIMIT}; torch's own is 8)",
    )
    add(
        "--fg-dynamic",
        nargs="?",
        const="yes",
        choices=tuple(_DYNAMIC),
        default="no",
        help="dynamic shapes: no (default), yes, or auto, which is static first and dynamic at the "
        "first recompile, as torch.compile does by default",
    )
    add(
        "--fg-strict",
        action="store_true",
        help="fullgraph mode fails for functions without a budget that are not one whole graph",
    )
    add(
        "--fg-compare",
        action="store_true",
        help="make every compiled call eagerly too, and fail where results differ",
    )
    add(
        "--fg-require-compiled",
        action="store_true",
        help="fail a test in a compiled mode that ran a tagged function, but never compiled",
    )
    add(
        "--fg-torch-bugs",
        choices=("pass", "fail"),
        default="pass",
        help="calls that meet a known bug of torch are finished eagerly and listed (pass, the "
        "default), or fail",
    )
    add("--fg-report", metavar="FILE.json", help="write what was recorded to this file")
    _add_settings(parser)


def _add_settings(parser: pytest.Parser) -> None:
    parser.addini(
        "fullgraph_fixtures",
        "names of the fixtures that yield an array namespace (default: xp)",
        type="args",
        default=["xp"],
    )


def add_ratchet_options(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("fullgraph")
    group.addoption(
        "--fg-baseline",
        metavar="FILE.toml",
        help="fail if less is captured than this file says: a break site or a recompile more, "
        "coverage lost, a function no longer whole",
    )
    group.addoption(
        "--fg-update-baseline",
        action="store_true",
        help="write what this run has captured to the file of --fg-baseline, for its series of "
        "torch releases; what other series have stays",
    )
    group.addoption(
        "--fg-html", metavar="FILE.html", help="write a report that a browser shows to this file"
    )
    group.addoption(
        "--fg-github",
        action="store_true",
        help="print break sites as annotations of GitHub Actions, and add a table to the step "
        "summary ($GITHUB_STEP_SUMMARY)",
    )


def ends_with_something(config: pytest.Config) -> bool:
    """Whether a run asks for a comparison or a file at its end, see `fullgraph.plugin.ratchet`."""
    names = ("--fg-baseline", "--fg-update-baseline", "--fg-html", "--fg-github")
    return any(config.getoption(name) for name in names)


@dataclass(frozen=True, slots=True)
class Options:
    """What a run asks of the plugin."""

    modes: tuple[str, ...] = ()
    backend: str = "trace"
    recompile_limit: int = _DEFAULT_LIMIT
    dynamic: bool | None = False
    strict: bool = False
    compare: bool = False
    require_compiled: bool = False
    fail_on_torch_bugs: bool = False
    report: Path | None = None
    fixtures: tuple[str, ...] = ("xp",)

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """Return the options of a run, a relative report path resolved from where it started.

        Raises
        ------
        pytest.UsageError
            If the folder of the report does not exist.
        """
        get = config.getoption
        report = get("--fg-report")
        path = None
        if report is not None:
            path = config.invocation_params.dir / os.path.expanduser(report)
            if not path.parent.is_dir():
                raise pytest.UsageError(f"--fg-report={report}: there is no folder {path.parent}")
        return cls(
            modes=get("--fg-modes") or (),
            backend=get("--fg-backend"),
            recompile_limit=get("--fg-recompile-limit"),
            dynamic=_DYNAMIC[get("--fg-dynamic")],
            strict=get("--fg-strict"),
            compare=get("--fg-compare"),
            require_compiled=get("--fg-require-compiled"),
            fail_on_torch_bugs=get("--fg-torch-bugs") == "fail",
            report=path,
            fixtures=tuple(config.getini("fullgraph_fixtures")),
        )
