"""Counts of ended attempts: what is counted, and how counts are merged."""

import random
import statistics
from datetime import UTC, datetime, timedelta

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.rollups import (
    ALL_JOBS,
    KEEP,
    PLACES,
    EndedRuns,
    Rollup,
    RollupLevel,
    count_runs,
    count_transitions,
    estimate_percentile,
    merge_into,
    merge_rollups,
    old_before,
)
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
COMPLETED = RunStatus.COMPLETED


def a_step(job="a", queue="q", *, status=COMPLETED, ended_at=NOON, started_at=None, due_at=NOON):
    claim = Claim(RunId("id"), job, "", queue, "{}", 1, 2, 0, 1, due_at, NOON)
    outcome = OutcomeKind.SUCCEEDED if status is COMPLETED else OutcomeKind.FAILED
    again = None if status.is_final else ended_at
    return Transition(claim, status, outcome, ended_at, started_at, due_at=again)


def counts(rollups):
    return {(each.begins_at, each.job, each.queue, each.status): each.ended for each in rollups}


class TestCounts:
    def test_of_a_batch_in_any_order(self):
        steps = [
            *[a_step() for _ in range(3)],
            *[a_step("b") for _ in range(2)],
            a_step(queue="other"),
            a_step(status=RunStatus.FAILED_PERMANENT),
            a_step(status=RunStatus.FAILED),
            a_step(status=RunStatus.PENDING),
            *[a_step(ended_at=NOON + 60 * SECOND) for _ in range(4)],
        ]
        wanted = {
            (NOON, "a", "q", COMPLETED): 3,
            (NOON, "b", "q", COMPLETED): 2,
            (NOON, "a", "other", COMPLETED): 1,
            (NOON, "a", "q", RunStatus.FAILED_PERMANENT): 1,
            (NOON, "a", "q", RunStatus.FAILED): 1,
            (NOON + 60 * SECOND, "a", "q", COMPLETED): 4,
        }
        chance = random.Random(7)
        for _ in range(50):
            chance.shuffle(steps)
            assert counts(count_transitions(steps)) == wanted

    def test_none(self):
        assert count_transitions([]) == []
        assert count_transitions([a_step(status=RunStatus.PENDING)]) == []
        assert count_runs([]) == []

    @pytest.mark.parametrize(
        ("length", "place"),
        [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (2_000, 2), (4_000, 3), (3_600_000_000, 22)],
    )
    def test_a_length_in_microseconds_has_one_place(self, length, place):
        ended_at = NOON + timedelta(microseconds=length)

        [found] = count_transitions([a_step(started_at=NOON, ended_at=ended_at)])

        assert found.runtimes == (*[0] * place, 1)
        assert found.waits == (1,)

    def test_a_clock_that_was_set_back(self):
        [found] = count_transitions([a_step(started_at=NOON, ended_at=NOON - 3600 * SECOND)])
        assert found.runtimes == (1,)

    def test_what_took_longer_than_the_last_place(self):
        ages = NOON - timedelta(days=20_000)

        [found] = count_runs([EndedRuns("a", "q", COMPLETED, NOON, started_at=ages, due_at=ages)])

        assert len(found.runtimes) == PLACES + 1
        assert sum(found.runtimes) == 1

    def test_skips_count_their_instants(self):
        ended = [EndedRuns("a", "q", RunStatus.SKIPPED, NOON, number=7)]
        assert counts(count_runs(ended * 2)) == {(NOON, "a", "q", RunStatus.SKIPPED): 14}


class TestMerging:
    def a_rollup(self, minutes, ended, runtimes=()):
        return Rollup(NOON + minutes * 60 * SECOND, "a", "q", COMPLETED, ended, runtimes)

    def test_in_any_order_and_in_any_groups(self):
        rollups = [self.a_rollup(number % 3, number, (number, 1)) for number in range(10)]
        whole = merge_rollups(rollups)
        for cut in range(11):
            parts = [*merge_rollups(rollups[cut:]), *merge_rollups(rollups[:cut])]
            assert merge_rollups(parts) == whole
        assert sum(each.ended for each in whole) == sum(range(10))

    def test_a_minute_also_counts_for_its_queue(self):
        merged = merge_into(RollupLevel.MINUTE, [self.a_rollup(0, 2), self.a_rollup(0, 3)])
        assert [(each.job, each.ended) for each in merged] == [(ALL_JOBS, 5), ("a", 5)]

    def test_an_hour_and_a_day_do_not_count_for_it_again(self):
        minutes = merge_into(RollupLevel.MINUTE, [self.a_rollup(0, 2), self.a_rollup(59, 3)])
        hours = merge_into(RollupLevel.HOUR, minutes)
        days = merge_into(RollupLevel.DAY, hours)
        assert [(each.job, each.ended) for each in hours] == [(ALL_JOBS, 5), ("a", 5)]
        assert days == [each._replace(begins_at=NOON - 12 * 3600 * SECOND) for each in hours]

    @pytest.mark.parametrize("level", list(KEEP))
    def test_only_whole_units_of_the_next_level(self, level):
        before = old_before(level, NOON + timedelta(days=500, minutes=7, seconds=3))
        assert (before.minute, before.second, before.microsecond) == (0, 0, 0)
        if level is not RollupLevel.MINUTE:
            assert before.hour == 0


class TestPercentiles:
    def test_of_nothing(self):
        assert estimate_percentile((), 0.5) is None
        assert estimate_percentile((0, 0), 0.5) is None

    def test_the_estimate_is_less_than_a_factor_of_two_away(self):
        chance = random.Random(11)
        for spread in (0.5, 1.5, 3.0):
            lengths = sorted(chance.lognormvariate(0, spread) for _ in range(2_000))
            ended = [
                EndedRuns("a", "q", COMPLETED, NOON + length * SECOND, started_at=NOON, due_at=NOON)
                for length in lengths
            ]
            merged = merge_rollups(each._replace(begins_at=NOON) for each in count_runs(ended))
            [found] = merged
            for number, share in ((49, 0.5), (94, 0.95), (98, 0.99)):
                true = statistics.quantiles(lengths, n=100)[number]
                estimate = estimate_percentile(found.runtimes, share)
                assert estimate is not None
                assert true / 2 <= estimate <= true * 2
