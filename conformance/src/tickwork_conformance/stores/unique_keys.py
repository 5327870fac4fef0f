from datetime import datetime
from typing import Any

import pytest

from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Canceled, Failed, Skipped, Snoozed, Succeeded
from tickwork._domain.runs.run import NewRun
from tickwork._stores.contract import AddedRun
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    a_run,
    add,
    all_runs,
    ids,
    the_run,
)

HELD = "held:019cb0d2-0000-7000-8000-000000000001"
WAITING = "waiting:019cb0d2-0000-7000-8000-000000000001"


def a_unique_run(key: str = "send_email:42", until: datetime | None = None, **given: Any) -> NewRun:
    return a_run(unique=UniqueKey(key, until), **given)


class TestUniqueKeysUniqueKeys:
    """Of several runs with the same unique key, one is added and returned for all."""

    def test_the_second_insert_returns_the_first_run(self, store):
        first, second = a_unique_run(), a_unique_run()
        store.add_runs([first])

        [answer] = store.add_runs([second])

        assert answer == AddedRun(first.id, is_new=False)
        assert ids(all_runs(store)) == [first.id]

    def test_other_keys_are_free(self, store):
        add(store, a_unique_run("send_email:42"))

        [answer] = store.add_runs([a_unique_run("send_email:43")])

        assert answer.is_new

    @pytest.mark.parametrize("other", ["send_email:Zoe", "send_email:zoé", "send_email:zoe0"])
    def test_keys_are_case_sensitive(self, store, other):
        add(store, a_unique_run("send_email:zoe"))

        [answer] = store.add_runs([a_unique_run(other)])

        assert answer.is_new

    def test_runs_without_a_key_do_not_compete(self, store):
        answers = store.add_runs([a_run(), a_run()])

        assert all(answer.is_new for answer in answers)

    def test_within_one_call_the_first_run_is_added(self, store):
        first, second, third = a_unique_run(), a_unique_run(), a_unique_run("send_email:43")

        answers = store.add_runs([first, second, third])

        assert answers == [
            AddedRun(first.id, is_new=True),
            AddedRun(first.id, is_new=False),
            AddedRun(third.id, is_new=True),
        ]
        assert ids(all_runs(store)) == [first.id, third.id]

    def test_the_other_runs_of_the_call_are_added(self, store):
        add(store, first := a_unique_run())
        before, after = a_run(), a_run()

        answers = store.add_runs([before, a_unique_run(), after])

        assert [answer.run_id for answer in answers] == [before.id, first.id, after.id]
        assert ids(all_runs(store)) == [first.id, before.id, after.id]


class TestUniqueKeysKeysWithoutAWindow:
    """A key is taken while its run is unfinished."""

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded(), Failed("no"), Skipped("not today"), Canceled()],
        ids=lambda outcome: type(outcome).__name__,
    )
    def test_it_is_free_when_its_run_has_ended(self, store, worker, outcome):
        add(store, a_unique_run())
        worker.record(worker.claim_one(), outcome)

        [answer] = store.add_runs([a_unique_run()])

        assert answer.is_new

    def test_it_is_free_when_its_run_was_completed_by_its_handler(self, store, clock, worker):
        add(store, a_unique_run())
        store.complete(worker.claim_one(), now=clock.now())

        [answer] = store.add_runs([a_unique_run()])

        assert answer.is_new

    def test_it_is_free_when_its_run_was_canceled(self, store, clock):
        add(store, first := a_unique_run())
        store.cancel(first.id, now=clock.now())

        [answer] = store.add_runs([a_unique_run()])

        assert answer.is_new

    def test_it_is_taken_while_its_run_is_running(self, store, worker):
        add(store, first := a_unique_run())
        worker.claim_one()

        [answer] = store.add_runs([a_unique_run()])

        assert answer == AddedRun(first.id, is_new=False)

    @pytest.mark.parametrize("outcome", [Failed("no"), Snoozed(MINUTE)], ids=["failed", "snoozed"])
    def test_it_is_taken_while_its_run_waits_for_its_retry(self, store, worker, outcome):
        add(store, first := a_unique_run(attempts_max=2))
        worker.record(worker.claim_one(), outcome)

        [answer] = store.add_runs([a_unique_run()])

        assert answer == AddedRun(first.id, is_new=False)

    def test_the_next_run_takes_the_key_again(self, store, worker):
        add(store, a_unique_run())
        worker.run()
        add(store, second := a_unique_run())

        [answer] = store.add_runs([a_unique_run()])

        assert answer == AddedRun(second.id, is_new=False)


class TestUniqueKeysKeysWithAWindow:
    """A window keeps its key taken until it has passed, even if the run has ended."""

    def test_the_window_outlasts_its_run(self, store, worker):
        add(store, first := a_unique_run(until=NOON + HOUR))
        worker.run()

        [answer] = store.add_runs([a_unique_run(created_at=NOON + MINUTE)])

        assert answer == AddedRun(first.id, is_new=False)
        assert the_run(store, first).is_finished

    def test_the_window_outlasts_a_canceled_run(self, store, clock):
        add(store, first := a_unique_run(until=NOON + HOUR))
        store.cancel(first.id, now=clock.now())

        [answer] = store.add_runs([a_unique_run(created_at=NOON + MINUTE)])

        assert answer == AddedRun(first.id, is_new=False)

    def test_the_key_is_free_at_the_end_of_the_window(self, store, worker):
        add(store, a_unique_run(until=NOON + HOUR))
        worker.run()

        [answer] = store.add_runs([a_unique_run(created_at=NOON + HOUR)])

        assert answer.is_new

    def test_after_the_window_the_key_is_free_even_if_its_run_is_unfinished(self, store):
        add(store, a_unique_run(until=NOON + HOUR))

        [answer] = store.add_runs([a_unique_run(created_at=NOON + HOUR)])

        assert answer.is_new

    def test_the_end_of_a_run_does_not_free_a_key_that_another_run_has_taken(
        self, store, clock, worker
    ):
        add(store, first := a_unique_run(until=NOON + MINUTE))
        clock.advance(hours=1)
        add(store, second := a_unique_run(created_at=clock.now()))
        [claim] = worker.claim(1)
        assert claim.run_id == first.id
        worker.record(claim)

        [answer] = store.add_runs([a_unique_run(created_at=clock.now())])

        assert answer == AddedRun(second.id, is_new=False)

    def test_a_run_that_ends_after_its_window_leaves_no_key(self, store, clock, worker):
        add(store, a_unique_run(until=NOON + MINUTE))
        clock.advance(hours=1)
        worker.run()

        [answer] = store.add_runs([a_unique_run(created_at=clock.now())])

        assert answer.is_new


class TestUniqueKeysOverlapKeys:
    """At most one unfinished run has an overlap key."""

    def test_the_second_insert_returns_the_first_run(self, store):
        add(store, first := a_run(overlap_key=HELD))

        [answer] = store.add_runs([a_run(overlap_key=HELD)])

        assert answer == AddedRun(first.id, is_new=False)
        assert ids(all_runs(store)) == [first.id]

    def test_within_one_call_the_first_run_is_added(self, store):
        first, second = a_run(overlap_key=HELD), a_run(overlap_key=HELD)

        answers = store.add_runs([first, second])

        assert answers == [AddedRun(first.id, is_new=True), AddedRun(first.id, is_new=False)]

    def test_a_held_key_is_taken_until_its_run_has_ended(self, store, worker):
        add(store, a_run(overlap_key=HELD, attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))

        [answer] = store.add_runs([a_run(overlap_key=HELD)])

        assert not answer.is_new

    def test_a_held_key_is_free_when_its_run_has_ended(self, store, worker):
        add(store, a_run(overlap_key=HELD))
        worker.run()

        [answer] = store.add_runs([a_run(overlap_key=HELD)])

        assert answer.is_new

    def test_a_held_key_is_free_when_its_run_was_canceled(self, store, clock):
        add(store, first := a_run(overlap_key=HELD))
        store.cancel(first.id, now=clock.now())

        [answer] = store.add_runs([a_run(overlap_key=HELD)])

        assert answer.is_new

    def test_a_waiting_key_is_free_when_its_run_was_claimed(self, store, worker):
        add(store, first := a_run(overlap_key=WAITING))
        worker.claim_one()

        [answer] = store.add_runs([a_run(overlap_key=WAITING)])

        assert answer.is_new
        assert the_run(store, first).overlap_key is None

    def test_a_waiting_key_does_not_come_back_with_a_retry(self, store, worker):
        add(store, first := a_run(overlap_key=WAITING, attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))

        assert the_run(store, first).overlap_key is None

    def test_a_run_needs_both_of_its_keys(self, store, worker):
        add(store, first := a_run(overlap_key=HELD))

        [answer] = store.add_runs([a_unique_run(overlap_key=HELD)])

        assert answer == AddedRun(first.id, is_new=False)

    def test_a_run_that_was_not_added_takes_no_key_from_later_runs(self, store):
        add(store, first := a_unique_run())
        second, third = a_unique_run(overlap_key=HELD), a_run(overlap_key=HELD)

        answers = store.add_runs([second, third])

        assert answers == [AddedRun(first.id, is_new=False), AddedRun(third.id, is_new=True)]

    def test_a_run_that_was_not_added_takes_no_key(self, store):
        add(store, a_run(overlap_key=HELD))
        store.add_runs([a_unique_run(overlap_key=HELD)])

        [answer] = store.add_runs([a_unique_run()])

        assert answer.is_new
