"""All that is known of one run, in the order in which it happened."""

from datetime import UTC, datetime
from typing import Any

from chaos.checker.evidence import SECOND, Change, Evidence


def timeline_of(evidence: Evidence, run: str) -> str:
    """Render the changes of its row, the journal lines about it, and the faults around it."""
    changes = evidence.changes_by_run.get(run, ())
    uid = evidence.args_of(run).get("uid")
    entries: list[tuple[int, str]] = [(change.at, _render_change(change)) for change in changes]
    for line in evidence.lines:
        facts = line.facts
        if facts.get("run") == run or (uid is not None and facts.get("uid") == uid):
            entries.append(
                (line.at, f"{line.who} ({line.pid}): {line.event} {_render_facts(facts)}")
            )
    if entries:
        first, last = min(entries)[0], max(entries)[0]
        entries += [
            (line.at, f"driver: {line.event} {_render_facts(line.facts)}")
            for line in evidence.lines
            if line.who == "driver" and first - SECOND <= line.at <= last + SECOND
        ]
    parts = [f"Timeline of run {run}:"]
    parts += [f"  {_moment(at)}  {text}" for at, text in sorted(entries, key=lambda pair: pair[0])]
    parts += [f"  attempt: {row}" for row in evidence.attempts if row.run == run]
    parts += [f"  history: {row}" for row in evidence.finished if row.id == run]
    return "\n".join(parts)


def _render_change(change: Change) -> str:
    lease = "" if change.lease_until is None else f", lease until {_moment(change.lease_until)}"
    worker = "" if change.worker is None else f", worker {change.worker}"
    reason = f", {change.reason!r}" if change.reason else ""
    return (
        f"row {change.seq}: {change.op} {change.job} {change.status}/{change.phase},"
        f" token {change.token}, attempt {change.attempt}, crashes {change.crashes},"
        f" due {_moment(change.due_at)}{lease}{worker}{reason}"
    )


def _render_facts(facts: Any) -> str:
    shown = {key: value for key, value in facts.items() if key not in {"run", "uid", "monotonic"}}
    return ", ".join(f"{key}={value}" for key, value in shown.items())


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).strftime("%H:%M:%S.%f")[:-3]
