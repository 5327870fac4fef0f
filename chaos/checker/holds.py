"""The claims of each run, from the audit: which worker held it, from when to when."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from chaos.checker.evidence import Change, Evidence


class Hold(NamedTuple):
    """One claim, from the change that made it to the change that ended it."""

    run: str
    token: int
    worker: str | None
    claimed_at: int
    ended_at: int | None  # None: it never ended
    lease_until: int  # as it was last extended


def holds_of(changes: Sequence[Change]) -> Iterator[Hold]:
    """The claims of one run, in order."""
    claim: Change | None = None
    lease_until = 0
    for change in changes:
        is_new = change.is_running and (claim is None or change.token != claim.token)
        if claim is not None and (is_new or not change.is_running):
            yield _hold(claim, change.at, lease_until)
            claim = None
        if is_new:
            claim = change
        if change.is_running:
            lease_until = change.lease_until or 0
    if claim is not None:
        yield _hold(claim, None, lease_until)


def _hold(claim: Change, ended_at: int | None, lease_until: int) -> Hold:
    return Hold(claim.run, claim.token, claim.worker, claim.at, ended_at, lease_until)


def all_holds(evidence: Evidence) -> Mapping[tuple[str, int], Hold]:
    """Every claim, by run and token."""
    return {
        (hold.run, hold.token): hold
        for changes in evidence.changes_by_run.values()
        for hold in holds_of(changes)
    }


def steps(changes: Sequence[Change]) -> Iterator[tuple[Change, Change]]:
    """Each change with the one before it."""
    return pairwise(changes)


def deaths(evidence: Evidence) -> Mapping[int, int]:
    """The earliest moment at which each process can have been gone, by pid."""
    found: dict[int, int] = {}
    for line in evidence.lines_of("signal", "exited"):
        is_deadly = line.event == "exited" or line.facts["number"] in {"SIGKILL", "SIGTERM"}
        if is_deadly:
            found.setdefault(line.facts["child"], line.at)
    return found
