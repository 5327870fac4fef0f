"""Cron agrees with the brute-force oracle, for generated expressions."""

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import brute_force
from tickwork._domain.schedules.cron import Cron

# How many cases each test tries. TICKWORK_TEST_EFFORT=50 pytest ... tries fifty times as many.
EFFORT = int(os.environ.get("TICKWORK_TEST_EFFORT", "1"))

ZONES = {
    "UTC": "no changes at all",
    "Europe/Berlin": "an hour, at 02:00; LMT was 53:28 ahead",
    "America/New_York": "an hour, at 02:00, with war time and year-round experiments",
    "Australia/Lord_Howe": "thirty minutes",
    "Pacific/Apia": "skipped 2011-12-30 whole, and had 1892-07-04 twice",
    "America/Sao_Paulo": "changed at midnight, so that days started at 01:00",
    "Asia/Kathmandu": "05:45 ahead, and fifteen minutes once",
    "Europe/Dublin": "negative DST, and 25:21 behind",
    "Africa/Casablanca": "four changes a year, around Ramadan",
    "Asia/Tehran": "changed at midnight, half-hour offsets",
    "America/St_Johns": "changed at 00:01, once by two hours",
    "Africa/Monrovia": "44:30 behind until 1972",
    "Antarctica/Troll": "two hours",
    "Asia/Manila": "gained a day in 1844",
    "America/Caracas": "half an hour, twice, without DST",
    "Asia/Gaza": "changes on unforeseeable days",
}

EARLIEST = brute_force.instant_of(datetime(1880, 1, 1, tzinfo=UTC))
RECENT = brute_force.instant_of(datetime(1970, 1, 1, tzinfo=UTC))
LATEST = brute_force.instant_of(datetime(2060, 1, 1, tzinfo=UTC))
DISTANT = brute_force.instant_of(datetime(2460, 1, 1, tzinfo=UTC))


@cache
def changes_of(zone: ZoneInfo) -> list[brute_force.Change]:
    return brute_force.offset_changes(zone, EARLIEST, LATEST)


# ---------------------------------------------------------------- cases that hurt


class Case(NamedTuple):
    """One question to the engine. Its repr is all that is needed to ask it again."""

    expr: str
    zone: ZoneInfo
    moment: datetime

    @property
    def cron(self) -> Cron:
        return Cron.parse(self.expr, tz=self.zone)

    def __repr__(self) -> str:
        return f"Cron.parse({self.expr!r}, tz={self.zone.key!r}) at {self.moment.isoformat()}"


def cases(name: str, count: int) -> list[Case]:
    """Draw cases, the same ones for the same name on every machine."""
    draw = Draw(random.Random(name))
    return [draw.case() for _ in range(count * EFFORT)]


class Draw:
    """Draws expressions, zones and moments that are likely to hurt."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.one_of = source.choice

    def case(self) -> Case:
        zone = ZoneInfo(self.one_of(list(ZONES)))
        moment = self.moment(zone)
        hour = moment.astimezone(zone).hour
        near = [hour, (hour + 1) % 24, (hour - 1) % 24, 0, 2]
        return Case(self.expression(near), zone, moment)

    def moment(self, zone: ZoneInfo) -> datetime:
        """Draw an instant, four in ten of them near an offset change, seen from some zone."""
        if changes_of(zone) and self.random.random() < 0.4:
            instant = self.near_a_change(zone)
        else:
            eras = [(RECENT, LATEST), (RECENT, LATEST), (EARLIEST, LATEST), (LATEST, DISTANT)]
            instant = self.random.randint(*self.one_of(eras))
        seen_from = self.one_of([zone, zone, ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata")])
        fraction = self.one_of([0, 0, 0, 1, 500_000, 999_999])
        return brute_force.moment_of(instant, seen_from).replace(microsecond=fraction)

    def near_a_change(self, zone: ZoneInfo) -> int:
        change = self.one_of(changes_of(zone))
        shift = abs(int((change.after - change.before).total_seconds()))
        edges = [-shift - 1, -shift, -60, -1, 0, 1, 60, shift - 1, shift, shift + 1]
        distances = [
            self.one_of(edges),
            self.random.randint(-2 * shift, 2 * shift),
            self.random.randint(-90_000, 90_000),
        ]
        return change.at + self.one_of(distances)

    def expression(self, near_hours: list[int]) -> str:
        open_day = ["*", "*", "*", "?"]
        texts = [
            self.field(0, 59, [0, 0, 15, 30, 59]),
            self.field(0, 23, near_hours),
            self.one_of([*open_day, self.field(1, 31, [1, 15, 28, 29, 30, 31], DAYS), "*/2"]),
            self.one_of(["*", "*", self.field(1, 12, [1, 2, 3, 10], MONTHS)]),
            self.one_of([*open_day, self.field(0, 7, [0, 1, 5, 7], WEEKDAYS), "1-5"]),
        ]
        if self.random.random() < 0.25:
            texts.insert(0, self.field(0, 59, [0, 0, 30, 59]))
        return self.one_of([" ", " ", "  ", "\t"]).join(texts)

    def field(self, low: int, high: int, favoured: list[int], special: Sequence[str] = ()) -> str:
        length = self.one_of([1, 1, 1, 2, 3])
        return ",".join(self.item(low, high, favoured, special) for _ in range(length))

    def item(self, low: int, high: int, favoured: list[int], special: Sequence[str]) -> str:
        if special and self.random.random() < 0.3:
            return self.one_of(special)
        first, last = sorted(
            self.one_of([self.one_of(favoured), self.random.randint(low, high)]) for _ in "ab"
        )
        step = self.random.randint(1, min(high - low, high - 1))
        shapes = [f"{first}", f"{last}", f"{first}-{last}", f"{first}-{last}/{step}"]
        return self.one_of([*shapes, *shapes, f"{first}/{step}", f"*/{step}", "*"])


MONTHS = ["JAN", "feb", "Mar-OCT", "Oct-Dec/2"]
DAYS = ["L", "LW", "1W", "15W", "30W", "31W"]
WEEKDAYS = [
    "MON",
    "fri-sun",
    "Sat-SUN",
    "Sun-tue",
    "5L",
    "0L",
    "7L",
    "friL",
    "5#2",
    "SUN#5",
    "7#1",
    "3#4",
]


def instants(moments: Iterable[datetime]) -> list[int]:
    return [brute_force.instant_of(moment) for moment in moments]


def instant_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else brute_force.instant_of(moment)


# ---------------------------------------------------------------- the oracle's own footing


def seen_in(zone: str, *walls: str) -> list[datetime]:
    return [datetime.fromisoformat(wall).astimezone(ZoneInfo(zone)) for wall in walls]


WORKED_OUT_BY_HAND = [
    pytest.param(
        "30 2 * * *",
        "Europe/Berlin",
        "2024-03-30T12:00+01:00",
        ["2024-03-31T03:00+02:00", "2024-04-01T02:30+02:00"],
        id="a fixed time in a gap fires at the first instant after it",
    ),
    pytest.param(
        "0,20,40 2 * * *",
        "Europe/Berlin",
        "2024-03-30T12:00+01:00",
        ["2024-03-31T03:00+02:00", "2024-04-01T02:00+02:00"],
        id="several fixed times in one gap fire once",
    ),
    pytest.param(
        "0 2,3 * * *",
        "Europe/Berlin",
        "2024-03-30T12:00+01:00",
        ["2024-03-31T03:00+02:00", "2024-04-01T02:00+02:00"],
        id="a fixed time in a gap and one at its end are one firing",
    ),
    pytest.param(
        "30 2 * * *",
        "Europe/Berlin",
        "2024-10-26T12:00+02:00",
        ["2024-10-27T02:30+02:00", "2024-10-28T02:30+01:00"],
        id="a fixed time in a fold fires in the first pass only",
    ),
    pytest.param(
        "30 2 * * *",
        "Europe/Berlin",
        "2024-10-27T02:10+01:00",
        ["2024-10-28T02:30+01:00"],
        id="a fixed time is over when the second pass has begun",
    ),
    pytest.param(
        "*/30 2 * * *",
        "Europe/Berlin",
        "2024-03-30T12:00+01:00",
        ["2024-04-01T02:00+02:00", "2024-04-01T02:30+02:00"],
        id="a wildcard's times in a gap do not exist",
    ),
    pytest.param(
        "*/30 2 * * *",
        "Europe/Berlin",
        "2024-10-26T12:00+02:00",
        [
            "2024-10-27T02:00+02:00",
            "2024-10-27T02:30+02:00",
            "2024-10-27T02:00+01:00",
            "2024-10-27T02:30+01:00",
            "2024-10-28T02:00+01:00",
        ],
        id="a wildcard fires in both passes of a fold",
    ),
    pytest.param(
        "0,*/30 2 * * *",
        "Europe/Berlin",
        "2024-10-26T12:00+02:00",
        ["2024-10-27T02:00+02:00", "2024-10-27T02:30+02:00", "2024-10-28T02:00+01:00"],
        id="a star that is not the first character makes no wildcard",
    ),
    pytest.param(
        "* 30 2 * * *",
        "Europe/Berlin",
        "2024-03-31T00:00+01:00",
        ["2024-04-01T02:30:00+02:00", "2024-04-01T02:30:01+02:00"],
        id="a star in the seconds is a wildcard too",
    ),
    pytest.param(
        "10 30 2 * * *",
        "Europe/Berlin",
        "2024-03-31T00:00+01:00",
        ["2024-03-31T03:00:00+02:00", "2024-04-01T02:30:10+02:00"],
        id="after a gap the first instant counts, not the first with the right second",
    ),
    pytest.param(
        "0,15,45 2 * * *",
        "Australia/Lord_Howe",
        "2024-10-06T00:00+10:30",
        ["2024-10-06T02:30+11:00", "2024-10-06T02:45+11:00", "2024-10-07T02:00+11:00"],
        id="a gap of thirty minutes swallows half an hour",
    ),
    pytest.param(
        "*/15 1 * * *",
        "Australia/Lord_Howe",
        "2024-04-07T01:20+11:00",
        [
            "2024-04-07T01:30+11:00",
            "2024-04-07T01:45+11:00",
            "2024-04-07T01:30+10:30",
            "2024-04-07T01:45+10:30",
            "2024-04-08T01:00+10:30",
        ],
        id="a fold of thirty minutes repeats half an hour",
    ),
    pytest.param(
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T00:00-10:00",
        ["2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T12:00+14:00"],
        id="a day that was skipped whole is a gap like any other",
    ),
    pytest.param(
        "0 */6 30 12 *",
        "Pacific/Apia",
        "2011-12-29T00:00-10:00",
        ["2012-12-30T00:00+14:00"],
        id="a wildcard has nothing to do on a day that was skipped whole",
    ),
    pytest.param(
        "0 0 * * *",
        "America/Sao_Paulo",
        "2018-11-03T12:00-03:00",
        ["2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"],
        id="a day without midnight starts at one",
    ),
    pytest.param(
        "0 0 * * *",
        "America/Sao_Paulo",
        "2018-02-16T12:00-02:00",
        ["2018-02-17T00:00-02:00", "2018-02-18T00:00-03:00"],
        id="an hour before midnight that comes twice does not double midnight",
    ),
    pytest.param(
        "30 0 0 * * *",
        "Europe/Berlin",
        "1893-03-31T12:00+00:53:28",
        ["1893-04-01T00:06:32+01:00", "1893-04-02T00:00:30+01:00"],
        id="local mean time ended in the middle of a minute",
    ),
    pytest.param(
        "0 0 */2 * MON",
        "UTC",
        "2024-01-01T00:00+00:00",
        ["2024-01-15T00:00+00:00", "2024-01-29T00:00+00:00", "2024-02-05T00:00+00:00"],
        id="a day field that starts with a star must match as well",
    ),
    pytest.param(
        "0 0 1-31 * MON",
        "UTC",
        "2024-01-01T00:00+00:00",
        ["2024-01-02T00:00+00:00", "2024-01-03T00:00+00:00"],
        id="1-31 is a restriction, and either day field may match",
    ),
    pytest.param(
        "0 0 13 * FRI",
        "UTC",
        "2024-09-07T00:00+00:00",
        ["2024-09-13T00:00+00:00", "2024-09-20T00:00+00:00", "2024-09-27T00:00+00:00"],
        id="two restricted day fields: either may match",
    ),
    pytest.param(
        "0 0 1W * ?",
        "UTC",
        "2024-05-20T00:00+00:00",
        ["2024-06-03T00:00+00:00", "2024-07-01T00:00+00:00", "2024-08-01T00:00+00:00"],
        id="the workday nearest to a Saturday the 1st stays in the month",
    ),
    pytest.param(
        "0 0 31W * ?",
        "UTC",
        "2024-03-01T00:00+00:00",
        ["2024-03-29T00:00+00:00", "2024-05-31T00:00+00:00", "2024-07-31T00:00+00:00"],
        id="31W skips months without a 31st and stays in the month",
    ),
    pytest.param(
        "0 0 LW * ?",
        "UTC",
        "2024-05-20T00:00+00:00",
        ["2024-05-31T00:00+00:00", "2024-06-28T00:00+00:00", "2024-07-31T00:00+00:00"],
        id="LW is the last workday",
    ),
    pytest.param(
        "0 0 L 2 ?",
        "UTC",
        "2023-01-01T00:00+00:00",
        ["2023-02-28T00:00+00:00", "2024-02-29T00:00+00:00"],
        id="L knows leap years",
    ),
    pytest.param(
        "0 0 ? * FRI#5",
        "UTC",
        "2024-04-01T00:00+00:00",
        ["2024-05-31T00:00+00:00", "2024-08-30T00:00+00:00"],
        id="months without a fifth Friday are passed over",
    ),
    pytest.param(
        "0 0 ? * 7L",
        "UTC",
        "2024-05-01T00:00+00:00",
        ["2024-05-26T00:00+00:00", "2024-06-30T00:00+00:00"],
        id="7L is the last Sunday",
    ),
    pytest.param(
        "0 0 * * FRI-SUN",
        "UTC",
        "2024-05-01T00:00+00:00",
        [f"2024-05-{day:02}T00:00+00:00" for day in (3, 4, 5, 10)],
        id="FRI-SUN is a weekend",
    ),
    pytest.param(
        "0 0 * * SUN-SUN",
        "UTC",
        "2024-05-01T00:00+00:00",
        ["2024-05-05T00:00+00:00", "2024-05-12T00:00+00:00"],
        id="a range from Sunday to Sunday is one Sunday, as 0-0 is",
    ),
    pytest.param(
        "0 0 * * 7/2",
        "UTC",
        "2024-05-01T00:00+00:00",
        ["2024-05-05T00:00+00:00", "2024-05-12T00:00+00:00"],
        id="a step that starts on day 7 has Sunday at least",
    ),
    pytest.param(
        "0 0 ? 2 SUN#5",
        "UTC",
        "2060-03-01T00:00+00:00",
        ["2088-02-29T00:00+00:00", "2128-02-29T00:00+00:00"],
        id="a Sunday the 29th of February is forty years away when a century has no leap day",
    ),
]


@pytest.mark.parametrize(("expr", "zone", "after", "expected"), WORKED_OUT_BY_HAND)
class TestWorkedOutByHand:
    """Oracle and engine both give what a person with a calendar would."""

    def test_the_oracle_agrees(self, expr, zone, after, expected):
        [moment, *expected_moments] = seen_in(zone, after, *expected)

        for expected_moment in expected_moments:
            found = brute_force.next_after(expr, ZoneInfo(zone), moment)
            assert found == brute_force.instant_of(expected_moment)
            moment = expected_moment

    def test_the_engine_agrees(self, expr, zone, after, expected):
        [moment, *expected_moments] = seen_in(zone, after, *expected)

        found = Cron.parse(expr, tz=zone).take(len(expected), moment)

        assert instants(found) == instants(expected_moments)


class TestTheOracle:
    """The clever half of the oracle, which resolves wall times, equals the stupid half."""

    @pytest.mark.parametrize("zone", [name for name in ZONES if name != "UTC"])
    @pytest.mark.parametrize("expr", ["*/7 */13 * * * *", "0 */5 0-3 * * *", "0 30 */2 30 * *"])
    def test_scanning_every_second_finds_the_same_firings(self, zone, expr):
        changes = changes_of(ZoneInfo(zone))
        change = changes[hash_free(zone + expr) % len(changes)]
        start, end = change.at - 3 * 3600, change.at + 3 * 3600

        found = brute_force.firings(expr, ZoneInfo(zone), start, end)

        assert found == brute_force.scan(expr, ZoneInfo(zone), start, end)


def hash_free(text: str) -> int:
    """Pick by text, the same in every process."""
    return sum(text.encode())


# ---------------------------------------------------------------- engine against oracle


class TestNext:
    """`next` is the first firing strictly later, `prev` the last one strictly earlier."""

    def test_next_is_the_oracles_next(self):
        for case in cases("next", 1_500):
            found = case.cron.next(case.moment)

            assert instant_or_none(found) == brute_force.next_after(*case), case

    def test_prev_is_the_oracles_prev(self):
        for case in cases("prev", 1_500):
            found = case.cron.prev(case.moment)

            assert instant_or_none(found) == brute_force.prev_before(*case), case

    def test_the_answer_is_a_whole_second_in_the_crons_own_zone(self):
        for case in cases("shape", 500):
            found = case.cron.next(case.moment)

            if found is not None:
                assert found.microsecond == 0, case
                assert str(found.tzinfo) == case.zone.key, case
                # Right fold, and never a wall time that does not exist:
                seen_again = found.astimezone(UTC).astimezone(case.zone)
                assert seen_again.isoformat() == found.isoformat(), case

    def test_next_ts_is_next_in_seconds(self):
        for case in cases("next_ts", 500):
            found = case.cron.next_ts(brute_force.instant_of(case.moment))

            assert found == instant_or_none(case.cron.next(case.moment)), case

    def test_a_zone_and_its_name_mean_the_same(self):
        for case in cases("zone", 200):
            by_name = Cron.parse(case.expr, tz=case.zone.key)

            assert by_name == case.cron, case
            assert by_name.next(case.moment) == case.cron.next(case.moment), case


class TestMatches:
    """`matches` is true at firings and nowhere else."""

    def test_it_agrees_with_the_oracle_around_a_moment(self):
        for case in cases("around", 500):
            for distance in (-3600, -1800, -60, -1, 0, 1, 60, 1800, 3600):
                near = later(case.moment, distance, case.zone)

                expected = brute_force.fires_at(case.expr, case.zone, near)
                assert case.cron.matches(near) is expected, (case, near)

    def test_it_is_true_at_firings_seen_from_any_zone(self):
        for case in cases("at firings", 800):
            instant = brute_force.next_after(*case)
            if instant is None:
                continue
            for seen_from in (case.zone, UTC, ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata")):
                firing = brute_force.moment_of(instant, case.zone).astimezone(seen_from)

                assert case.cron.matches(firing), case

    def test_a_moment_with_a_fraction_never_matches(self):
        for case in cases("fraction", 200):
            every_second = Cron.parse("* * * * * *", tz=case.zone)

            assert every_second.matches(case.moment.replace(microsecond=0)), case
            assert not every_second.matches(case.moment.replace(microsecond=1)), case


@pytest.mark.parametrize("zone", [ZoneInfo(name) for name in ZONES if name != "UTC"], ids=str)
class TestEveryChange:
    """At each change of offset since 1880, the rule for it holds."""

    def test_a_fixed_time_in_a_fold_is_its_first_pass(self, zone):
        for wall, first, second in folded_walls(zone):
            cron = Cron.parse(f"{wall:%S %M %H %d %m} *", tz=zone)

            assert cron.matches(first), cron
            assert not cron.matches(second), cron
            assert instant_or_none(cron.next(later(first, -1, zone))) == instants([first])[0], cron
            assert instant_or_none(cron.next(first)) != instants([second])[0], cron
            assert instant_or_none(cron.prev(second)) == instants([first])[0], cron
            assert instants(cron.between(first, second)) == instants([first]), cron

    def test_a_wildcard_in_a_fold_is_both_passes(self, zone):
        for wall, *passes in folded_walls(zone):
            cron = Cron.parse(f"*/59,{wall:%S %M %H %d %m} *", tz=zone)

            assert all(map(cron.matches, passes)), cron
            assert set(instants(passes)) <= set(instants(cron.between(*passes))), cron

    def test_a_fixed_time_in_a_gap_is_the_first_instant_after_it(self, zone):
        for wall, end in skipped_walls(zone):
            cron = Cron.parse(f"{wall:%S %M %H %d %m} *", tz=zone)
            day_before, day_after = later(end, -86_400, zone), later(end, 86_400, zone)

            assert cron.matches(end), cron
            assert instant_or_none(cron.next(day_before)) == instants([end])[0], cron
            assert instant_or_none(cron.prev(day_after)) == instants([end])[0], cron
            assert instants(cron.between(day_before, day_after)) == instants([end]), cron

    def test_a_wildcard_in_a_gap_is_nothing(self, zone):
        for wall, end in skipped_walls(zone):
            cron = Cron.parse(f"*/59,{wall:%S %M %H %d %m} *", tz=zone)
            shown = [
                found.replace(tzinfo=None) for found in cron.between(later(end, -99, zone), end)
            ]

            assert wall not in shown, cron
            assert cron.matches(end) is brute_force.fires_at(cron.expr, zone, end), cron


def folded_walls(zone: ZoneInfo) -> Iterator[tuple[datetime, datetime, datetime]]:
    """Give one wall time from each fold, with both instants at which clocks showed it."""
    for change in changes_of(zone):
        if not change.is_gap:
            wall = brute_force.wall_of(change.at, change.after + (change.before - change.after) / 3)
            first, second = brute_force.instants_showing(wall.replace(microsecond=0), zone)
            yield (
                wall.replace(microsecond=0),
                brute_force.moment_of(first, zone),
                brute_force.moment_of(second, zone),
            )


def skipped_walls(zone: ZoneInfo) -> Iterator[tuple[datetime, datetime]]:
    """Give one wall time from each gap, with the first instant after the gap."""
    for change in changes_of(zone):
        if change.is_gap:
            wall = brute_force.wall_of(
                change.at, change.before + (change.after - change.before) / 3
            )
            yield wall.replace(microsecond=0), brute_force.moment_of(change.at, zone)


class TestBetween:
    """`between` gives every firing in a window, ends included, in order, once."""

    def test_a_window_of_hours_holds_what_the_oracle_finds(self):
        for n, case in enumerate(cases("hours", 500)):
            end = later(case.moment, (n * 97) % 21_600, case.zone)

            found = case.cron.between(case.moment, end)

            assert instants(found) == oracle_between(case, end), (case, end)

    def test_a_window_of_months_holds_what_the_oracle_finds(self):
        for n, case in enumerate(cases("months", 100)):
            minute, *rest = case.expr.split()[-5:]
            sparse = case._replace(expr=" ".join(["30" if "*" in minute else minute, *rest]))
            end = later(case.moment, (n % 50) * 86_400, case.zone)

            found = sparse.cron.between(case.moment, end)

            assert instants(found) == oracle_between(sparse, end), (sparse, end)

    def test_counting_is_listing_without_the_list(self):
        for n, case in enumerate(cases("count", 300)):
            end = later(case.moment, (n * 9_973) % 400_000, case.zone)

            count = case.cron.count_between(case.moment, end)

            assert count == len(list(case.cron.between(case.moment, end))), (case, end)

    def test_both_ends_are_included(self):
        for case in cases("ends", 300):
            firings = case.cron.take(3, case.moment)
            if len(firings) == 3:
                found = case.cron.between(firings[0], firings[2])

                assert instants(found) == instants(firings), case

    def test_a_window_that_ends_before_it_starts_is_empty(self):
        for case in cases("empty", 100):
            earlier = later(case.moment, -86_400, case.zone)

            assert list(case.cron.between(case.moment, earlier)) == [], case


class TestTake:
    """`take` is `next`, again and again."""

    def test_it_is_the_oracles_next_repeated(self):
        for case in cases("take", 250):
            found = case.cron.take(5, case.moment)

            assert instants(found) == oracle_take(case, 5), case

    def test_prev_walks_the_same_way_back(self):
        for case in cases("back", 500):
            there = case.cron.take(5, case.moment)
            if len(there) < 5:
                continue

            back = [there[-1]]
            while len(back) < 5:
                earlier = case.cron.prev(back[-1])
                assert earlier is not None, case
                back.append(earlier)

            assert instants(reversed(back)) == instants(there), case

    def test_a_count_of_zero_gives_nothing(self):
        assert list(Cron.parse("* * * * *").take(0, datetime(2026, 1, 1, tzinfo=UTC))) == []


def later(moment: datetime, seconds: int, zone: ZoneInfo) -> datetime:
    """Add elapsed time. Adding to an aware datetime would add to its wall time."""
    return (moment.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(zone)


def oracle_between(case: Case, end: datetime) -> list[int]:
    first = brute_force.instant_of(case.moment) + (case.moment.microsecond > 0)
    return brute_force.firings(case.expr, case.zone, first, brute_force.instant_of(end))


def oracle_take(case: Case, count: int) -> list[int]:
    taken: list[int] = []
    moment = case.moment
    while len(taken) < count:
        instant = brute_force.next_after(case.expr, case.zone, moment)
        if instant is None:
            break
        taken.append(instant)
        moment = brute_force.moment_of(instant, case.zone)
    return taken


# ---------------------------------------------------------------- a value


class TestValue:
    """A cron is a value: equal to its copies, also after pickling."""

    def test_a_pickled_cron_comes_back_equal(self):
        for case in cases("pickle", 100):
            copy = pickle.loads(pickle.dumps(case.cron))

            assert copy == case.cron, case
            assert hash(copy) == hash(case.cron), case
            assert copy.next(case.moment) == case.cron.next(case.moment), case

    def test_zone_and_expression_tell_crons_apart(self):
        cron = Cron.parse("0 9 * * *", tz="Europe/Berlin")

        assert cron != Cron.parse("0 9 * * *", tz="Europe/Paris")
        assert cron != Cron.parse("0 8 * * *", tz="Europe/Berlin")

    def test_nothing_about_it_can_be_changed(self):
        cron = Cron.parse("0 9 * * *")

        with pytest.raises(AttributeError):
            cron.expr = "0 8 * * *"
        with pytest.raises(AttributeError):
            del cron.expr


# ---------------------------------------------------------------- H


def values_of(expr: str, *, field: str, key: str) -> list[int]:
    """Return the values that `H` stands for, read off the firings of one year."""
    cron = Cron.parse(expr, key=key)
    year = cron.between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, 23, tzinfo=UTC))
    return sorted({getattr(moment, field) for moment in year})


keys = settings(max_examples=100, derandomize=True, database=None, deadline=None)


class TestSpreading:
    """`H` is a number that depends on the key and on nothing else."""

    @keys
    @given(st.text(min_size=1, max_size=40))
    def test_any_key_gives_one_value_inside_the_field(self, key):
        assert values_of("H 4 1 1 *", field="minute", key=key)[0] in range(60)
        assert values_of("0 H 1 1 *", field="hour", key=key)[0] in range(24)
        assert values_of("0 0 H * *", field="day", key=key)[0] in range(1, 29)
        assert values_of("0 0 1 H *", field="month", key=key)[0] in range(1, 13)

    @keys
    @given(st.text(min_size=1, max_size=40))
    def test_a_range_bounds_the_value(self, key):
        [minute] = values_of("H(10-19) 4 1 1 *", field="minute", key=key)

        assert minute in range(10, 20)

    @keys
    @given(st.text(min_size=1, max_size=40), st.integers(2, 30))
    def test_a_step_starts_anywhere_and_keeps_its_distance(self, key, step):
        minutes = values_of(f"H/{step} 4 1 1 *", field="minute", key=key)

        assert minutes == list(range(60))[minutes[0] :: step]
        assert minutes[0] < step

    @keys
    @given(st.text(min_size=1, max_size=40), st.integers(2, 10))
    def test_a_step_in_a_range_stays_inside_it(self, key, step):
        minutes = values_of(f"H(20-40)/{step} 4 1 1 *", field="minute", key=key)

        assert minutes == list(range(41))[minutes[0] :: step]
        assert minutes[0] in range(20, 20 + step)

    def test_many_keys_spread_over_the_whole_field(self):
        minutes = {
            minute
            for n in range(600)
            for minute in values_of("H 4 1 1 *", field="minute", key=f"job-{n}")
        }

        assert len(minutes) == 60

    def test_fields_of_one_schedule_are_not_tied_to_each_other(self):
        pairs = set()
        for n in range(300):
            [moment] = Cron.parse("H H(0-23) 1 1 *", key=f"job-{n}").take(
                1, datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
            )
            pairs.add((moment.minute, moment.hour))

        assert len(pairs) > 200

    def test_another_process_agrees(self):
        program = (
            "from datetime import UTC, datetime\n"
            "from tickwork._domain.schedules.cron import Cron\n"
            "cron = Cron.parse('H H H * *', key='nightly report')\n"
            "print(cron.next(datetime(2026, 1, 1, tzinfo=UTC)).isoformat())\n"
        )
        answers = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={"PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }

        here = Cron.parse("H H H * *", key="nightly report").next(datetime(2026, 1, 1, tzinfo=UTC))
        assert here is not None
        assert answers == {f"{here.isoformat()}\n"}
