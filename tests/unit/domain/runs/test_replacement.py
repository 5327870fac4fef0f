from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.limits.debounce import ReplaceRule
from tickwork._domain.runs.replacement import WaitingRun, replace_run, wait_of
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import Phase
from unit.builders import NOON

SECOND = timedelta(seconds=1)
OLD, NEW = (
    RunId("019cb0d2-0000-7000-8000-000000000001"),
    RunId("019cb0d2-0000-7000-8000-000000000002"),
)


def waiting(due: float = 10, **given: Any) -> WaitingRun:
    """Dispatched at noon, due a few seconds later."""
    facts = {"phase": Phase.WAITING, "queue": "default"}
    return WaitingRun(OLD, NOON, NOON + due * SECOND, **facts | given)


def dispatched(at: float, due: float, longest: float | None = None, **given: Any) -> NewRun:
    rule = ReplaceRule(None if longest is None else longest * SECOND)
    return NewRun(NEW, "index", NOON + at * SECOND, NOON + due * SECOND, replaces=rule, **given)


class TestDueTime:
    """The last dispatch decides, up to the longest wait; a run that is due keeps its time."""

    @pytest.mark.parametrize(
        ("old_due", "at", "new_due", "longest", "due", "phase"),
        [
            (10, 5, 15, None, 15, Phase.WAITING),
            (10, 5, 15, 12, 12, Phase.WAITING),
            (10, 5, 15, 15, 15, Phase.WAITING),
            (10, 5, 5, None, 5, Phase.READY),
            (3600, 5, 15, 4, 5, Phase.READY),  # the longest wait was longer before
            (10, 10, 20, None, 10, Phase.READY),
            (10, 50, 60, 12, 10, Phase.READY),
        ],
    )
    def test_due(self, old_due, at, new_due, longest, due, phase):  # noqa: PLR0917  # a table
        made = replace_run(waiting(old_due), dispatched(at, new_due, longest))

        assert made.run.due_at == NOON + due * SECOND
        assert made.phase is phase
        assert (made.run.id, made.run.created_at) == (OLD, NOON)

    @pytest.mark.parametrize(("at", "due", "expires"), [(5, 15, 18), (5, 5, 8), (50, 60, 53)])
    def test_the_expiry_counts_from_the_due_time_or_from_now(self, at, due, expires):
        new = dispatched(at, due, expires_at=NOON + (due + 3) * SECOND)

        assert replace_run(waiting(), new).run.expires_at == NOON + expires * SECOND

    def test_workers_are_notified_of_an_earlier_time_and_of_another_queue(self):
        assert replace_run(waiting(), dispatched(1, 5)).is_sooner
        assert replace_run(waiting(), dispatched(1, 11, queue="slow")).is_sooner
        assert not replace_run(waiting(), dispatched(1, 11)).is_sooner


class TestLimits:
    """A blocked run keeps its place if its keys stay the same."""

    BLOCKED: Any = {"phase": Phase.BLOCKED, "limit_keys": ("a",), "blocked_on": "a"}  # noqa: RUF012

    def test_it_stays_blocked(self):
        made = replace_run(waiting(1, **self.BLOCKED), dispatched(5, 15, limit_keys=("a",)))

        assert (made.phase, made.blocked_on) == (Phase.BLOCKED, "a")

    def test_with_other_keys_the_next_claim_decides(self):
        made = replace_run(waiting(1, **self.BLOCKED), dispatched(5, 15, limit_keys=("b",)))

        assert (made.phase, made.blocked_on) == (Phase.READY, None)


class TestSeveral:
    """A replaced run can be replaced again, in the same transaction."""

    def test_the_first_dispatch_counts(self):
        first = dispatched(0, 10)._replace(id=OLD)
        second = replace_run(wait_of(first), dispatched(5, 15, 17))
        third = replace_run(second.waiting, dispatched(9, 19, 17))

        assert third.run.due_at == NOON + 17 * SECOND
        assert (third.run.id, third.run.created_at) == (OLD, NOON)
