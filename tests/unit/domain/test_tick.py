from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tickwork._domain import tick
from tickwork._domain.identity import RunId, firing_id
from tickwork._domain.job import JobSpec, Misfire, Overlap, ScheduleRow
from tickwork._domain.limits.limits import Limit, Unique, held_key, one_at_a_time, waiting_key
from tickwork._domain.runs.status import Phase
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.tick import (
    MISSED,
    NOT_UNIQUE,
    REPLACED,
    STILL_RUNNING,
    STILL_WAITING,
    Move,
    TickPlan,
    keys_wanted,
    new_manual_run,
    plan_tick,
)
from tickwork.errors import InvalidSchedule
from unit.builders import MINUTE, NOON, SECOND, a_job, a_schedule
from unit.domain.rules import Grid

JOBS = {"send_email": a_job()}


def planned(
    *due: ScheduleRow,
    now: datetime = NOON,
    rule: Rule | None = None,
    jobs: Mapping[str, JobSpec] = JOBS,
    taken: Iterable[str] = (),
) -> TickPlan:
    found = rule or Grid(MINUTE)
    return plan_tick(due, now=now, jobs=jobs, rule_of=lambda row: found, taken=frozenset(taken))


class TestFiring:
    """A due instant gives one run, and moves its schedule strictly forward."""

    def test_the_run(self):
        row = a_schedule(tenant="acme", args='{"to":"ann"}', target="user-5", tags=("a",))

        [run] = planned(row).runs

        assert run.id == firing_id(row.id, NOON)
        assert (run.job, run.tenant, run.args) == ("send_email", "acme", '{"to":"ann"}')
        assert (run.schedule, run.nominal_at, run.due_at) == ("schedule-1", NOON, NOON)
        assert (run.target, run.tags, run.phase) == ("user-5", ("a",), Phase.READY)

    def test_the_move(self):
        row = a_schedule()

        assert planned(row).moves == [Move(row.id, NOON, NOON + MINUTE, NOON)]

    def test_the_same_plan_again_has_the_same_ids(self):
        rows = [a_schedule(number=number) for number in range(5)]

        assert planned(*rows) == planned(*rows)

    @pytest.mark.parametrize(
        "row",
        [
            a_schedule(paused_at=NOON),
            a_schedule(next_due_at=None),
            a_schedule(next_due_at=NOON + SECOND),
        ],
    )
    def test_a_schedule_that_is_not_due_is_left_alone(self, row):
        assert planned(row) == ([], [], [], [], [])

    def test_queue_and_priority_are_the_jobs_unless_the_schedule_sets_them(self):
        jobs = {"send_email": a_job(queue="mail", priority=5)}

        [as_the_job] = planned(a_schedule(), jobs=jobs).runs
        [as_it_says] = planned(a_schedule(queue="slow", priority=9), jobs=jobs).runs

        assert (as_the_job.queue, as_the_job.priority) == ("mail", 5)
        assert (as_it_says.queue, as_it_says.priority) == ("slow", 9)

    @pytest.mark.parametrize(
        ("of_the_job", "of_the_schedule", "merged"),
        [
            ("{}", '{"a":1}', '{"a":1}'),
            ('{"a":1}', "{}", '{"a":1}'),
            ('{"a":1,"b":1}', '{"b":2}', '{"a":1,"b":2}'),
        ],
    )
    def test_arguments_are_merged_key_by_key(self, of_the_job, of_the_schedule, merged):
        jobs = {"send_email": a_job(args=of_the_job)}

        [run] = planned(a_schedule(args=of_the_schedule), jobs=jobs).runs

        assert run.args == merged

    def test_a_schedule_of_a_renamed_job_gives_runs_of_the_new_name(self):
        [run] = planned(a_schedule(), jobs={"send_email": a_job("deliver_email")}).runs

        assert run.job == "deliver_email"

    def test_a_run_that_expires_does_so_after_it_was_due(self):
        [run] = planned(a_schedule(expires=MINUTE), now=NOON + SECOND).runs

        assert run.expires_at == NOON + MINUTE


class TestSchedulesWithTheSameRule:
    """They are planned together, each by its own row."""

    def test_each_has_its_own_misfire_policy_grace_and_end(self):
        hour = 60 * MINUTE
        hour_ago = NOON - hour
        rows = [
            a_schedule(number=1, next_due_at=hour_ago, misfire=Misfire.ONE),
            a_schedule(number=2, next_due_at=hour_ago, misfire=Misfire.SKIP),
            a_schedule(
                number=3, next_due_at=hour_ago, misfire=Misfire.ONE, grace=timedelta(days=1)
            ),
            a_schedule(number=4, next_due_at=hour_ago, misfire=Misfire.ONE, until=hour_ago),
            a_schedule(number=5, next_due_at=hour_ago, last_fired_at=NOON - MINUTE),
            a_schedule(number=6, next_due_at=NOON),
            a_schedule(number=7, next_due_at=hour_ago, misfire=Misfire.ONE),
        ]

        rows = [replace(row, spec=replace(row.spec, overlap=Overlap.ALLOW)) for row in rows]

        together = planned(*rows)
        alone = [planned(row) for row in rows]

        assert together == tick.merge_plans(alone)
        assert len({len(plan.runs) for plan in alone}) > 2

    def test_each_has_its_own_rule(self):
        rows = [a_schedule(number=number) for number in range(4)]
        lengths = {row.id: (number + 1) * MINUTE for number, row in enumerate(rows)}

        plan = plan_tick(rows, now=NOON, jobs=JOBS, rule_of=lambda row: Grid(lengths[row.id]))

        assert [move.next_due_at for move in plan.moves] == [
            NOON + length for length in lengths.values()
        ]


class TestJitter:
    """Jitter moves the run, not the instant, and by the same length on every machine."""

    def test_the_run_is_due_later_and_stands_for_the_instant(self):
        row = a_schedule(jitter=MINUTE)

        [run] = planned(row).runs
        [again] = planned(row, now=NOON + 30 * SECOND).runs

        assert run.nominal_at == NOON
        assert NOON < run.due_at < NOON + MINUTE
        assert again.due_at == run.due_at

    def test_schedules_are_spread(self):
        rows = [a_schedule(number=number, jitter=MINUTE) for number in range(50)]

        assert len({run.due_at for run in planned(*rows).runs}) == 50


class TestGaps:
    """Missed firings are stored as a skip."""

    def test_a_gap_is_one_row(self):
        row = a_schedule(misfire=Misfire.SKIP)

        plan = planned(row, now=NOON + 10 * MINUTE + SECOND)

        assert plan.skips == [
            (firing_id(row.id, NOON), row, NOON, NOON + 9 * MINUTE, 10, MISSED),
        ]

    def test_runs_and_skips_never_share_an_id(self):
        row = a_schedule()

        plan = planned(row, now=NOON + 10 * MINUTE)

        ids = [run.id for run in plan.runs] + [skip.id for skip in plan.skips]
        assert len(set(ids)) == len(ids)


class TestOverlap:
    """When the last run has not finished, the policy decides about the new one."""

    def test_skip_leaves_a_row_instead_of_a_run(self):
        row = a_schedule()

        plan = planned(row, taken=[held_key(row.id)])

        assert plan.runs == []
        assert plan.skips == [(firing_id(row.id, NOON), row, NOON, NOON, 1, STILL_RUNNING)]
        assert plan.moves == planned(row).moves

    def test_skip_holds_a_key_until_the_end_of_the_run(self):
        row = a_schedule()

        [run] = planned(row).runs

        assert (run.overlap_key, run.limit_keys) == (held_key(row.id), ())

    def test_two_instants_in_one_tick_overlap_each_other(self):
        row = a_schedule(grace=5 * MINUTE)

        plan = planned(row, now=NOON + 3 * MINUTE)

        assert [run.nominal_at for run in plan.runs] == [NOON]
        [skip] = plan.skips
        assert skip[2:] == (NOON + MINUTE, NOON + 3 * MINUTE, 3, STILL_RUNNING)

    def test_cancel_running_starts_the_last_of_several_instants(self):
        row = a_schedule(overlap=Overlap.CANCEL_RUNNING, grace=5 * MINUTE)

        plan = planned(row, now=NOON + 3 * MINUTE, taken=[held_key(row.id), waiting_key(row.id)])

        [run] = plan.runs
        assert (run.nominal_at, run.overlap_key) == (NOON + 3 * MINUTE, None)
        assert run.limit_keys == (one_at_a_time(row.id),)
        assert [skip[2:] for skip in plan.skips] == [(NOON, NOON + 2 * MINUTE, 3, REPLACED)]

    def test_one_may_wait_and_further_ones_are_skipped(self):
        row = a_schedule(overlap=Overlap.QUEUE_ONE)

        [run] = planned(row, taken=[held_key(row.id)]).runs
        plan = planned(row, taken=[waiting_key(row.id)])

        assert (run.overlap_key, run.limit_keys) == (waiting_key(row.id), (one_at_a_time(row.id),))
        assert plan.runs == []
        assert [skip.reason for skip in plan.skips] == [STILL_WAITING]

    def test_queue_all_lets_all_of_them_wait(self):
        row = a_schedule(overlap=Overlap.QUEUE_ALL, grace=5 * MINUTE)

        plan = planned(row, now=NOON + MINUTE, taken=[held_key(row.id), waiting_key(row.id)])

        assert len(plan.runs) == 2
        assert {run.limit_keys for run in plan.runs} == {(one_at_a_time(row.id),)}
        assert {run.overlap_key for run in plan.runs} == {None}

    def test_allow_puts_nothing_in_the_way(self):
        row = a_schedule(overlap=Overlap.ALLOW, grace=5 * MINUTE)

        plan = planned(row, now=NOON + MINUTE, taken=[held_key(row.id), waiting_key(row.id)])

        assert [(run.overlap_key, run.limit_keys) for run in plan.runs] == [(None, ())] * 2

    @pytest.mark.parametrize("overlap", Overlap)
    def test_only_cancel_running_asks_a_run_to_stop(self, overlap):
        row = a_schedule(overlap=overlap)

        assert planned(row).cancels == ([row.id] if overlap is Overlap.CANCEL_RUNNING else [])

    def test_nothing_is_cancelled_for_nothing(self):
        row = a_schedule(
            overlap=Overlap.CANCEL_RUNNING, next_due_at=NOON - MINUTE, last_fired_at=NOON
        )

        assert planned(row).cancels == []


class TestKeys:
    """Limits and uniqueness hold for fired runs as for dispatched ones."""

    JOBS = {"send_email": a_job(limits=(Limit(3),), unique=Unique())}  # noqa: RUF012

    def test_the_jobs_limits_come_first(self):
        row = a_schedule(overlap=Overlap.QUEUE_ALL)

        [run] = planned(row, jobs=self.JOBS).runs

        assert run.limit_keys == ("job:send_email", one_at_a_time(row.id))

    def test_a_key_that_is_taken_leaves_a_row(self):
        row = a_schedule(overlap=Overlap.ALLOW)
        [run] = planned(row, jobs=self.JOBS).runs
        assert run.unique is not None

        plan = planned(row, jobs=self.JOBS, taken=[run.unique.key])

        assert plan.runs == []
        assert [skip.reason for skip in plan.skips] == [NOT_UNIQUE]

    def test_two_instants_in_one_tick_share_a_key(self):
        row = a_schedule(overlap=Overlap.ALLOW, grace=5 * MINUTE)

        plan = planned(row, jobs=self.JOBS, now=NOON + 2 * MINUTE)

        assert len(plan.runs) == 1
        assert [(skip.instants, skip.reason) for skip in plan.skips] == [(2, NOT_UNIQUE)]

    def test_the_keys_to_look_for_are_known_before_the_plan(self):
        rows = [
            a_schedule(number=1),
            a_schedule(number=2, overlap=Overlap.QUEUE_ONE),
            a_schedule(number=3, overlap=Overlap.ALLOW),
            a_schedule(number=4, overlap=Overlap.ALLOW, next_due_at=None),
            a_schedule(number=5, overlap=Overlap.ALLOW, job="unknown"),
        ]
        [run] = planned(rows[2], jobs=self.JOBS).runs
        assert run.unique is not None

        wanted = keys_wanted(rows, now=NOON, jobs=self.JOBS)

        assert wanted == {held_key(rows[0].id), waiting_key(rows[1].id), run.unique.key}


class TestSettingAside:
    """What is wrong with one schedule stops that one, and no other."""

    def test_a_job_that_this_process_does_not_know(self):
        rows = [a_schedule(number=1, job="unknown"), a_schedule(number=2)]

        plan = planned(*rows)

        assert [(each.schedule_id, each.reason) for each in plan.unfired] == [
            (rows[0].id, "The job 'unknown' is not known to this process.")
        ]
        assert [move.schedule_id for move in plan.moves] == [rows[1].id]

    @pytest.mark.parametrize("error", [InvalidSchedule("no rule"), ZeroDivisionError()])
    def test_a_rule_that_cannot_be_read(self, error):
        good, bad = a_schedule(number=1), a_schedule(number=2)

        def rule_of(row):
            if row is bad:
                raise error
            return Grid(MINUTE)

        plan = plan_tick([bad, good], now=NOON, jobs=JOBS, rule_of=rule_of)

        assert [each.schedule_id for each in plan.unfired] == [bad.id]
        assert [move.schedule_id for move in plan.moves] == [good.id]

    def test_arguments_that_cannot_be_read(self):
        row = a_schedule(args="{")

        plan = planned(row, jobs={"send_email": a_job(args='{"a":1}')})

        assert plan.unfired[0].reason.startswith("PayloadUnreadable: ")
        assert (plan.runs, plan.moves) == ([], [])


class TestBounds:
    """A plan fits one transaction; what is left over stays due."""

    def test_no_further_schedule_is_taken_in_once_it_is_full(self, monkeypatch):
        monkeypatch.setattr(tick, "RUNS_MAX", 3)
        rows = [a_schedule(number=number) for number in range(5)]

        plan = planned(*rows)

        assert len(plan.runs) == len(plan.moves) == 3

    def test_a_schedule_is_planned_whole_or_not_at_all(self, monkeypatch):
        monkeypatch.setattr(tick, "RUNS_MAX", 3)
        row = a_schedule(overlap=Overlap.ALLOW, grace=timedelta(hours=1))
        rows = [row, replace(row, id=a_schedule(number=2).id)]

        plan = planned(*rows, now=NOON + 5 * MINUTE)

        assert len(plan.runs) == 6
        assert [move.schedule_id for move in plan.moves] == [row.id]


class TestManualRuns:
    """A manual run is due now, and otherwise like a firing."""

    ID = RunId("019cb0d2-0000-7000-8000-00000000000a")

    def manual(self, *, is_queued: bool = False, **options):
        row = a_schedule(**options)
        nominal_at = NOON - timedelta(days=3)
        run = new_manual_run(
            row, a_job(), self.ID, nominal_at=nominal_at, now=NOON, is_queued=is_queued
        )
        assert (run.id, run.schedule, run.nominal_at) == (self.ID, row.spec.name, nominal_at)
        return run

    def test_it_is_due_at_once_whatever_the_jitter(self):
        run = self.manual(jitter=timedelta(hours=1), expires=MINUTE)

        assert (run.due_at, run.expires_at) == (NOON, NOON + MINUTE)

    @pytest.mark.parametrize(
        ("overlap", "keys"),
        [
            (Overlap.SKIP, (held_key(a_schedule().id), ())),
            (Overlap.QUEUE_ONE, (waiting_key(a_schedule().id), (one_at_a_time(a_schedule().id),))),
            (Overlap.QUEUE_ALL, (None, (one_at_a_time(a_schedule().id),))),
            (Overlap.ALLOW, (None, ())),
        ],
    )
    def test_it_gives_way_as_a_firing_does(self, overlap, keys):
        run = self.manual(overlap=overlap)

        assert (run.overlap_key, run.limit_keys) == keys

    @pytest.mark.parametrize("overlap", [o for o in Overlap if o is not Overlap.ALLOW])
    def test_a_queued_run_waits_for_the_others(self, overlap):
        run = self.manual(overlap=overlap, is_queued=True)

        assert (run.overlap_key, run.limit_keys) == (None, (one_at_a_time(a_schedule().id),))

    def test_those_that_may_overlap_do(self):
        run = self.manual(overlap=Overlap.ALLOW, is_queued=True)

        assert (run.overlap_key, run.limit_keys) == (None, ())
