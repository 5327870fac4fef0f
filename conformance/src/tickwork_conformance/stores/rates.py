"""Rate limits: the number of starts in any period of time."""

import pytest

from tickwork._domain.limits.rates import Turn
from tickwork._domain.runs.outcome import Failed, Interrupted, Succeeded
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import ChangeResult, LimitRow, Pause, PauseKind
from tickwork_conformance.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    a_run,
    add,
    ids,
    in_phase,
    the_run,
)

KEY = "job/minute:send_email"
OTHER = "queue/hour:default"
SLOT = "job:send_email"


def rated(count: int, *keys: str, **given: object) -> list[NewRun]:
    return [a_run(limit_keys=keys or (KEY,), **given) for _ in range(count)]


def turn(store, clock, limit=100):
    return store.unblock_rated(now=clock.now(), limit=limit)


def next_start_at(store):
    return store.pending_work().next_start_at


class TestRatesRates:
    """In any window of that length, all workers together start at most this many runs."""

    def test_no_more_runs_start_than_the_rate_allows(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *(runs := rated(5)))

        assert ids(worker.claim()) == ids(runs[:2])

    def test_a_finished_run_still_counts(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *rated(5))

        assert len(worker.run()) == 2
        assert worker.run() == []

    def test_the_rate_holds_for_two_workers(self, store, worker, other_worker):
        store.set_limits({KEY: 3})
        add(store, *(runs := rated(5)))

        assert ids(worker.claim(2)) == ids(runs[:2])
        assert ids(other_worker.claim(2)) == [runs[2].id]

    def test_a_waiting_run_is_blocked_on_the_key(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := rated(2)))

        worker.claim()

        blocked = the_run(store, runs[1])
        assert (blocked.phase, blocked.blocked_on) == (Phase.BLOCKED, KEY)
        assert (blocked.status, blocked.attempt, blocked.token) == (RunStatus.PENDING, 0, 0)

    def test_a_waiting_run_has_a_position(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *(runs := rated(5)))
        worker.claim()

        turns = [store.find_turn(run.id) for run in runs]

        assert turns[:2] == [None, None]
        assert turns[2:] == [
            Turn(KEY, 2, 1, NOON + MINUTE),
            Turn(KEY, 2, 2, NOON + MINUTE * 1.5),
            Turn(KEY, 2, 3, NOON + MINUTE * 2),
        ]

    def test_a_run_that_waits_for_a_concurrency_limit_has_no_turn(self, store, worker):
        store.set_limits({SLOT: 1})
        add(store, *(runs := rated(2, SLOT)))
        worker.claim()

        assert store.find_turn(runs[1].id) is None
        assert store.find_turn(a_run().id) is None

    @pytest.mark.parametrize("limits", [{}, {KEY: 0}], ids=["no row", "nought"])
    def test_a_missing_rate_or_zero_is_no_limit(self, store, worker, limits):
        store.set_limits(limits)
        add(store, *(runs := rated(5)))

        assert ids(worker.claim()) == ids(runs)

    def test_values_of_an_argument_are_counted_separately(self, store, worker):
        store.set_limits({"account/minute:send_email": 1})
        for account in (1, 2):
            add(store, *rated(2, f"account/minute:send_email={account}"))

        assert len(worker.claim()) == 2

    def test_every_attempt_is_a_start(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := rated(1, attempts_max=3)))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        add(store, *rated(1, created_at=clock.now()))

        assert ids(worker.claim()) == [runs[0].id]
        assert next_start_at(store) == NOON + 2 * MINUTE

    def test_a_released_attempt_is_a_start(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *rated(1))
        worker.record(worker.claim_one(), Interrupted())

        assert worker.claim() == []

    def test_a_rate_takes_no_slots(self, store, worker):
        store.set_limits({KEY: 2, SLOT: 2})
        add(store, *(runs := rated(2, KEY, SLOT)))
        claims = worker.claim()

        assert store.count_taken([KEY, SLOT]) == {KEY: 0, SLOT: 2}
        assert [worker.record(claim) for claim in claims] == [[], []]
        assert store.count_taken([KEY, SLOT]) == {KEY: 0, SLOT: 0}
        assert the_run(store, runs[0]).status is RunStatus.COMPLETED

    def test_a_run_completed_by_its_caller(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *rated(2))
        [claim] = worker.claim()

        assert store.complete(claim, now=clock.now())
        assert store.after_complete([claim]) == [claim.run_id]
        assert next_start_at(store) == NOON + MINUTE

    def test_no_run_of_it_is_prefetched(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *rated(2), free := a_run())

        assert ids(worker.claim(0, ahead=10)) == [free.id]

    def test_a_run_without_a_rate_is_claimed_behind_waiting_runs(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *rated(30, priority=1), free := a_run(priority=50))

        assert free.id in ids([*worker.claim(2), *worker.claim(2)])

    def test_a_run_that_is_blocked_by_another_limit_does_not_start(self, store, clock, worker):
        store.set_limits({KEY: 2, SLOT: 1})
        add(store, *rated(2, SLOT, KEY))
        worker.claim()
        add(store, free := rated(1)[0])

        assert ids(worker.claim()) == [free.id]

    def test_the_rate_is_used_up_in_every_window(self, store, clock, worker):
        store.set_limits({KEY: 3})
        add(store, *rated(40))
        starts = []
        for _ in range(120):
            turn(store, clock)
            starts += [clock.now()] * len(worker.run(100))
            clock.advance(seconds=5)

        in_windows = [sum(0 <= (at - start) / MINUTE < 1 for at in starts) for start in starts]
        assert max(in_windows) == 3
        assert len(starts) == 3 * 10


class TestRatesTurns:
    """Waiting runs are unblocked one by one, each at its own time."""

    @pytest.fixture
    def waiting(self, store, worker):
        """A rate of six a minute: six runs have started, and six wait."""
        store.set_limits({KEY: 6})
        add(store, *(runs := rated(12)))
        assert worker.run(100) == ids(runs[:6])
        return runs[6:]

    def test_the_time_of_the_next_turn_is_stored(self, store, waiting):
        assert next_start_at(store) == NOON + MINUTE

    def test_no_run_is_unblocked_before_its_turn(self, store, clock, waiting):
        clock.advance(MINUTE - SECOND)

        assert turn(store, clock) == 0
        assert len(in_phase(store, Phase.BLOCKED)) == 6

    def test_a_turn_unblocks_one_run(self, store, clock, waiting):
        clock.advance(MINUTE)

        assert turn(store, clock) == 1
        assert in_phase(store, Phase.READY) == [waiting[0].id]
        assert next_start_at(store) == NOON + MINUTE + 10 * SECOND
        assert turn(store, clock) == 0

    def test_all_runs_start_in_the_end(self, store, clock, worker, waiting):
        started = []
        for _ in range(12):
            clock.advance(10 * SECOND)
            turn(store, clock)
            started += worker.run()

        assert started == ids(waiting)
        assert (clock.now(), next_start_at(store)) == (NOON + 2 * MINUTE, None)

    def test_the_lowest_priority_number_is_unblocked_first(self, store, clock, worker, waiting):
        add(store, urgent := rated(1, priority=1)[0])
        worker.claim()
        clock.advance(MINUTE)

        turn(store, clock)

        assert in_phase(store, Phase.READY) == [urgent.id]

    def test_a_new_run_does_not_overtake(self, store, clock, worker, waiting):
        clock.advance(MINUTE)
        add(store, late := rated(1, created_at=clock.now())[0])

        assert worker.claim() == []
        assert the_run(store, late).blocked_on == KEY
        turn(store, clock)
        assert ids(worker.claim()) == [waiting[0].id]

    def test_a_canceled_run_takes_no_turn(self, store, clock, waiting):
        assert store.cancel(waiting[0].id, now=clock.now()) is ChangeResult.DONE
        clock.advance(MINUTE)

        turn(store, clock)

        assert in_phase(store, Phase.READY) == [waiting[1].id]

    def test_when_all_are_canceled_no_turn_is_left(self, store, clock, worker, waiting):
        for run in waiting:
            store.cancel(run.id, now=clock.now())
        clock.advance(MINUTE)

        assert turn(store, clock) == 0
        assert next_start_at(store) is None
        add(store, *rated(6))
        assert len(worker.claim()) == 6

    def test_a_rescheduled_run_takes_no_turn(self, store, clock, waiting):
        store.reschedule(waiting[0].id, due_at=NOON + HOUR, now=clock.now())
        clock.advance(MINUTE)

        turn(store, clock)

        assert in_phase(store, Phase.READY) == [waiting[1].id]

    def test_the_turn_of_a_paused_run_is_given_to_the_next(self, store, clock, worker):
        store.set_limits({KEY: 6})
        paused = rated(3, job="paused", priority=1)
        add(store, *rated(6))
        worker.run(100)
        add(store, *paused, *(runs := rated(3)))
        worker.claim()
        store.pause(Pause(PauseKind.JOB, "paused", clock.now()))
        clock.advance(MINUTE)
        started = []
        for _ in range(9):
            turn(store, clock)
            started += worker.run()
            clock.advance(10 * SECOND)

        assert started == ids(runs)

    def test_expired_runs_take_no_turn_and_are_unblocked_at_once(self, store, clock, worker):
        store.set_limits({KEY: 6})
        add(store, *rated(6))
        worker.run(100)
        soon = rated(3, expires_at=NOON + 30 * SECOND, priority=1)
        add(store, *soon, *(runs := rated(2)))
        worker.claim()
        clock.advance(MINUTE)

        assert turn(store, clock) == 4
        assert ids(worker.claim()) == [*ids(soon), runs[0].id]
        assert next_start_at(store) == NOON + MINUTE + 10 * SECOND

    def test_each_key_has_its_own_turns(self, store, clock, worker):
        name = "account/minute:send_email"
        store.set_limits({name: 1})
        for account in range(4):
            add(store, *rated(2, f"{name}={account}"))
            worker.claim()
            clock.advance(SECOND)
        clock.advance(55 * SECOND)
        outs = []
        for _ in range(6):
            outs.append(turn(store, clock))
            clock.advance(SECOND)

        assert outs == [0, 1, 1, 1, 1, 0]

    def test_no_more_keys_than_the_limit_the_earliest_first(self, store, clock, worker):
        name = "account/minute:send_email"
        store.set_limits({name: 1})
        for account in (3, 1, 2):
            add(store, *rated(2, f"{name}={account}"))
            worker.claim()
            clock.advance(SECOND)
        clock.advance(MINUTE)

        assert turn(store, clock, limit=1) == 1
        [out] = in_phase(store, Phase.READY)
        assert the_run(store, out).limit_keys == (f"{name}=3",)

    def test_a_run_needs_all_of_its_rates(self, store, clock, worker):
        store.set_limits({KEY: 1, OTHER: 2})
        add(store, *(runs := rated(4, KEY, OTHER)))
        started = []
        for minute in range(100):
            turn(store, clock)
            started += [minute] * len(worker.run())
            clock.advance(MINUTE)

        assert started == [0, 1, 60, 90]
        assert the_run(store, runs[3]).status is RunStatus.COMPLETED

    def test_a_rate_beside_a_limit(self, store, clock, worker):
        store.set_limits({KEY: 6, SLOT: 1})
        add(store, *rated(8, SLOT, KEY))
        started = []
        for _ in range(20):
            turn(store, clock)
            store.sweep(now=clock.now(), limit=100)
            started += worker.run()
            clock.advance(10 * SECOND)

        assert len(started) == 8


class TestRatesByName:
    """A claim by id respects the rate as well."""

    def claim_run(self, store, clock, worker, run):
        return store.claim_run(run.id, worker=worker.id, tag="t", now=clock.now(), lease=MINUTE)

    def test_a_claim_by_id_is_a_start(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := rated(2)))

        assert self.claim_run(store, clock, worker, runs[0]) is not None
        assert worker.claim() == []

    def test_a_claim_by_id_that_the_rate_does_not_allow_changes_nothing(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *rated(1))
        worker.claim()
        add(store, run := rated(1)[0])

        assert self.claim_run(store, clock, worker, run) is None
        assert the_run(store, run).phase is Phase.READY
        assert next_start_at(store) is None

    def test_a_claim_by_id_waits_for_its_turn(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := rated(2)))
        worker.claim()
        clock.advance(MINUTE)
        assert self.claim_run(store, clock, worker, runs[1]) is None

        turn(store, clock)

        assert self.claim_run(store, clock, worker, runs[1]) is not None


class TestRatesChangingRates:
    """A changed rate applies from the next turn on."""

    @pytest.fixture
    def waiting(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *rated(12))
        worker.run(100)

    def test_a_rate_is_listed_with_the_limits(self, store, waiting):
        assert store.list_limits() == [LimitRow(KEY, 2)]

    @pytest.mark.parametrize("by_code", [True, False])
    def test_a_higher_rate_unblocks_waiting_runs(self, store, clock, worker, waiting, by_code):
        clock.advance(SECOND)
        if by_code:
            store.set_limits({KEY: 5})
        else:
            store.change_limit(KEY, 5, now=clock.now())

        assert next_start_at(store) <= clock.now()
        started = []
        for _ in range(4):
            turn(store, clock)
            started += worker.run()
            clock.advance(12 * SECOND)
        assert len(started) == 3

    def test_a_removed_rate_unblocks_all_runs(self, store, clock, worker, waiting):
        store.change_limit(KEY, 0, now=clock.now())

        assert turn(store, clock) == 10
        assert len(worker.run(100)) == 10
        assert next_start_at(store) is None

    def test_a_rate_that_is_set_again_counts_earlier_starts(self, store, clock, worker, waiting):
        store.change_limit(KEY, 0, now=clock.now())
        turn(store, clock)
        store.change_limit(KEY, None, now=clock.now())

        assert worker.claim() == []
        clock.advance(MINUTE)
        turn(store, clock)
        assert len(worker.run()) == 1

    def test_a_lower_rate_counts_earlier_starts(self, store, clock, worker, waiting):
        store.change_limit(KEY, 1, now=clock.now())
        started = []
        for _ in range(6):
            turn(store, clock)
            started += worker.run()
            clock.advance(30 * SECOND)

        assert len(started) == 2

    def test_another_rate_of_a_similar_name_is_left_alone(self, store, clock, worker, waiting):
        store.set_limits({f"{KEY}s": 1})

        assert next_start_at(store) == NOON + MINUTE


class TestRatesPruning:
    """Unused keys are deleted, keys that count stay."""

    def test_an_unused_key_is_pruned(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *rated(1))
        worker.run()
        clock.advance(DAY)

        store.prune(before=clock.now() - MINUTE, limit=10)

        add(store, *rated(2))
        assert len(worker.run()) == 1

    def test_a_key_whose_window_is_open_is_not_pruned(self, store, clock, worker):
        store.set_limits({OTHER: 1})
        add(store, *rated(1, OTHER))
        worker.run()
        clock.advance(59 * MINUTE)

        store.prune(before=clock.now(), limit=10)

        add(store, *rated(1, OTHER))
        assert worker.run() == []

    def test_a_key_with_a_blocked_run_stays(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *rated(2))
        worker.run()
        clock.advance(DAY)

        store.prune(before=clock.now(), limit=10)

        assert turn(store, clock) == 1


class TestRatesSweeping:
    """A blocked run without a turn gets one."""

    def test_a_sweep_does_not_change_runs_with_a_turn(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *rated(3))
        worker.claim()
        clock.advance(HOUR)

        assert store.sweep(now=clock.now(), limit=10) == 0
        assert next_start_at(store) == NOON + MINUTE

    def test_a_sweep_also_finds_runs_that_wait_for_a_limit(self, store, clock, worker):
        keys = [f"account/minute:send_email={n}" for n in range(5)]
        store.set_limits({"account/minute:send_email": 1, "queue:z": 1})
        for key in keys:
            add(store, *rated(2, key))
        add(store, *rated(2, "queue:z"))
        claims = worker.claim(100)
        store.complete(next(c for c in claims if c.limit_keys == ("queue:z",)), now=clock.now())

        assert sum(store.sweep(now=clock.now(), limit=2) for _ in range(4)) == 1


def test_the_end_of_a_run_with_a_rate_needs_no_lock(store, clock, worker):
    """Its end frees no slot, so no run can wait for it."""
    store.set_limits({KEY: 1})
    add(store, *rated(1))

    assert worker.record(worker.claim_one(), Succeeded()) == []
    assert next_start_at(store) is None
