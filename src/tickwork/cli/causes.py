"""Reasons, for people."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from tickwork._domain.explain import Cause, Explanation, Why
from tickwork.cli.render import BOLD, DIM, Line, Part
from tickwork.cli.times import relative, shown

_SINCE: Final = frozenset(
    {
        Why.COMPLETED,
        Why.FAILED_FOR_GOOD,
        Why.CANCELED,
        Why.RUNNING,
        Why.CANCELING,
        Why.RETIRED,
        Why.ENDED,
        Why.FAILING,
        Why.FILTERED,
        Why.OVERLAPPED,
        Why.NOT_UNIQUE,
        Why.MISSED,
    }
)
"""Reasons whose moment lies behind us."""

_WORDS: Final = {
    Why.RUNNING: "since",
    Why.CANCELING: "asked for",
    Why.RETIRED: "last seen",
    Why.ENDED: "last fired",
    Why.WORKER_DOWN: "the lease ends",
    Why.LEASE_ENDED: "it ended",
    Why.EXPIRED: "it expired",
    Why.NOT_DUE: "due",
    Why.DELAYED: "due",
    Why.RETRYING: "due",
    Why.POSTPONED: "due",
    Why.SNOOZED: "due",
    Why.RATED: "not before",
    Why.ABOUT_TO_START: "due",
}


def explanation_parts(found: Explanation, now: datetime, depth: int = 0) -> Iterator[Part]:
    """An explanation and its parts, each under its name."""
    indent = "  " * depth
    yield Line(f"{indent}{found.kind} {found.name}", BOLD)
    if not found.causes and not found.parts:
        yield Line(f"{indent}  Nothing is in its way.")
    yield from cause_lines(found.causes, now, indent + "  ")
    for part in found.parts:
        yield from explanation_parts(part, now, depth + 1)
    if found.left_out:
        yield Line(f"{indent}  … and {found.left_out:,} more schedules and runs", DIM)


def cause_lines(causes: Sequence[Cause], now: datetime, indent: str = "") -> Iterator[Part]:
    """Each reason in a line or two: what, when, by whom, what to do."""
    for cause in causes:
        yield Line(f"{indent}- {cause.text}")
        if cause.until is not None:
            word = _WORDS.get(cause.why, "at" if cause.why in _SINCE else "until")
            yield Line(f"{indent}  {word} {shown(cause.until)} ({relative(cause.until, now)})", DIM)
        if cause.runs:
            yield Line(f"{indent}  by {', '.join(cause.runs)}", DIM)
        if cause.fix:
            yield Line(f"{indent}  → {cause.fix}", "cyan")
