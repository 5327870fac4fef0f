from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import pytest

from tickwork._domain.firings import Gap
from tickwork._domain.identity import RunId, ScheduleId, firing_id
from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin, ScheduleRow
from tickwork._domain.limits.limits import Limit, Unique, UniqueKey, held_key
from tickwork._domain.runs.outcome import Failed, Interrupted, Outcome, Skipped, Succeeded
from tickwork._domain.runs.retry import Fixed
from tickwork._domain.runs.run import Claim, Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.tick import (
    MISSED,
    NOT_UNIQUE,
    PAUSED,
    REPLACED,
    STILL_RUNNING,
    STILL_WAITING,
    Move,
    TickPlan,
    new_skip,
    plan_tick,
)
from tickwork._stores.contract import LogLine, NewSchedule, Planner, Store
from tickwork.errors import StoreBusy
from tickwork.testing.clock import ManualClock
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    StoreDriver,
    a_fired_run,
    a_job,
    a_run,
    a_schedule,
    add,
    added,
    all_runs,
    an_id,
    ids,
    settled,
    the_run,
    tick,
)

MINUTELY = Interval(length=MINUTE, anchor=NOON)
NOTHING = TickPlan([], [], [], [], [])


def fire(
    store: Store,
    clock: ManualClock,
    plan: Planner,
    *,
    keys: Collection[str] = (),
    limit: int = 100,
    jobs: Collection[str] | None = None,
    seen_after: datetime | None = None,
) -> TickPlan:
    """One tick with a plan that the test makes."""
    return store.fire(
        now=clock.now(),
        limit=limit,
        jobs=jobs,
        keys_of=lambda _: keys,
        plan=plan,
        seen_after=seen_after,
    )


def due_rows(store: Store, clock: ManualClock, **given: object) -> list[str]:
    """The names of the schedules that a tick is given, in their order."""
    seen: list[ScheduleRow] = []

    def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
        seen.extend(rows)
        return NOTHING

    fire(store, clock, plan, **given)  # type: ignore[arg-type]  # by name
    return [row.spec.name for row in seen]


def minute(number: int) -> datetime:
    return NOON + number * MINUTE


class TestFiringsFiring:
    """An instant of a schedule gives exactly one run, however many processes tick."""

    def test_a_due_schedule_adds_a_run(self, store, clock, worker):
        row = added(store, tenant="acme", target="image-42", args='{"width": 80}')

        plan = tick(store, clock)

        [run] = all_runs(store)
        assert ids(plan.runs) == [run.id] == [firing_id(row.id, NOON)]
        assert (run.schedule, run.nominal_at, run.tenant) == ("digest", NOON, "acme")
        assert (run.job, run.args, run.target) == ("send_email", '{"width": 80}', "image-42")
        assert ids(worker.claim()) == [run.id]

    def test_the_schedule_gets_its_next_instant(self, store, clock):
        row = added(store)

        tick(store, clock)

        assert store.get_schedule("", "digest") == replace(
            row, next_due_at=minute(1), last_fired_at=NOON
        )

    def test_a_second_tick_finds_nothing(self, store, clock):
        added(store)
        tick(store, clock)

        plan = tick(store, clock)

        assert plan == NOTHING
        assert len(all_runs(store)) == 1

    def test_an_instant_is_not_fired_again_when_its_run_has_ended(self, store, clock, worker):
        added(store)
        tick(store, clock)
        worker.run()

        tick(store, clock)

        assert len(all_runs(store)) == 1

    def test_each_instant_adds_a_run(self, store, clock, worker):
        added(store)
        for _ in range(5):
            tick(store, clock)
            worker.run()
            clock.advance(minutes=1)

        assert [run.nominal_at for run in all_runs(store)] == [minute(n) for n in range(5)]

    def test_nothing_is_due(self, store, clock):
        row = added(store, next_due_at=NOON + SECOND)

        assert tick(store, clock) == NOTHING
        assert store.get_schedule("", "digest") == row

    def test_a_schedule_without_a_next_instant_is_finished(self, store, clock):
        added(store, until=minute(1))
        for _ in range(4):
            tick(store, clock)
            clock.advance(minutes=1)

        row = store.get_schedule("", "digest")
        assert (row.next_due_at, row.last_fired_at) == (None, minute(1))

    def test_a_run_that_jitter_delays_waits(self, store, clock):
        added(store, jitter=HOUR)

        tick(store, clock)

        [run] = all_runs(store)
        assert (run.phase, run.nominal_at) == (Phase.WAITING, NOON)
        assert NOON < run.due_at < NOON + HOUR

    def test_hundreds_in_one_tick(self, store, clock):
        for number in range(300):
            added(store, f"schedule-{number}")

        plan = tick(store, clock, limit=1000)

        assert len(plan.runs) == len(all_runs(store)) == 300
        assert tick(store, clock, limit=1000) == NOTHING

    def test_schedules_that_move_together_and_others_that_do_not(self, store, clock):
        rows = [
            added(store, f"schedule-{number}", next_due_at=minute(-max(0, number - 40)), grace=HOUR)
            for number in range(45)
        ]

        plan = tick(store, clock)

        assert len(plan.runs) == 45
        assert {row.id: row.last_fired_at for row in store.list_schedules()} == {
            row.id: row.next_due_at if row.next_due_at == NOON else NOON for row in rows
        }
        assert {row.next_due_at for row in store.list_schedules()} == {minute(1)}


class TestFiringsWhatIsDue:
    """A tick is given the schedules that are due and that it may fire, the oldest first."""

    def test_schedules_come_by_due_time(self, store, clock):
        for name, due_at in (("b", minute(-1)), ("c", NOON), ("a", minute(-2)), ("d", minute(1))):
            added(store, name, next_due_at=due_at)

        assert due_rows(store, clock) == ["a", "b", "c"]

    def test_no_more_than_the_limit(self, store, clock):
        for number in range(5):
            added(store, f"schedule-{number}", next_due_at=minute(-number))

        assert due_rows(store, clock, limit=2) == ["schedule-4", "schedule-3"]

    def test_only_schedules_of_jobs_that_the_ticker_knows(self, store, clock):
        added(store, "ours", job="sweep")
        added(store, "theirs", job="Sweep")

        assert due_rows(store, clock, jobs=["sweep", "resize"]) == ["ours"]
        assert due_rows(store, clock, jobs=[]) == []

    def test_a_schedule_of_an_unknown_job_stays_due(self, store, clock):
        row = added(store, job="theirs")

        tick(store, clock, a_job("ours"))

        assert store.get_schedule("", "digest") == row

    def test_a_paused_schedule_is_not_due(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now())

        assert due_rows(store, clock) == []

    def test_a_resumed_schedule_is_due(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now())
        clock.advance(hours=1)
        store.resume_schedule(row.id, next_due_at=minute(61))
        assert due_rows(store, clock) == []
        clock.advance(minutes=1)

        assert due_rows(store, clock) == ["digest"]

    def test_a_pause_may_end_by_itself(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now(), until=minute(60), next_due_at=minute(61))
        clock.advance(hours=1)
        assert tick(store, clock) == NOTHING
        clock.advance(minutes=1)

        plan = tick(store, clock)

        assert [run.nominal_at for run in plan.runs] == [minute(61)]
        fired = [run.nominal_at for run in all_runs(store) if run.status is RunStatus.PENDING]
        assert fired == [minute(61)]
        assert store.get_schedule("", "digest").is_paused is False

    def test_the_firings_of_a_pause_that_ended_are_counted(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now(), until=minute(60), next_due_at=minute(61))
        clock.set(minute(61))

        tick(store, clock)

        [skip] = [run for run in all_runs(store) if run.status is RunStatus.SKIPPED]
        assert (skip.nominal_at, skip.last_nominal_at) == (minute(1), minute(60))
        assert (skip.instants, skip.reason) == (60, PAUSED)

    def test_dropped_firings_are_stored_and_end_the_pause(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now())
        skip = new_skip(row, Gap(NOON, minute(9), 10), PAUSED)

        assert store.drop_firings(skip, Move(row.id, NOON, minute(10), minute(9)), now=minute(9))

        [stored] = all_runs(store)
        assert (stored.status, stored.id, stored.schedule) == (RunStatus.SKIPPED, skip.id, "digest")
        assert (stored.instants, stored.reason, stored.ended_at) == (10, PAUSED, minute(9))
        after = store.get_schedule("", "digest")
        assert (after.is_paused, after.next_due_at) == (False, minute(10))
        assert after.last_fired_at == minute(9)

    def test_firings_of_a_schedule_that_moved_are_not_dropped(self, store, clock):
        row = added(store)
        tick(store, clock)
        fired = store.get_schedule("", "digest")
        skip = new_skip(row, Gap(NOON, NOON, 1), PAUSED)

        assert not store.drop_firings(skip, Move(row.id, NOON, minute(9), NOON), now=NOON)

        assert store.get_schedule("", "digest") == fired
        assert [run.status for run in all_runs(store)] == [RunStatus.PENDING]

    def test_a_retired_schedule_is_not_due(self, store, clock):
        added(store, "retired", now=minute(-10))
        seen = added(store, "seen", now=minute(-10))
        store.stamp_seen(jobs=[], schedules=[seen.id], now=minute(-5))
        added(store, "api", now=minute(-10), origin=ScheduleOrigin.API)

        assert sorted(due_rows(store, clock, seen_after=minute(-5))) == ["api", "seen"]
        assert due_rows(store, clock, seen_after=minute(-4)) == ["api"]
        assert len(due_rows(store, clock, seen_after=minute(-10))) == 3
        assert len(due_rows(store, clock)) == 3

    def test_a_retired_schedule_is_due_when_it_is_seen_again(self, store, clock):
        row = added(store, now=minute(-10))
        assert tick(store, clock, seen_after=minute(-5)) == NOTHING
        assert store.get_schedule("", "digest") == row

        store.stamp_seen(jobs=[], schedules=[row.id], now=clock.now())

        assert len(tick(store, clock, seen_after=minute(-5)).runs) == 1

    def test_retired_schedules_do_not_count_for_the_limit(self, store, clock):
        for number in range(3):
            added(store, f"retired {number}", now=minute(-10), next_due_at=minute(-9))
        added(store, "seen")

        assert due_rows(store, clock, limit=2, seen_after=minute(-5)) == ["seen"]

    @pytest.mark.parametrize("head", ["unknown", "retired"])
    def test_many_unknown_or_retired_schedules_hide_none(self, store, clock, head):
        """They are more than a tick reads before it searches by job."""
        job = {"unknown": "theirs", "retired": "ours"}[head]
        new = [
            NewSchedule(ScheduleId(an_id()), a_schedule(f"{head} {number}", job=job), minute(-9))
            for number in range(70)
        ]
        store.add_schedules(new, now=minute(-10))
        for name, due_at in (("b", minute(-1)), ("c", NOON), ("a", minute(-2))):
            added(store, name, job="ours", next_due_at=due_at, origin=ScheduleOrigin.API)
        options = {"seen_after": minute(-5), "jobs": ["ours", "unknown"]}

        assert due_rows(store, clock, limit=2, **options) == ["a", "b"]
        assert due_rows(store, clock, limit=9, **options) == ["a", "b", "c"]
        assert store.next_firing_at(**options) == minute(-2)
        if head == "retired":
            assert due_rows(store, clock, limit=2, seen_after=minute(-5)) == ["a", "b"]

    def test_a_pause_ends_at_its_time(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now(), until=minute(60), next_due_at=minute(0))

        clock.advance(minutes=59)
        assert due_rows(store, clock) == []
        clock.advance(minutes=1)
        assert due_rows(store, clock) == ["digest"]


class TestFiringsTakenKeys:
    """The planner gets the keys that are taken at that moment."""

    def taken(self, store: Store, clock: ManualClock, *keys: str) -> set[str]:
        found: set[str] = set()

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            found.update(taken)
            return NOTHING

        fire(store, clock, plan, keys=keys)
        return found

    def test_overlap_keys_of_unfinished_runs(self, store, clock):
        row = added(store)
        add(store, a_run(overlap_key=held_key(row.id)))

        assert self.taken(store, clock, held_key(row.id), "held:other") == {held_key(row.id)}

    def test_unique_keys_that_are_protected(self, store, clock):
        added(store)
        add(
            store,
            a_run(unique=UniqueKey("free when it ends", None)),
            a_run(unique=UniqueKey("in its window", NOON + HOUR)),
            a_run(unique=UniqueKey("past its window", NOON - HOUR)),
            a_run(unique=UniqueKey(f"held:{'0' * 32}", None)),  # of a job with this name
        )

        taken = self.taken(
            store,
            clock,
            *("free when it ends", "in its window", "past its window", "unheard of"),
            *(f"held:{'0' * 32}", f"waiting:{'0' * 32}"),
        )

        assert taken == {"free when it ends", "in its window", f"held:{'0' * 32}"}

    def test_keys_of_finished_runs_are_free_unless_their_window_is_open(self, store, clock, worker):
        row = added(store)
        add(
            store,
            a_run(overlap_key=held_key(row.id)),
            a_run(unique=UniqueKey("free when it ends", None)),
            a_run(unique=UniqueKey("in its window", NOON + HOUR)),
        )
        worker.run()

        taken = self.taken(store, clock, held_key(row.id), "free when it ends", "in its window")

        assert taken == {"in its window"}

    def test_no_other_keys(self, store, clock):
        added(store)
        add(store, a_run(unique=UniqueKey("taken", None)))

        assert self.taken(store, clock) == set()


class TestFiringsOneTransaction:
    """A tick happens as a whole, or not at all."""

    def test_a_planner_that_fails_leaves_everything_as_it_was(self, store, clock):
        row = added(store)

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fire(store, clock, plan)

        assert store.get_schedule("", "digest") == row
        assert len(tick(store, clock).runs) == 1

    def test_a_plan_that_wants_a_taken_key_is_not_carried_out(self, store, clock):
        rows = [added(store, "first"), added(store, "second")]
        add(store, holder := a_run(overlap_key=held_key(rows[1].id)))

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            jobs = {"send_email": a_job()}
            return plan_tick(rows, now=NOON, jobs=jobs, rule_of=lambda _: MINUTELY)

        with suppress(Exception):  # a store may fire the other schedule alone
            fire(store, clock, plan)

        assert [run.id for run in all_runs(store) if run.schedule != "first"] == [holder.id]
        assert store.list_schedules()[1] == rows[1]

    def test_a_plan_for_a_schedule_that_has_moved_is_not_carried_out(self, store, clock):
        rows = [added(store, "first"), added(store, "second")]

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            jobs = {"send_email": a_job()}
            made = plan_tick(rows, now=NOON, jobs=jobs, rule_of=lambda _: MINUTELY)
            first, second = made.moves
            return made._replace(moves=[first, second._replace(due_at=minute(-1))])

        with pytest.raises((StoreBusy, AssertionError)):
            fire(store, clock, plan)

        assert all_runs(store) == []
        assert store.list_schedules() == rows

    def test_a_plan_for_many_schedules_that_have_moved_is_not_carried_out(self, store, clock):
        rows = [added(store, f"schedule-{number:02}") for number in range(20)]

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            jobs = {"send_email": a_job()}
            made = plan_tick(rows, now=NOON, jobs=jobs, rule_of=lambda _: MINUTELY)
            return made._replace(moves=[move._replace(due_at=minute(-1)) for move in made.moves])

        with pytest.raises((StoreBusy, AssertionError)):
            fire(store, clock, plan)

        assert all_runs(store) == []
        assert store.list_schedules() == rows

    def test_a_schedule_that_cannot_be_fired_stays_due(self, store, clock):
        row = added(store)

        def no_rule(row: ScheduleRow) -> Interval:
            raise ValueError(row.spec.rule)

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            jobs = {"send_email": a_job()}
            return plan_tick(rows, now=NOON, jobs=jobs, rule_of=no_rule)

        carried = fire(store, clock, plan)

        assert [unfired.schedule_id for unfired in carried.unfired] == [row.id]
        assert store.get_schedule("", "digest") == row

    def test_the_last_fired_instant_never_moves_back(self, store, clock):
        row = added(store)
        tick(store, clock)
        store.resume_schedule(row.id, next_due_at=minute(-5))

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            return NOTHING._replace(moves=[Move(row.id, minute(-5), minute(1), minute(-5))])

        fire(store, clock, plan)

        moved = store.get_schedule("", "digest")
        assert (moved.next_due_at, moved.last_fired_at) == (minute(1), NOON)

    def test_a_move_without_a_firing_keeps_the_last_fired_instant(self, store, clock):
        row = added(store)

        def plan(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            return NOTHING._replace(moves=[Move(row.id, NOON, None, None)])

        fire(store, clock, plan)

        moved = store.get_schedule("", "digest")
        assert (moved.next_due_at, moved.last_fired_at) == (None, None)


class TestFiringsMisfires:
    """Missed instants are one row."""

    def missed(self, store: Store) -> list[Run]:
        return [run for run in all_runs(store) if run.reason == MISSED]

    def test_misfire_one_adds_one_run_for_missed_instants(self, store, clock):
        added(store, overlap=Overlap.ALLOW)
        clock.advance(hours=1)

        tick(store, clock)

        [gap] = self.missed(store)
        assert (gap.nominal_at, gap.last_nominal_at, gap.instants) == (NOON, minute(57), 58)
        fired = [run.nominal_at for run in all_runs(store) if not run.is_finished]
        assert sorted(map(str, fired)) == [str(minute(n)) for n in (58, 59, 60)]

    def test_misfire_skip_adds_no_run_for_missed_instants(self, store, clock):
        added(store, misfire=Misfire.SKIP, overlap=Overlap.ALLOW)
        clock.advance(hours=1)

        tick(store, clock)

        [gap] = self.missed(store)
        assert (gap.nominal_at, gap.last_nominal_at, gap.instants) == (NOON, minute(58), 59)

    def test_misfire_all_adds_a_run_for_each_missed_instant(self, store, clock):
        added(store, misfire=Misfire.ALL, overlap=Overlap.ALLOW)
        clock.advance(hours=1)

        tick(store, clock)

        assert self.missed(store) == []
        assert len(all_runs(store)) == 61

    def test_the_row_has_the_schedule_and_the_reason(self, store, clock):
        added(store, misfire=Misfire.SKIP, tenant="acme", queue="emails")
        clock.advance(hours=1)

        tick(store, clock)

        [gap] = self.missed(store)
        assert (gap.status, gap.phase, gap.ended_at) == (RunStatus.SKIPPED, None, clock.now())
        assert (gap.schedule, gap.job, gap.tenant, gap.queue) == (
            "digest",
            "send_email",
            "acme",
            "emails",
        )
        assert (gap.attempt, gap.token, gap.result) == (0, 0, None)
        assert store.run_record(gap.id).attempts == []


class TestFiringsOverlap:
    """What happens when a schedule is due again before its last run has finished."""

    def reasons(self, store: Store) -> list[str]:
        return [run.reason for run in all_runs(store) if run.status is RunStatus.SKIPPED]

    def test_skip(self, store, clock, worker):
        added(store, overlap=Overlap.SKIP)
        tick(store, clock)
        claim = worker.claim_one(lease=HOUR)
        clock.advance(minutes=1)

        assert tick(store, clock).runs == []
        assert self.reasons(store) == [STILL_RUNNING]

        worker.record(claim)
        clock.advance(minutes=1)
        assert len(tick(store, clock).runs) == 1

    def test_skip_counts_a_run_that_waits_for_its_retry(self, store, clock, worker):
        added(store, overlap=Overlap.SKIP)
        tick(store, clock)
        worker.record(worker.claim_one(), Failed("no", retry=True))
        clock.advance(minutes=1)

        assert tick(store, clock).runs == []
        assert self.reasons(store) == [STILL_RUNNING]

    def test_queue_one(self, store, clock, worker):
        added(store, overlap=Overlap.QUEUE_ONE)
        tick(store, clock)
        first = worker.claim_one(lease=HOUR)
        clock.advance(minutes=1)
        [second] = tick(store, clock).runs
        clock.advance(minutes=1)

        assert tick(store, clock).runs == []
        assert self.reasons(store) == [STILL_WAITING]
        assert worker.claim() == []

        worker.record(first)
        assert ids(worker.claim()) == [second.id]

    def test_queue_all(self, store, clock, worker):
        added(store, overlap=Overlap.QUEUE_ALL)
        queued = []
        for _ in range(3):
            queued += ids(tick(store, clock).runs)
            clock.advance(minutes=1)

        ran = [run_id for _ in range(5) for run_id in worker.run()]

        assert ran == queued
        assert self.reasons(store) == []

    def test_queue_all_runs_one_at_a_time(self, store, clock, worker):
        added(store, overlap=Overlap.QUEUE_ALL)
        for _ in range(3):
            tick(store, clock)
            clock.advance(minutes=1)

        assert len(worker.claim()) == 1
        assert worker.claim() == []

    def test_cancel_running(self, store, clock, worker):
        added(store, overlap=Overlap.CANCEL_RUNNING)
        tick(store, clock)
        first = worker.claim_one(lease=HOUR)
        clock.advance(minutes=1)

        [second] = tick(store, clock).runs

        assert worker.beat(first).cancel_requested == [first.run_id]
        assert the_run(store, second).cancel_requested_at is None
        assert worker.claim() == []
        worker.record(first)
        assert ids(worker.claim()) == [second.id]

    def test_cancel_running_cancels_a_run_that_waits_for_its_retry(self, store, clock, worker):
        added(store, overlap=Overlap.CANCEL_RUNNING)
        tick(store, clock, a_job(retry=Fixed(attempts_max=3, delay=HOUR)))
        first = worker.claim_one()
        worker.record(first, Failed("full disk"))
        assert the_run(store, first).status is RunStatus.FAILED
        clock.advance(minutes=1)

        [second] = tick(store, clock).runs

        assert the_run(store, first).status is RunStatus.CANCELED
        assert the_run(store, first).reason == REPLACED
        assert ids(worker.claim()) == [second.id]

    def test_cancel_running_cancels_a_run_that_waits_for_a_slot(self, store, clock, worker):
        job = a_job(limits=(Limit(1),))
        store.set_limits(job.slots_by_limit())
        added(store, overlap=Overlap.CANCEL_RUNNING)
        add(store, job.new_run(RunId(an_id()), now=NOON, due_at=NOON, args="{}"))
        [other] = worker.claim(lease=HOUR)
        [first] = tick(store, clock, job).runs
        assert worker.claim() == []
        clock.advance(minutes=1)

        [second] = tick(store, clock, job).runs

        assert the_run(store, first).status is RunStatus.CANCELED
        worker.record(other)
        assert ids(worker.claim()) == [second.id]

    def test_cancel_running_cancels_a_run_that_waits_for_its_time(self, store, clock, worker):
        added(store, overlap=Overlap.CANCEL_RUNNING, jitter=HOUR)
        [first] = tick(store, clock).runs
        clock.advance(minutes=1)

        [second] = tick(store, clock).runs

        assert the_run(store, first).status is RunStatus.CANCELED
        assert the_run(store, second).status is RunStatus.PENDING

    def test_cancel_running_starts_the_last_of_several_instants(self, store, clock, worker):
        added(store, overlap=Overlap.CANCEL_RUNNING, grace=HOUR)
        clock.advance(minutes=3)

        [run] = tick(store, clock).runs

        assert run.nominal_at == minute(3)
        assert self.reasons(store) == [REPLACED]

    def test_cancel_running_cancels_no_run_of_another_schedule(self, store, clock, worker):
        added(store, overlap=Overlap.CANCEL_RUNNING)
        others = [
            a_fired_run("digest", tenant="acme"),
            a_fired_run("report"),
            a_run(),
        ]
        add(store, *others)
        claims = worker.claim()

        tick(store, clock)

        assert worker.beat(*claims).cancel_requested == []

    def test_allow(self, store, clock, worker):
        added(store, overlap=Overlap.ALLOW)
        for _ in range(3):
            tick(store, clock)
            clock.advance(minutes=1)

        assert len(worker.claim()) == 3
        assert self.reasons(store) == []

    def test_a_unique_job_is_skipped_while_its_key_is_protected(self, store, clock, worker):
        added(store, overlap=Overlap.ALLOW)
        job = a_job(unique=Unique(key="one"))
        tick(store, clock, job)
        clock.advance(minutes=1)

        assert tick(store, clock, job).runs == []
        assert self.reasons(store) == [NOT_UNIQUE]

        worker.run()
        clock.advance(minutes=1)
        assert len(tick(store, clock, job).runs) == 1


class TestFiringsSkipsInARow:
    """Equal skips of a schedule, one after the other, are one row that counts them."""

    def skips(self, store: Store) -> list[tuple[str, datetime | None, datetime | None, int]]:
        rows = [run for run in all_runs(store) if run.status is RunStatus.SKIPPED]
        return sorted(
            ((run.reason, run.nominal_at, run.last_nominal_at, run.instants) for run in rows),
            key=lambda row: str(row[1]),
        )

    def skip_next(
        self, store: Store, clock: ManualClock, worker: StoreDriver, reason: str = "closed"
    ) -> None:
        """Fire the next instant, and let a filter skip its run."""
        tick(store, clock)
        worker.record(worker.claim_one(), Skipped(reason))
        clock.advance(minutes=1)

    def complete_next(self, store: Store, clock: ManualClock, worker: StoreDriver) -> None:
        tick(store, clock)
        assert len(worker.run()) == 1
        clock.advance(minutes=1)

    def test_skips_by_a_filter(self, store, clock, worker):
        added(store)
        for _ in range(3):
            self.skip_next(store, clock, worker)

        assert self.skips(store) == [("closed", NOON, minute(2), 3)]

    def test_log_lines_of_a_merged_skip_are_deleted(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        tick(store, clock)
        claim = worker.claim_one()
        lines = {claim.run_id: [LogLine(NOON, "INFO", "shop", "closed today")]}
        store.append_logs(lines, lines_max=10)
        worker.record(claim, Skipped("closed"))
        store.append_logs(lines, lines_max=10)

        assert store.run_record(claim.run_id) is None

        add(store, a_run(id=claim.run_id))  # no rows remain for its id
        assert store.run_record(claim.run_id).log == []

    def test_skips_by_the_overlap_rule(self, store, clock, worker):
        added(store)
        tick(store, clock)
        worker.claim_one(lease=HOUR)
        for _ in range(3):
            clock.advance(minutes=1)
            tick(store, clock)

        assert self.skips(store) == [(STILL_RUNNING, minute(1), minute(3), 3)]

    def test_skips_with_gaps_are_one_row(self, store, clock):
        added(store, misfire=Misfire.SKIP, until=minute(8))
        clock.advance(minutes=5)
        tick(store, clock, every=10 * MINUTE)
        row = store.get_schedule("", "digest")
        store.resume_schedule(row.id, next_due_at=minute(6))
        clock.advance(minutes=60)
        tick(store, clock)

        assert self.skips(store) == [(MISSED, NOON, minute(8), 4)]

    def test_the_row_is_as_old_as_its_last_skip(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        self.skip_next(store, clock, worker)

        [run] = all_runs(store)
        assert run.ended_at == minute(1)

    def test_a_run_with_another_end_begins_a_new_row(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        self.complete_next(store, clock, worker)
        self.skip_next(store, clock, worker)
        self.skip_next(store, clock, worker)

        assert [row[3] for row in self.skips(store)] == [1, 2]

    def test_another_reason_begins_a_new_row(self, store, clock, worker):
        added(store)
        for reason in ("closed", "holiday", "closed"):
            self.skip_next(store, clock, worker, reason)

        assert [(row[0], row[3]) for row in self.skips(store)] == [
            ("closed", 1),
            ("holiday", 1),
            ("closed", 1),
        ]

    def test_a_firing_between_skips_begins_a_new_row(self, store, clock):
        added(store, overlap=Overlap.ALLOW)
        for _ in range(2):
            clock.advance(minutes=10)
            tick(store, clock)

        assert self.skips(store) == [
            (MISSED, NOON, minute(7), 8),
            (MISSED, minute(11), minute(17), 7),
        ]

    def test_skips_are_merged_in_the_order_of_their_instants(self, store, clock, worker):
        added(store)
        tick(store, clock)
        worker.claim_one(lease=10 * HOUR)
        clock.advance(minutes=1)
        tick(store, clock)
        clock.advance(minutes=9)
        tick(
            store, clock
        )  # six were missed; the run for them, and two more, were skipped because one was running
        clock.advance(minutes=1)
        tick(store, clock)

        assert self.skips(store) == [
            (STILL_RUNNING, minute(1), minute(1), 1),
            (MISSED, minute(2), minute(7), 6),
            (STILL_RUNNING, minute(8), minute(11), 4),
        ]

    def test_skips_that_are_recorded_together_in_another_order(self, store, clock, worker):
        added(store, overlap=Overlap.ALLOW)
        tick(store, clock)
        clock.advance(minutes=1)
        tick(store, clock)
        steps = [settled(claim, Skipped("closed"), now=clock.now()) for claim in worker.claim()]
        assert len(steps) == 2

        store.record(sorted(steps, key=lambda step: str(step.claim.nominal_at), reverse=True))

        assert self.skips(store) == [("closed", NOON, minute(1), 2)]

    def claim_instants(
        self, store: Store, clock: ManualClock, worker: StoreDriver, count: int
    ) -> list[Claim]:
        """The claims of the next instants, in their order."""
        for _ in range(count):
            tick(store, clock)
            clock.advance(minutes=1)
        return sorted(worker.claim(lease=HOUR), key=lambda claim: str(claim.nominal_at))

    def record(self, store: Store, clock: ManualClock, ended: dict[Claim, Outcome]) -> None:
        """Record ends together."""
        steps = [settled(claim, outcome, now=clock.now()) for claim, outcome in ended.items()]
        assert store.record(steps) == []

    @pytest.mark.parametrize("has_row_before", [False, True])
    def test_an_unfinished_run_between_skips_that_are_recorded_together(
        self, store, clock, worker, has_row_before
    ):
        added(store, overlap=Overlap.ALLOW)
        if has_row_before:
            self.skip_next(store, clock, worker, "holiday")
        one, _, three, four = self.claim_instants(store, clock, worker, 4)

        self.record(store, clock, dict.fromkeys([one, three, four], Skipped("closed")))

        assert [row[1:] for row in self.skips(store) if row[0] == "closed"] == [
            (one.nominal_at, None, 1),
            (three.nominal_at, four.nominal_at, 2),
        ]

    def test_skips_after_an_unfinished_run_are_merged_when_recorded_together(
        self, store, clock, worker
    ):
        added(store, overlap=Overlap.ALLOW)
        self.skip_next(store, clock, worker)
        _, two, three = self.claim_instants(store, clock, worker, 3)

        self.record(store, clock, dict.fromkeys([two, three], Skipped("closed")))

        assert self.skips(store) == [
            ("closed", NOON, None, 1),
            ("closed", minute(2), minute(3), 2),
        ]

    def test_a_run_with_another_end_between_skips_that_are_recorded_together(
        self, store, clock, worker
    ):
        added(store, overlap=Overlap.ALLOW)
        self.skip_next(store, clock, worker)
        one, two, three = self.claim_instants(store, clock, worker, 3)
        skipped = Skipped("closed")

        self.record(store, clock, {one: skipped, two: Succeeded(), three: skipped})

        assert self.skips(store) == [
            ("closed", NOON, minute(1), 2),
            ("closed", minute(3), None, 1),
        ]

    @pytest.mark.parametrize("is_one_run", [True, False], ids=["a run", "its schedule"])
    def test_a_canceled_run_that_waited_begins_a_new_row(self, store, clock, worker, is_one_run):
        added(store)
        self.skip_next(store, clock, worker)
        [run] = tick(store, clock).runs
        if is_one_run:
            store.cancel(run.id, now=clock.now())
        else:
            store.cancel_schedule("", "digest", now=clock.now())
        clock.advance(minutes=1)
        self.skip_next(store, clock, worker)

        assert self.skips(store) == [("closed", NOON, None, 1), ("closed", minute(2), None, 1)]

    def test_a_replaced_run_begins_a_new_row(self, store, clock):
        added(store, overlap=Overlap.CANCEL_RUNNING, grace=HOUR)
        clock.advance(minutes=2)
        [replaced] = tick(store, clock).runs
        clock.advance(minutes=3)
        tick(store, clock)

        assert the_run(store, replaced).status is RunStatus.CANCELED
        assert self.skips(store) == [
            (REPLACED, NOON, minute(1), 2),
            (REPLACED, minute(3), minute(4), 2),
        ]

    @pytest.mark.parametrize("is_together", [True, False], ids=["together", "one by one"])
    @pytest.mark.parametrize("has_row_before", [True, False])
    def test_a_run_between_that_finished_before_them(
        self, store, clock, worker, has_row_before, is_together
    ):
        added(store, overlap=Overlap.ALLOW)
        if has_row_before:
            self.skip_next(store, clock, worker, "holiday")
        one, two, three, four = self.claim_instants(store, clock, worker, 4)
        self.record(store, clock, {two: Succeeded()})

        for each in [[one, three, four]] if is_together else [[one], [three], [four]]:
            self.record(store, clock, dict.fromkeys(each, Skipped("closed")))

        assert [row[1:] for row in self.skips(store) if row[0] == "closed"] == [
            (one.nominal_at, None, 1),
            (three.nominal_at, four.nominal_at, 2),
        ]

    def test_a_run_with_another_end_that_was_deleted_begins_a_new_row(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        [run] = tick(store, clock).runs
        worker.run()
        clock.advance(minutes=1)
        assert store.delete_runs([run.id]) == 1
        self.skip_next(store, clock, worker)

        assert self.skips(store) == [("closed", NOON, None, 1), ("closed", minute(2), None, 1)]

    def test_a_row_that_was_deleted_is_replaced_by_a_new_one(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        self.skip_next(store, clock, worker, "holiday")
        [deleted] = [run for run in all_runs(store) if run.reason == "holiday"]
        assert store.delete_runs([deleted.id]) == 1
        self.skip_next(store, clock, worker)

        assert self.skips(store) == [("closed", NOON, None, 1), ("closed", minute(2), None, 1)]

    def test_a_row_whose_reason_was_replaced_counts_no_more(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        store.clear_results(ids(all_runs(store)), reason="expired")
        self.skip_next(store, clock, worker)

        assert self.skips(store) == [("expired", NOON, None, 1), ("closed", minute(1), None, 1)]

    def test_a_schedule_that_is_added_again_begins_a_new_row(self, store, clock, worker):
        row = added(store)
        self.skip_next(store, clock, worker)
        store.remove_schedule(row.id)
        added(store, next_due_at=minute(1))
        self.skip_next(store, clock, worker)

        assert self.skips(store) == [("closed", NOON, None, 1), ("closed", minute(1), None, 1)]

    def test_a_firing_that_is_repeated_has_a_row_of_its_own(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        tick(store, clock)
        worker.record(worker.claim_one(), Failed("no", retry=False))
        add(store, a_run(schedule="digest", nominal_at=minute(1)))
        worker.record(worker.claim_one(), Skipped("closed"))

        assert self.skips(store) == [("closed", NOON, None, 1), ("closed", minute(1), None, 1)]

    def test_a_run_with_attempts_keeps_its_row(self, store, clock, worker):
        added(store)
        self.skip_next(store, clock, worker)
        [run] = tick(store, clock).runs
        worker.record(worker.claim_one(), Interrupted("deploy"), started_at=clock.now())
        worker.record(worker.claim_one(), Skipped("closed"))

        assert [row[3] for row in self.skips(store)] == [1, 1]
        assert len(store.run_record(run.id).attempts) == 1

    def test_runs_of_other_schedules_begin_no_new_row(self, store, clock, worker):
        added(store, "digest")
        added(store, "report")
        added(store, "digest", tenant="acme")
        for _ in range(3):
            tick(store, clock)
            for claim in worker.claim():
                is_ours = (claim.tenant, claim.schedule) == ("", "digest")
                worker.record(claim, Skipped("closed") if is_ours else Succeeded())
            clock.advance(minutes=1)

        assert self.skips(store) == [("closed", NOON, minute(2), 3)]

    def test_schedules_and_tenants_have_separate_rows(self, store, clock, worker):
        added(store, "digest")
        added(store, "report")
        added(store, "digest", tenant="acme")
        for _ in range(2):
            tick(store, clock)
            for claim in worker.claim():
                worker.record(claim, Skipped("closed"))
            clock.advance(minutes=1)

        assert self.skips(store) == [("closed", NOON, minute(1), 2)] * 3

    def test_runs_that_were_dispatched_are_not_merged(self, store, worker):
        add(store, a_run(), a_run())
        for claim in worker.claim():
            worker.record(claim, Skipped("closed"))

        assert [run.instants for run in all_runs(store)] == [1, 1]
