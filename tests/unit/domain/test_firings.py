from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._domain.firings import (
    CATCH_UP_MAX,
    Firings,
    Gap,
    due_again,
    first_due,
    plan_firings,
)
from tickwork._domain.job import Misfire
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.cron import Cron
from tickwork.errors import InvalidSchedule
from unit.builders import MINUTE, NOON, SECOND, a_schedule
from unit.domain.rules import Ending, Forgetful, Grid, Stuck

MINUTELY = Grid(MINUTE)
HOUR = timedelta(hours=1)


def fired(rule: Rule = MINUTELY, *, now: datetime = NOON, **options: Any) -> Firings:
    return plan_firings(a_schedule(**options), rule, now=now)


def after_noon(*minutes: int) -> list[datetime]:
    return [NOON + minute * MINUTE for minute in minutes]


class TestOnTime:
    """An instant within its grace fires, each one for itself."""

    def test_one_that_is_due_fires_and_the_next_one_is_waited_for(self):
        firings = fired()

        assert firings.times == [NOON]
        assert (firings.next_due_at, firings.last_at) == (NOON + MINUTE, NOON)
        assert firings.gap is None

    def test_a_late_tick_fires_all_within_grace(self):
        firings = fired(now=NOON + 2 * MINUTE, grace=2 * MINUTE)

        assert firings.times == after_noon(0, 1, 2)

    @pytest.mark.parametrize(("late", "is_missed"), [(MINUTE, False), (MINUTE + SECOND, True)])
    def test_missed_is_what_is_later_than_grace(self, late, is_missed):
        firings = fired(Grid(HOUR), now=NOON + late, misfire=Misfire.SKIP)

        assert (firings.gap is not None) is is_missed

    def test_more_than_one_tick_can_carry_stays_due(self):
        firings = fired(Grid(SECOND), now=NOON + HOUR, grace=HOUR)

        assert len(firings.times) == CATCH_UP_MAX
        assert firings.next_due_at == NOON + CATCH_UP_MAX * SECOND
        assert firings.gap is None


class TestMissed:
    """The policy decides which missed firings run; the others are one gap with their number."""

    LATER = NOON + 10 * MINUTE + SECOND  # 12:00 to 12:09 are missed, 12:10 is on time

    def test_one_run_for_all_missed_firings(self):
        firings = fired(now=self.LATER)

        assert firings.times == after_noon(9, 10)
        assert firings.gap == Gap(NOON, NOON + 8 * MINUTE, 9)
        assert firings.next_due_at == NOON + 11 * MINUTE

    def test_none_of_them_fires(self):
        firings = fired(now=self.LATER, misfire=Misfire.SKIP)

        assert firings.times == after_noon(10)
        assert firings.gap == Gap(NOON, NOON + 9 * MINUTE, 10)

    def test_all_of_them_fire(self):
        firings = fired(now=self.LATER, misfire=Misfire.ALL)

        assert firings.times == after_noon(*range(11))
        assert firings.gap is None

    def test_a_single_one_that_was_missed_is_no_gap(self):
        firings = fired(Grid(HOUR), now=NOON + 2 * MINUTE)

        assert (firings.times, firings.gap) == ([NOON], None)

    def test_of_too_many_the_newest_fire(self):
        firings = fired(now=NOON + 2_000 * MINUTE + SECOND, misfire=Misfire.ALL)

        assert firings.times == after_noon(*range(1_000, 2_001))
        assert firings.gap == Gap(NOON, NOON + 999 * MINUTE, 1_000)

    @pytest.mark.parametrize("misfire", Misfire)
    def test_a_year_of_seconds_is_counted_and_not_walked(self, misfire):
        steps = 0

        class Counted(Grid):
            def next_after(self, after: datetime) -> datetime | None:
                nonlocal steps
                steps += 1
                return super().next_after(after)

            def prev_before(self, before: datetime) -> datetime | None:
                nonlocal steps
                steps += 1
                return super().prev_before(before)

        year = timedelta(days=365)
        firings = fired(Counted(SECOND), now=NOON + year, misfire=misfire)

        assert firings.gap is not None
        assert firings.gap.instants + len(firings.times) == 365 * 86_400 + 1
        assert steps < 1_100

    def test_a_rule_that_forgot_its_instant_still_fires_it(self):
        firings = fired(Forgetful(HOUR), now=NOON + 10 * MINUTE, misfire=Misfire.SKIP)

        assert firings.gap == Gap(NOON, NOON, 1)
        assert firings.next_due_at == NOON + HOUR


class TestTheEnd:
    """A schedule with an end fires up to it, and is then done."""

    def test_the_last_instant_is_included(self):
        firings = fired(until=NOON)

        assert (firings.times, firings.next_due_at) == ([NOON], None)

    def test_one_that_lies_behind_it_does_not_fire(self):
        firings = fired(until=NOON - SECOND)

        assert (firings.times, firings.gap, firings.next_due_at) == ([], None, None)

    def test_it_is_waited_for_too(self):
        assert fired(until=NOON + MINUTE).next_due_at == NOON + MINUTE
        assert fired(until=NOON + MINUTE - SECOND).next_due_at is None

    @pytest.mark.parametrize(
        ("misfire", "fire", "missed"),
        [
            (Misfire.SKIP, [], 6),
            (Misfire.ONE, after_noon(5), 5),
            (Misfire.ALL, after_noon(*range(6)), 0),
        ],
    )
    def test_missed_firings_end_there_too(self, misfire, fire, missed):
        firings = fired(now=NOON + HOUR, until=NOON + 5 * MINUTE, misfire=misfire)

        assert firings.times == fire
        assert (firings.gap.instants if firings.gap else 0) == missed
        assert (firings.last_at, firings.next_due_at) == (NOON + 5 * MINUTE, None)

    def test_a_rule_may_end_by_itself(self):
        assert fired(Ending(MINUTE)).next_due_at is None


class TestNeverTwice:
    """A firing is not decided twice, also if the row is moved back."""

    def test_a_row_that_was_moved_back_catches_up_without_firing(self):
        firings = fired(next_due_at=NOON - HOUR, last_fired_at=NOON)

        assert (firings.times, firings.gap) == ([], None)
        assert (firings.next_due_at, firings.last_at) == (NOON + MINUTE, NOON)

    def test_an_instant_that_was_fired_is_not_fired_again(self):
        firings = fired(next_due_at=NOON, last_fired_at=NOON)

        assert (firings.times, firings.next_due_at) == ([], NOON + MINUTE)

    def test_and_fires_only_what_is_new(self):
        firings = fired(now=NOON + MINUTE, next_due_at=NOON - HOUR, last_fired_at=NOON)

        assert firings.times == after_noon(1)

    def test_in_the_fold_of_a_zone_both_passes_are_instants(self):
        # 2026-10-25 in Berlin: 02:00 to 03:00 comes twice. Compared by wall clocks, the
        # second pass would lie before the first.
        half_hourly = Cron.parse("*/30 * * * *", tz="Europe/Berlin")
        first = datetime(2026, 10, 25, 0, 0, tzinfo=UTC)

        firings = plan_firings(
            a_schedule(next_due_at=first, grace=4 * HOUR), half_hourly, now=first + 3 * HOUR
        )

        assert firings.times == [first + step * HOUR / 2 for step in range(7)]


class TestResuming:
    """A schedule that is new, changed or resumed starts with the next instant after now."""

    def test_firings_in_the_past_are_not_made_up_for(self):
        assert first_due(MINUTELY, after=NOON) == NOON + MINUTE
        assert first_due(MINUTELY, after=NOON + SECOND) == NOON + MINUTE

    def test_it_is_in_utc(self):
        found = first_due(Grid(MINUTE, tz="Asia/Kathmandu"), after=NOON)

        assert found is not None
        assert found.tzinfo is UTC

    def test_there_may_be_none_left(self):
        assert first_due(MINUTELY, after=NOON, until=NOON + SECOND) is None
        assert first_due(Ending(MINUTE), after=NOON) is None


class TestBrokenRules:
    """A rule that breaks its promise is an error, not an endless loop."""

    def test_one_that_does_not_move_on(self):
        with pytest.raises(InvalidSchedule, match="does not advance"):
            fired(Stuck(MINUTE))

    def test_one_that_does_not_move_back(self):
        with pytest.raises(InvalidSchedule, match="does not go back"):
            fired(Stuck(MINUTE), now=NOON + HOUR)


class TestEveryInstant:
    """However ticks fall, each instant is decided exactly once."""

    @given(
        length=st.integers(1, 100),
        ticks=st.lists(st.integers(1, 300), min_size=1, max_size=12),
        misfire=st.sampled_from(Misfire),
        grace=st.integers(0, 120),
        end=st.none() | st.integers(0, 900),
    )
    def test_runs_and_gaps_add_up(self, length, ticks, misfire, grace, end):
        rule = Grid(length * SECOND)
        until = None if end is None else NOON + end * SECOND
        now, missed = NOON, 0
        due_at: datetime | None = NOON
        last: datetime | None = None
        decided: list[datetime] = []
        for tick in ticks:
            now += tick * SECOND
            if due_at is None or due_at > now:
                continue
            firings = fired(
                rule,
                now=now,
                next_due_at=due_at,
                last_fired_at=last,
                misfire=misfire,
                grace=grace * SECOND,
                until=until,
            )
            assert firings.next_due_at is None or firings.next_due_at > max(due_at, now)
            decided += firings.times
            missed += firings.gap.instants if firings.gap else 0
            due_at, last = firings.next_due_at, firings.last_at

        assert decided == sorted(set(decided))
        up_to = now if until is None else min(now, until)
        assert len(decided) + missed == rule.count_between(NOON, up_to)


class TestGoingOn:
    """A schedule with a new rule continues after all decided firings."""

    def again(self, *, until: datetime | None = None, **options: Any) -> datetime | None:
        paused_until = options.pop("paused_until", None)
        row = replace(a_schedule(**options), paused_until=paused_until)
        return due_again(row, MINUTELY, now=NOON, until=until)

    def test_after_now(self):
        assert self.again(next_due_at=NOON - HOUR) == NOON + MINUTE

    def test_after_a_pause_that_ends_by_itself(self):
        paused_until = NOON + HOUR

        assert self.again(paused_at=NOON, paused_until=paused_until) == paused_until + MINUTE

    def test_a_pause_without_an_end_does_not_matter(self):
        assert self.again(paused_at=NOON) == NOON + MINUTE

    def test_it_continues_after_the_last_decided_firing(self):
        # Another machine's clock was ahead.
        assert self.again(last_fired_at=NOON + HOUR) == NOON + HOUR + MINUTE

    def test_not_after_its_end(self):
        assert self.again(until=NOON + SECOND) is None
