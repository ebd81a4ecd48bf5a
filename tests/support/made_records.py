"""Records made by hand, for tests of what is done with them."""

from __future__ import annotations

from fullgraph.testing import BreakSite, FunctionRecord, Mode, Outcome, Record, Specialisation

ROOT = "/home/me/pkg"


def site(line=41, reason="Data-dependent branching", file=f"{ROOT}/src/mypkg/stats.py", **more):
    return BreakSite(
        file=file, line=line, function=more.pop("function", "mode"), reason=reason, **more
    )


def function(name="mypkg.stats:mode", mode="compile", *, sites=(), compiles=1, whole=None, **more):
    """A function called four times; whole unless it has sites."""
    calls = more.pop("calls", {Outcome.GRAPH_RAN: 4})
    if whole is None:
        whole = 0 if sites else sum(calls.values())
    specialisations = tuple(
        Specialisation(name, f"x: float64[{n}]", guard=f"L['x'].size()[0] == {n}" if n else None)
        for n in range(compiles)
    )
    return FunctionRecord(
        name=name,
        mode=Mode(mode),
        backend=more.pop("backend", "trace"),
        calls=calls,
        whole=whole,
        graphs=more.pop("graphs", 1 + len(sites)),
        graphs_run=more.pop("graphs_run", 4),
        breaks=tuple(sites),
        specialisations=specialisations,
        **more,
    )


def record(*functions, torch="2.14.1", unreached=()):
    return Record(tuple(functions), tuple(unreached), torch)
