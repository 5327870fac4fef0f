"""Reads for the pages: outcomes of schedules, waiting runs, retries, and how many runs arrive."""

from collections import Counter
from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import RunStatus
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import RunFilter
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    UNKNOWN_ID,
    a_fired_run,
    a_run,
    add,
    ids,
)


def a_firing(hours: int, schedule: str = "digest", **given: Any) -> NewRun:
    """A run of a schedule, with the id that its instant gives."""
    at = NOON - hours * HOUR
    return a_fired_run(schedule, at, id=RunId(new_id(at)), created_at=at, **given)


class TestOutcomesOfSchedules:
    """The newest runs of a schedule are read by an index."""

    @pytest.fixture
    def firings(self, store, worker):
        made = [a_firing(hours) for hours in range(6, 0, -1)]
        add(store, *made, a_firing(2, tenant="acme"), a_firing(2, schedule="other"))
        worker.run()
        add(store, *(a_run() for _ in range(50)))
        return made

    def test_they_are_found_behind_newer_runs_of_the_same_job(self, store, firings):
        found = store.list_outcomes([("", "digest")], limit=4)

        assert [each.id for each in found] == [each.id for each in firings[:1:-1]]
        assert {each.status for each in found} == {RunStatus.COMPLETED}
        assert [each.nominal_at for each in found] == [NOON - n * HOUR for n in (1, 2, 3, 4)]
        assert all(each.ended_at is not None and each.instants == 1 for each in found)

    def test_each_tenant_has_its_own(self, store, firings):
        names = [("acme", "digest"), ("", "digest"), ("", "unknown"), ("", "digest")]

        found = store.list_outcomes(names, limit=2)

        assert Counter(each.tenant for each in found) == {"": 2, "acme": 1}

    def test_those_of_a_span_of_time(self, store, firings):
        found = store.list_outcomes(
            [("", "digest")], since=NOON - 4 * HOUR, before=NOON - 2 * HOUR, limit=9
        )

        assert [each.nominal_at for each in found] == [NOON - 3 * HOUR, NOON - 4 * HOUR]

    def test_an_unfinished_run_is_the_newest(self, store, firings):
        add(store, waiting := a_firing(0))

        newest = store.list_outcomes([("", "digest")], limit=1)

        assert [(each.id, each.status, each.ended_at) for each in newest] == [
            (waiting.id, RunStatus.PENDING, None)
        ]

    def test_no_schedules(self, store):
        assert store.list_outcomes([], limit=9) == []

    def test_the_list_of_runs_of_a_schedule(self, store, firings):
        where = RunFilter(schedule="digest", tenant="")

        page = store.list_runs(where, limit=50, scan_max=20)

        assert ids(page.runs) == [each.id for each in firings[::-1]]
        assert page.searched_to is None


class TestOutcomesWaitingRuns:
    """Runs that wait for a time are listed by that time."""

    def test_those_of_a_span_of_time(self, store):
        runs = [a_run(due_at=NOON + hours * HOUR) for hours in (3, 1, 2, 9)]
        add(store, *runs, a_run())

        found = store.list_waiting(since=NOON, until=NOON + 3 * HOUR, limit=9)

        assert ids(found) == [runs[1].id, runs[2].id, runs[0].id]
        assert ids(store.list_waiting(since=NOON, until=NOON + 9 * HOUR, limit=1)) == [runs[1].id]
        assert store.list_waiting(since=NOON + 4 * HOUR, until=NOON + 5 * HOUR, limit=9) == []

    def test_those_of_one_job_or_schedule(self, store):
        hour = NOON + HOUR
        runs = [
            a_run(due_at=hour, job="a"),
            a_run(due_at=hour, job="b", schedule="nightly", nominal_at=NOON),
        ]
        add(store, *runs)

        def found(**where):
            return ids(store.list_waiting(since=NOON, until=NOON + 9 * HOUR, limit=9, **where))

        assert found(job="a") == [runs[0].id]
        assert found(schedule="nightly") == [runs[1].id]
        assert found(job="a", schedule="nightly") == found(job="A") == []


class TestOutcomesRetries:
    """A run leads to those that repeat it."""

    def test_waiting_and_finished_ones(self, store, worker):
        add(store, first := a_run())
        worker.run()
        add(store, second := a_run(retry_of=first.id))
        worker.run()
        add(store, third := a_run(retry_of=first.id), a_run(retry_of=second.id), a_run())

        assert store.find_retries(first.id) == [second.id, third.id]
        assert store.find_retries(first.id, limit=1) != []
        assert store.find_retries(third.id) == store.find_retries(UNKNOWN_ID) == []


class TestOutcomesCreations:
    """Arrivals are counted by queue and minute, also of runs that have finished."""

    def test_they_are_counted_by_queue_and_minute(self, store, worker):
        add(store, *(a_run(queue="a", id=RunId(new_id(NOON))) for _ in range(3)))
        worker.run()
        later = NOON + MINUTE
        add(store, a_run(queue="b", id=RunId(new_id(later)), created_at=later))

        found = store.count_created(since=NOON, most=100)

        assert sorted(found.counts) == [(NOON, "a", 3), (later, "b", 1)]
        assert found.since == NOON
        assert store.count_created(since=later, most=100).counts == [(later, "b", 1)]
        assert store.count_created(since=NOON + HOUR, most=100).counts == []

    def test_the_newest_of_too_many(self, store):
        for minutes in range(4):
            at = NOON + minutes * MINUTE
            add(store, *(a_run(id=RunId(new_id(at)), created_at=at) for _ in range(5)))

        found = store.count_created(since=NOON, most=7)

        assert found.since > NOON
        numbers = {each.minute: each.number for each in found.counts}
        assert numbers[NOON + 3 * MINUTE] == 5
        assert sum(numbers.values()) >= 7
        assert NOON not in numbers


class TestOutcomesQueues:
    """What a queue waits for: its oldest run, and the use of its rates."""

    def test_the_oldest_run_of_each_pair_whatever_its_priority(self, store):
        for priority, minutes in ((1, 5), (2, 90), (3, 60)):
            due_at = NOON - minutes * MINUTE
            add(store, a_run(queue="a", priority=priority, due_at=due_at))
            add(store, a_run(queue="a", priority=priority, due_at=due_at + MINUTE))
        add(store, a_run(queue="b"), a_run(queue="a", due_at=NOON + HOUR))

        found = store.oldest_ready([("a", "send_email"), ("b", "send_email"), ("c", "unknown")])

        assert found == {
            ("a", "send_email"): NOON - 90 * MINUTE,
            ("b", "send_email"): NOON,
        }
        assert store.oldest_ready([]) == {}

    def test_how_much_of_a_rate_is_used(self, store, worker):
        key = "job/minute:send_email"
        store.set_limits({key: 5})
        add(store, *(a_run(limit_keys=(key,)) for _ in range(3)))
        worker.claim(2)

        assert store.count_starts({key: NOON - MINUTE}) == {key: 2}
        assert store.count_starts({key: NOON}) == {key: 0}
        assert store.count_starts({"job/hour:x": NOON}) == {"job/hour:x": 0}


class TestOutcomesRecentEnds:
    """Runs are found by when their last attempt ended, whenever they were created."""

    def test_they_are_found_by_their_end(self, store, worker, clock):
        add(store, early := a_run())
        worker.run()
        clock.advance(hours=2)
        add(store, late := a_run(), a_run(due_at=NOON + 9 * HOUR))
        worker.run()

        def found(hours: int) -> list[RunId]:
            where = RunFilter(ended_since=NOON + hours * HOUR)
            return ids(store.list_runs(where).runs)

        assert found(0) == [late.id, early.id]
        assert found(1) == [late.id]
        assert found(3) == []
