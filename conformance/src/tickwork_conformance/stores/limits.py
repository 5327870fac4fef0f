import pytest

from tickwork._domain.identity import ScheduleId
from tickwork._domain.limits.limits import one_at_a_time
from tickwork._domain.runs.outcome import (
    Canceled,
    Failed,
    Interrupted,
    Postponed,
    Skipped,
    Snoozed,
    Succeeded,
)
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import LimitRow
from tickwork_conformance.builders import (
    MINUTE,
    NOON,
    a_run,
    add,
    crashed,
    ids,
    in_phase,
    the_run,
)

KEY = "job:send_email"
QUEUE_KEY = "queue:default"
SCHEDULE_KEY = one_at_a_time(ScheduleId("019cb0d2-0000-7000-8000-000000000001"))


def limited(count: int, *keys: str, **given: object) -> list[NewRun]:
    return [a_run(limit_keys=keys or (KEY,), **given) for _ in range(count)]


class TestLimitsLimits:
    """A limit of n is never exceeded, by any number of workers."""

    def test_no_more_than_n_run_at_a_time(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *(runs := limited(5)))

        claims = worker.claim()

        assert ids(claims) == ids(runs[:2])

    def test_the_limit_holds_for_two_workers(self, store, worker, other_worker):
        store.set_limits({KEY: 2})
        add(store, *limited(5))
        worker.claim()

        assert other_worker.claim() == []

    def test_workers_share_the_free_slots(self, store, worker, other_worker):
        store.set_limits({KEY: 3})
        add(store, *(runs := limited(5)))

        assert ids(worker.claim(2)) == ids(runs[:2])
        assert ids(other_worker.claim(2)) == [runs[2].id]

    def test_a_blocked_run_names_the_full_limit(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(2)))

        worker.claim()

        blocked = the_run(store, runs[1])
        assert (blocked.phase, blocked.blocked_on) == (Phase.BLOCKED, KEY)
        assert (blocked.status, blocked.attempt, blocked.token) == (RunStatus.PENDING, 0, 0)

    @pytest.mark.parametrize("limits", [{}, {KEY: 0}], ids=["no row", "nought"])
    def test_a_missing_limit_or_zero_is_no_limit(self, store, worker, limits):
        store.set_limits(limits)
        add(store, *(runs := limited(5)))

        assert ids(worker.claim()) == ids(runs)

    def test_slots_taken_before_the_limit_was_set_count(self, store, worker):
        add(store, *limited(2))
        worker.claim(1)
        store.set_limits({KEY: 1})

        assert worker.claim() == []

    def test_values_of_one_limit_are_counted_separately(self, store, worker):
        store.set_limits({"account_id:send_email": 1})
        for account in (1, 2):
            add(store, *limited(2, f"account_id:send_email={account}"))

        claims = worker.claim()

        assert [claim.limit_keys for claim in claims] == [
            ("account_id:send_email=1",),
            ("account_id:send_email=2",),
        ]

    def test_values_are_equal_only_letter_by_letter(self, store, worker):
        store.set_limits({"name:send_email": 1})
        keys = [f'name:send_email="{name}"' for name in ("zoe", "Zoe", "zoé", "zoe=1")]
        add(store, *(a_run(limit_keys=(key,)) for key in keys))

        assert len(worker.claim()) == 4
        assert store.count_taken(keys) == dict.fromkeys(keys, 1)

    def test_only_runs_with_the_key_count(self, store, worker):
        store.set_limits({QUEUE_KEY: 1})
        add(
            store,
            first := a_run(limit_keys=(QUEUE_KEY,), job="resize", tenant="acme"),
            a_run(limit_keys=(QUEUE_KEY,), job="sweep", tenant="zoo"),
        )

        assert ids(worker.claim()) == [first.id]

    def test_a_run_needs_room_in_all_of_its_limits(self, store, worker):
        store.set_limits({KEY: 5, QUEUE_KEY: 1})
        add(store, *(runs := limited(2, KEY, QUEUE_KEY)))

        assert ids(worker.claim()) == [runs[0].id]
        assert the_run(store, runs[1]).blocked_on == QUEUE_KEY

    def test_a_blocked_run_takes_no_slot_of_its_other_limits(self, store, worker):
        store.set_limits({KEY: 5, QUEUE_KEY: 1})
        add(store, *limited(3, KEY, QUEUE_KEY))

        worker.claim()

        assert store.count_taken([KEY, QUEUE_KEY]) == {KEY: 1, QUEUE_KEY: 1}

    def test_a_blocked_run_does_not_block_its_other_limits(self, store, worker):
        store.set_limits({KEY: 2, QUEUE_KEY: 1})
        add(store, *limited(2, KEY, QUEUE_KEY), free := a_run(limit_keys=(KEY,)))

        assert free.id in ids(worker.claim())


class TestLimitsHeadOfLine:
    """Runs that wait for a limit do not delay runs without a limit."""

    @pytest.mark.parametrize("limit", [1, 2, 10])
    def test_a_run_without_a_limit_is_claimed_behind_blocked_runs(self, store, worker, limit):
        store.set_limits({KEY: 1})
        add(store, *limited(30, priority=1))
        worker.claim(1)
        add(store, free := a_run(priority=50))

        assert ids(worker.claim(limit)) == [free.id]

    def test_a_claim_is_not_empty_while_a_run_can_start(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *limited(20, priority=1), *(free := [a_run(priority=50) for _ in range(3)]))

        claimed = [run_id for _ in range(4) for run_id in ids(worker.claim(1))]

        assert len(claimed) == 4
        assert set(ids(free)) < set(claimed)


class TestLimitsFreedSlots:
    """A freed slot goes to a run that waits for it."""

    def test_the_end_of_a_run_unblocks_the_next_one(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(3)))
        [claim] = worker.claim()
        worker.record(claim)

        assert ids(worker.claim()) == [runs[1].id]

    def test_as_many_runs_are_unblocked_as_there_are_slots(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *(runs := limited(6)))
        claims = worker.claim()

        worker.record(claims[0])

        assert in_phase(store, Phase.READY) == [runs[2].id]
        assert in_phase(store, Phase.BLOCKED) == ids(runs[3:])

    def test_they_are_unblocked_in_the_order_of_claims(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *limited(1, priority=1))
        add(store, late := limited(1, priority=30)[0], soon := limited(1, priority=20)[0])
        [claim] = worker.claim()

        worker.record(claim)

        assert in_phase(store, Phase.READY) == [soon.id]
        assert in_phase(store, Phase.BLOCKED) == [late.id]

    @pytest.mark.parametrize(
        "outcome",
        [
            Succeeded(),
            Failed("no", retry=False),
            Failed("no"),
            Snoozed(MINUTE),
            Postponed("not now"),
            Skipped("not today"),
            Canceled(),
        ],
        ids=str,
    )
    def test_every_outcome_frees_the_slot(self, store, worker, outcome):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(2, attempts_max=3)))
        [claim] = worker.claim()

        worker.record(claim, outcome)

        assert store.count_taken([KEY]) == {KEY: 0}
        assert ids(worker.claim()) == [runs[1].id]

    def test_a_released_run_competes_again(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(2)))
        [claim] = worker.claim()

        worker.record(claim, Interrupted())

        assert store.count_taken([KEY]) == {KEY: 0}
        assert ids(worker.claim()) == [runs[0].id]

    def test_a_retry_competes_again(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(2, attempts_max=2)))
        worker.record(worker.claim()[0], Failed("no"))
        worker.claim()
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)

        assert worker.claim() == []
        assert the_run(store, runs[0]).blocked_on == KEY

    def test_reaping_a_run_frees_its_slot(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *limited(2))
        worker.claim()
        clock.advance(minutes=2)

        worker.reap()

        assert store.count_taken([KEY]) == {KEY: 0}
        assert len(worker.claim()) == 1

    def test_a_crashed_run_takes_its_slot_again(self, store, clock, worker):
        store.set_limits({KEY: 1})
        crashed(store, clock, *limited(1))

        worker.claim()

        assert store.count_taken([KEY]) == {KEY: 1}

    def test_an_outcome_under_a_lost_lease_frees_nothing(self, store, clock, worker, other_worker):
        store.set_limits({KEY: 1})
        add(store, *limited(2))
        [stale] = worker.claim()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.claim()

        worker.record(stale)

        assert store.count_taken([KEY]) == {KEY: 1}
        assert other_worker.claim() == []

    def test_a_run_that_is_blocked_by_another_limit_passes_the_slot_on(self, store, worker):
        store.set_limits({KEY: 1, QUEUE_KEY: 1})
        add(store, in_queue := a_run(limit_keys=(QUEUE_KEY,), priority=1))
        add(store, of_job := a_run(limit_keys=(KEY,), priority=1))
        add(store, both := a_run(limit_keys=(KEY, QUEUE_KEY), priority=2))
        add(store, one := a_run(limit_keys=(KEY,), priority=3))
        claims = worker.claim()
        assert ids(claims) == [in_queue.id, of_job.id]
        worker.record(claims[1])

        # `both` was unblocked first, and finds the queue full.
        claims = [*worker.claim(), *worker.claim()]

        assert ids(claims) == [one.id]
        assert the_run(store, both).blocked_on == QUEUE_KEY

    def test_no_slot_remains_when_all_runs_have_ended(self, store, clock, worker):
        store.set_limits({KEY: 2, QUEUE_KEY: 3})
        add(store, *limited(7, KEY, QUEUE_KEY), *limited(4, QUEUE_KEY))
        done = []
        for _ in range(20):
            done += worker.run(4)

        assert len(done) == 11
        assert store.count_taken([KEY, QUEUE_KEY]) == {KEY: 0, QUEUE_KEY: 0}

    @pytest.mark.parametrize("key", [KEY, SCHEDULE_KEY])
    def test_the_next_run_is_unblocked_when_an_unblocked_one_is_canceled(
        self, store, clock, worker, key
    ):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(3, key)))
        worker.record(worker.claim()[0])
        store.cancel(runs[1].id, now=clock.now())

        assert ids(worker.claim()) == [runs[2].id]


class TestLimitsOneAtATime:
    """The implicit limit of a schedule counts unfinished runs, not only running ones."""

    def test_the_implicit_limit_needs_no_row(self, store, worker):
        add(store, *(runs := limited(2, SCHEDULE_KEY)))

        assert ids(worker.claim()) == [runs[0].id]
        assert the_run(store, runs[1]).blocked_on == SCHEDULE_KEY

    @pytest.mark.parametrize("outcome", [Failed("no"), Snoozed(MINUTE)], ids=["failed", "snoozed"])
    def test_a_run_that_waits_for_its_next_attempt_keeps_its_slot(self, store, worker, outcome):
        add(store, *(runs := limited(2, SCHEDULE_KEY, attempts_max=2)))
        worker.record(worker.claim_one(), outcome)

        assert worker.claim() == []
        assert store.slot_holders(SCHEDULE_KEY) == [runs[0].id]

    def test_a_retry_needs_no_second_slot(self, store, clock, worker):
        add(store, *(runs := limited(2, SCHEDULE_KEY, attempts_max=2)))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)

        assert ids(worker.claim()) == [runs[0].id]
        assert store.count_taken([SCHEDULE_KEY]) == {SCHEDULE_KEY: 1}

    def test_slots_of_other_limits_are_freed_until_the_retry(self, store, worker):
        store.set_limits({KEY: 1})
        add(
            store, *limited(1, KEY, SCHEDULE_KEY, attempts_max=2), other := a_run(limit_keys=(KEY,))
        )
        worker.record(worker.claim()[0], Failed("no"))

        assert ids(worker.claim()) == [other.id]
        assert store.count_taken([KEY, SCHEDULE_KEY]) == {KEY: 1, SCHEDULE_KEY: 1}

    def test_the_next_run_starts_when_the_first_has_ended(self, store, clock, worker):
        add(store, *(runs := limited(2, SCHEDULE_KEY, attempts_max=2)))
        worker.record(worker.claim()[0], Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        worker.record(worker.claim()[0])

        assert ids(worker.claim()) == [runs[1].id]

    def test_the_next_run_starts_when_the_first_was_canceled_while_it_waited(
        self, store, clock, worker
    ):
        add(store, *(runs := limited(2, SCHEDULE_KEY, attempts_max=2)))
        worker.record(worker.claim()[0], Failed("no"))
        worker.claim()

        store.cancel(runs[0].id, now=clock.now())

        assert ids(worker.claim()) == [runs[1].id]

    def test_a_reaped_run_keeps_its_slot(self, store, clock, worker):
        add(store, *(runs := limited(2, SCHEDULE_KEY)))
        worker.claim()
        clock.advance(minutes=2)
        worker.reap()

        assert ids(worker.claim()) == [runs[0].id]


class TestLimitsChangingLimits:
    """Code sets a limit, an operator can override it. Both apply from the next claim on."""

    def test_the_limit_that_code_defines(self, store):
        store.set_limits({"queue:b": 2, "job:a": 1})

        assert store.list_limits() == [LimitRow("job:a", 1), LimitRow("queue:b", 2)]

    def test_setting_a_limit_again_does_not_change_the_others(self, store):
        store.set_limits({"job:a": 1, "job:b": 1})
        store.set_limits({"job:b": 3})

        assert store.list_limits() == [LimitRow("job:a", 1), LimitRow("job:b", 3)]

    def test_setting_no_limits(self, store):
        store.set_limits({})

        assert store.list_limits() == []

    def test_an_override_takes_precedence_over_code(self, store, clock, worker):
        store.set_limits({KEY: 1})
        store.change_limit(KEY, 3, now=clock.now())
        store.set_limits({KEY: 2})
        add(store, *limited(5))

        assert len(worker.claim()) == 3
        assert store.list_limits() == [LimitRow(KEY, 2, 3)]

    def test_a_reset_removes_the_override(self, store, clock, worker):
        store.set_limits({KEY: 1})
        store.change_limit(KEY, 3, now=clock.now())
        store.change_limit(KEY, None, now=clock.now())
        add(store, *limited(5))

        assert len(worker.claim()) == 1
        assert store.list_limits() == [LimitRow(KEY, 1)]

    def test_an_override_can_limit_what_code_does_not(self, store, clock, worker):
        store.change_limit(KEY, 2, now=clock.now())
        add(store, *limited(5))

        assert len(worker.claim()) == 2
        [row] = store.list_limits()
        assert (row.name, row.override, row.in_force) == (KEY, 2, 2)

    def test_a_higher_override_unblocks_waiting_runs(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(5)))
        worker.claim()

        store.change_limit(KEY, 3, now=clock.now())

        assert ids(worker.claim()) == ids(runs[1:3])

    def test_a_higher_limit_in_code_unblocks_waiting_runs(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(5)))
        worker.claim()

        store.set_limits({KEY: 3})

        assert ids(worker.claim()) == ids(runs[1:3])

    def test_a_higher_limit_counts_for_each_value(self, store, clock, worker):
        name = "account_id:send_email"
        store.set_limits({name: 1, f"{name}s": 1})
        add(store, *limited(2, f"{name}=1"), *limited(2, f"{name}=2"), *limited(2, f"{name}s=1"))
        worker.claim()

        store.change_limit(name, 2, now=clock.now())

        assert sorted(claim.limit_keys for claim in worker.claim()) == [
            (f"{name}=1",),
            (f"{name}=2",),
        ]

    def test_a_removed_limit_unblocks_all_runs(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(5)))
        worker.claim()

        store.change_limit(KEY, 0, now=clock.now())

        assert ids(worker.claim()) == ids(runs[1:])

    def test_a_lower_limit_does_not_stop_running_runs(self, store, clock, worker):
        store.set_limits({KEY: 3})
        add(store, *limited(5))
        claims = worker.claim()

        store.change_limit(KEY, 1, now=clock.now())

        assert [worker.record(claim) for claim in claims[:2]] == [[], []]
        assert worker.claim() == []

    def test_a_lower_limit_counts_when_they_have_ended(self, store, clock, worker):
        store.set_limits({KEY: 3})
        add(store, *limited(5))
        claims = worker.claim()
        store.change_limit(KEY, 1, now=clock.now())
        for claim in claims:
            worker.record(claim)

        assert len(worker.claim()) == 1


class TestLimitsSweeping:
    """Completing a run in a caller's transaction unblocks no run; a sweep does."""

    def test_completing_frees_the_slot_and_unblocks_no_run(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(2)))
        [claim] = worker.claim()

        store.complete(claim, now=clock.now())

        assert store.count_taken([KEY]) == {KEY: 0}
        assert the_run(store, runs[1]).phase is Phase.BLOCKED

    def test_a_sweep_unblocks_as_many_runs_as_there_are_slots(self, store, clock, worker):
        store.set_limits({KEY: 2})
        add(store, *(runs := limited(5)))
        for claim in worker.claim():
            store.complete(claim, now=clock.now())

        swept = store.sweep(now=clock.now(), limit=10)

        assert swept == 2
        assert in_phase(store, Phase.READY) == ids(runs[2:4])
        assert in_phase(store, Phase.BLOCKED) == [runs[4].id]

    def test_a_slot_of_a_schedule_is_freed_too(self, store, clock, worker):
        add(store, *(runs := limited(2, SCHEDULE_KEY)))
        store.complete(worker.claim()[0], now=clock.now())

        assert store.sweep(now=clock.now(), limit=10) == 1
        assert ids(worker.claim()) == [runs[1].id]

    def test_without_a_free_slot_no_run_is_unblocked(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *limited(3))
        worker.claim()

        assert store.sweep(now=clock.now(), limit=10) == 0

    def test_a_sweep_without_blocked_runs(self, store, clock):
        add(store, a_run(), a_run(due_at=NOON + MINUTE))

        assert store.sweep(now=clock.now(), limit=10) == 0


class TestLimitsSlotHolders:
    """The taken slots, and the runs that hold them."""

    def test_the_number_of_taken_slots(self, store, worker):
        add(store, *limited(3), *limited(1, QUEUE_KEY))
        worker.claim(2)

        assert store.count_taken([KEY, QUEUE_KEY, "job:other"]) == {
            KEY: 2,
            QUEUE_KEY: 0,
            "job:other": 0,
        }

    def test_no_keys_have_no_slots(self, store):
        assert store.count_taken([]) == {}

    def test_the_runs_that_hold_slots(self, store, worker):
        add(store, *(runs := limited(5)))
        worker.claim(3)

        assert sorted(store.slot_holders(KEY)) == ids(runs[:3])
        assert len(store.slot_holders(KEY, limit=2)) == 2
        assert store.slot_holders("job:other") == []
