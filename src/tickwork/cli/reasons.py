"""Explanations as text."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from tickwork._domain.explain import Cause, Explanation, Why
from tickwork.cli.formats import relative, shown
from tickwork.cli.render import BOLD, BUSY, DIM, Part, TextLine

# How the time of a cause is introduced; "until" for the others.
TIME_LABELS: Final = {
    Why.COMPLETED: "at",
    Why.FAILED_PERMANENT: "at",
    Why.CANCELED: "at",
    Why.FAILING: "at",
    Why.FILTERED: "at",
    Why.OVERLAPPED: "at",
    Why.NOT_UNIQUE: "at",
    Why.MISSED: "at",
    Why.RULE_CHANGED: "at",
    Why.RUNNING: "since",
    Why.CANCELING: "requested",
    Why.RETIRED: "last seen",
    Why.ENDED: "last fired",
    Why.WORKER_DOWN: "lease ends",
    Why.LEASE_EXPIRED: "lease ended",
    Why.EXPIRED: "expired",
    Why.NOT_DUE: "due",
    Why.DELAYED: "due",
    Why.DEBOUNCING: "due",
    Why.RETRYING: "due",
    Why.POSTPONED: "due",
    Why.SNOOZED: "due",
    Why.SLEEPING: "wakes",
    Why.WAITS_FOR_EVENT: "at most until",
    Why.RATE_LIMITED: "not before",
    Why.ABOUT_TO_START: "due",
}


def explanation_parts(explanation: Explanation, now: datetime, depth: int = 0) -> Iterator[Part]:
    indent = "  " * depth
    yield TextLine(f"{indent}{explanation.kind} {explanation.name}", BOLD)
    if not explanation.causes and not explanation.parts:
        yield TextLine(f"{indent}  Nothing prevents it from running.")
    yield from cause_lines(explanation.causes, now, indent + "  ")
    for part in explanation.parts:
        yield from explanation_parts(part, now, depth + 1)
    if explanation.left_out:
        yield TextLine(f"{indent}  … and {explanation.left_out:,} more (schedules and runs)", DIM)


def cause_lines(causes: Sequence[Cause], now: datetime, indent: str = "") -> Iterator[Part]:
    """Each cause in a few lines: what, when, blocked by which runs, what to do."""
    for cause in causes:
        yield TextLine(f"{indent}- {cause.text}")
        if cause.until is not None:
            label = TIME_LABELS.get(cause.why, "until")
            when = f"{shown(cause.until)} ({relative(cause.until, now)})"
            yield TextLine(f"{indent}  {label} {when}", DIM)
        if cause.runs:
            yield TextLine(f"{indent}  blocked by {', '.join(cause.runs)}", DIM)
        if cause.fix:
            yield TextLine(f"{indent}  → {cause.fix}", BUSY)
