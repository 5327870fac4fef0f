from datetime import datetime
from typing import Any

import pytest

from tickwork._domain.limits import UniqueKey
from tickwork._domain.outcome import Canceled, Failed, Skipped, Snoozed, Succeeded
from tickwork._domain.run import NewRun
from tickwork.stores.contract import Enqueued
from tickwork.testing.conformance.builders import (
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
    """Of runs with the same unique key one is there, and stands for the others."""

    def test_the_second_is_answered_with_the_first(self, store):
        first, second = a_unique_run(), a_unique_run()
        store.enqueue([first])

        [answer] = store.enqueue([second])

        assert answer == Enqueued(first.id, is_new=False)
        assert ids(all_runs(store)) == [first.id]

    def test_other_keys_are_free(self, store):
        add(store, a_unique_run("send_email:42"))

        [answer] = store.enqueue([a_unique_run("send_email:43")])

        assert answer.is_new

    @pytest.mark.parametrize("other", ["send_email:Zoe", "send_email:zoé", "send_email:zoe0"])
    def test_keys_are_equal_only_letter_by_letter(self, store, other):
        add(store, a_unique_run("send_email:zoe"))

        [answer] = store.enqueue([a_unique_run(other)])

        assert answer.is_new

    def test_runs_without_a_key_do_not_compete(self, store):
        answers = store.enqueue([a_run(), a_run()])

        assert all(answer.is_new for answer in answers)

    def test_inside_of_one_call_the_first_wins(self, store):
        first, second, third = a_unique_run(), a_unique_run(), a_unique_run("send_email:43")

        answers = store.enqueue([first, second, third])

        assert answers == [
            Enqueued(first.id, is_new=True),
            Enqueued(first.id, is_new=False),
            Enqueued(third.id, is_new=True),
        ]
        assert ids(all_runs(store)) == [first.id, third.id]

    def test_those_around_it_are_added_all_the_same(self, store):
        add(store, first := a_unique_run())
        before, after = a_run(), a_run()

        answers = store.enqueue([before, a_unique_run(), after])

        assert [answer.run_id for answer in answers] == [before.id, first.id, after.id]
        assert ids(all_runs(store)) == [first.id, before.id, after.id]


class TestUniqueKeysKeysWithoutAWindow:
    """A key is protected while its run is unfinished."""

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded(), Failed("no"), Skipped("not today"), Canceled()],
        ids=lambda outcome: type(outcome).__name__,
    )
    def test_it_is_free_when_its_run_has_ended(self, store, worker, outcome):
        add(store, a_unique_run())
        worker.record(worker.claim_one(), outcome)

        [answer] = store.enqueue([a_unique_run()])

        assert answer.is_new

    def test_it_is_free_when_its_run_was_completed_by_its_handler(self, store, clock, worker):
        add(store, a_unique_run())
        store.complete(worker.claim_one(), now=clock.now())

        [answer] = store.enqueue([a_unique_run()])

        assert answer.is_new

    def test_it_is_free_when_its_run_was_canceled(self, store, clock):
        add(store, first := a_unique_run())
        store.cancel(first.id, now=clock.now())

        [answer] = store.enqueue([a_unique_run()])

        assert answer.is_new

    def test_it_is_protected_while_its_run_runs(self, store, worker):
        add(store, first := a_unique_run())
        worker.claim_one()

        [answer] = store.enqueue([a_unique_run()])

        assert answer == Enqueued(first.id, is_new=False)

    @pytest.mark.parametrize("outcome", [Failed("no"), Snoozed(MINUTE)], ids=["failed", "snoozed"])
    def test_it_is_protected_while_its_run_waits_to_be_called_again(self, store, worker, outcome):
        add(store, first := a_unique_run(attempts_max=2))
        worker.record(worker.claim_one(), outcome)

        [answer] = store.enqueue([a_unique_run()])

        assert answer == Enqueued(first.id, is_new=False)

    def test_the_next_one_protects_it_in_its_turn(self, store, worker):
        add(store, a_unique_run())
        worker.run()
        add(store, second := a_unique_run())

        [answer] = store.enqueue([a_unique_run()])

        assert answer == Enqueued(second.id, is_new=False)


class TestUniqueKeysKeysWithAWindow:
    """A window protects its key until it has passed, whatever became of the run."""

    def test_it_outlives_its_run(self, store, worker):
        add(store, first := a_unique_run(until=NOON + HOUR))
        worker.run()

        [answer] = store.enqueue([a_unique_run(created_at=NOON + MINUTE)])

        assert answer == Enqueued(first.id, is_new=False)
        assert the_run(store, first).is_finished

    def test_it_outlives_a_run_that_was_canceled(self, store, clock):
        add(store, first := a_unique_run(until=NOON + HOUR))
        store.cancel(first.id, now=clock.now())

        [answer] = store.enqueue([a_unique_run(created_at=NOON + MINUTE)])

        assert answer == Enqueued(first.id, is_new=False)

    def test_it_is_over_at_its_end(self, store, worker):
        add(store, a_unique_run(until=NOON + HOUR))
        worker.run()

        [answer] = store.enqueue([a_unique_run(created_at=NOON + HOUR)])

        assert answer.is_new

    def test_once_over_it_protects_nothing_even_if_its_run_is_unfinished(self, store):
        add(store, a_unique_run(until=NOON + HOUR))

        [answer] = store.enqueue([a_unique_run(created_at=NOON + HOUR)])

        assert answer.is_new

    def test_the_end_of_a_run_does_not_free_a_key_that_another_protects_by_now(
        self, store, clock, worker
    ):
        add(store, first := a_unique_run(until=NOON + MINUTE))
        clock.advance(hours=1)
        add(store, second := a_unique_run(created_at=clock.now()))
        [claim] = worker.claim(1)
        assert claim.run_id == first.id
        worker.record(claim)

        [answer] = store.enqueue([a_unique_run(created_at=clock.now())])

        assert answer == Enqueued(second.id, is_new=False)

    def test_a_run_that_ends_after_its_window_leaves_nothing_behind(self, store, clock, worker):
        add(store, a_unique_run(until=NOON + MINUTE))
        clock.advance(hours=1)
        worker.run()

        [answer] = store.enqueue([a_unique_run(created_at=clock.now())])

        assert answer.is_new


class TestUniqueKeysOverlapKeys:
    """Of the unfinished runs with one overlap key there is one."""

    def test_the_second_is_answered_with_the_first(self, store):
        add(store, first := a_run(overlap_key=HELD))

        [answer] = store.enqueue([a_run(overlap_key=HELD)])

        assert answer == Enqueued(first.id, is_new=False)
        assert ids(all_runs(store)) == [first.id]

    def test_inside_of_one_call_the_first_wins(self, store):
        first, second = a_run(overlap_key=HELD), a_run(overlap_key=HELD)

        answers = store.enqueue([first, second])

        assert answers == [Enqueued(first.id, is_new=True), Enqueued(first.id, is_new=False)]

    def test_a_held_key_is_taken_until_its_run_has_ended(self, store, worker):
        add(store, a_run(overlap_key=HELD, attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))

        [answer] = store.enqueue([a_run(overlap_key=HELD)])

        assert not answer.is_new

    def test_a_held_key_is_free_when_its_run_has_ended(self, store, worker):
        add(store, a_run(overlap_key=HELD))
        worker.run()

        [answer] = store.enqueue([a_run(overlap_key=HELD)])

        assert answer.is_new

    def test_a_held_key_is_free_when_its_run_was_canceled(self, store, clock):
        add(store, first := a_run(overlap_key=HELD))
        store.cancel(first.id, now=clock.now())

        [answer] = store.enqueue([a_run(overlap_key=HELD)])

        assert answer.is_new

    def test_a_waiting_key_is_free_when_its_run_was_claimed(self, store, worker):
        add(store, first := a_run(overlap_key=WAITING))
        worker.claim_one()

        [answer] = store.enqueue([a_run(overlap_key=WAITING)])

        assert answer.is_new
        assert the_run(store, first).overlap_key is None

    def test_a_waiting_key_does_not_come_back_with_a_retry(self, store, worker):
        add(store, first := a_run(overlap_key=WAITING, attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))

        assert the_run(store, first).overlap_key is None

    def test_a_run_needs_both_of_its_keys(self, store, worker):
        add(store, first := a_run(overlap_key=HELD))

        [answer] = store.enqueue([a_unique_run(overlap_key=HELD)])

        assert answer == Enqueued(first.id, is_new=False)

    def test_a_run_that_was_not_added_holds_nothing_for_those_behind_it(self, store):
        add(store, first := a_unique_run())
        second, third = a_unique_run(overlap_key=HELD), a_run(overlap_key=HELD)

        answers = store.enqueue([second, third])

        assert answers == [Enqueued(first.id, is_new=False), Enqueued(third.id, is_new=True)]

    def test_a_run_that_was_not_added_protects_nothing(self, store):
        add(store, a_run(overlap_key=HELD))
        store.enqueue([a_unique_run(overlap_key=HELD)])

        [answer] = store.enqueue([a_unique_run()])

        assert answer.is_new
