from __future__ import annotations


def say_summary(session, tr):
    for r in session.ledger.record.functions:
        tr.write_line(
            f"{r.name} {r.mode} {r.total_calls} {dict(r.calls)} cov {r.coverage:.2f} graphs {r.graphs} br {len(r.breaks)} rec {r.recompiles} {r.seconds:.1f}s"
        )
    tr.write_line(str(session.outcomes))
    tr.write_line(str(session.ledger.bypassed)[:3000])
