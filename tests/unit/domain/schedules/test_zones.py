"""Zones as integers say what the time zone database says."""

import os
import pickle
import random
import struct
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.zones import DAY, FIRST_TS, LAST_TS, UTC_ZONE, Zone, floor_ts
from tickwork.errors import InvalidSchedule, NaiveDatetime

# How much of the database is checked. TICKWORK_TEST_EFFORT=50 checks all of it.
EFFORT = int(os.environ.get("TICKWORK_TEST_EFFORT", "1"))
SHARE = max(50 // EFFORT, 1)

EPOCH = datetime(1970, 1, 1)
TRICKY = [
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Asia/Manila",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
]

quickly = settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # the other phases take minutes
)


# ---------------------------------------------------------------- the database, read by hand


@cache
def file_of(name):
    for folder in TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(name).read_bytes()


@cache
def zone_names():
    """One name for each zone: many are other names for the same file."""
    # Two names are links of the machine's own, and are refused.
    names = sorted(available_timezones() - {"localtime", "posixrules"})
    return sorted({file_of(name): name for name in names}.values())


@cache
def changes_of(name):
    """The offset changes that the file lists, as (at, before, after): see RFC 8536."""
    data = file_of(name)
    start = 0
    for size in (4, 8):  # the same twice: with 32 bits for old readers, then with 64
        counts = struct.unpack_from(">4s1s15x6l", data, start)[2:]
        isutcnt, isstdcnt, leapcnt, timecnt, typecnt, charcnt = counts
        start += 44
        body = start
        start += timecnt * (size + 1) + typecnt * 6 + charcnt
        start += leapcnt * (size + 4) + isstdcnt + isutcnt
    times = struct.unpack_from(f">{timecnt}q", data, body)
    kinds = struct.unpack_from(f">{timecnt}B", data, body + timecnt * 8)
    offsets = [
        struct.unpack_from(">lBB", data, body + timecnt * 9 + n * 6)[0] for n in range(typecnt)
    ]
    before = offsets[0]
    found = []
    for at, kind in zip(times, kinds, strict=True):
        if offsets[kind] != before and at > FIRST_TS:
            found.append((at, before, offsets[kind]))
        before = offsets[kind]
    return found


def offset_at(name, ts):
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=ts)
    offset = moment.astimezone(ZoneInfo(name)).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def some(things, seed):
    """Some of these things, the same ones on every machine."""
    return random.Random(seed).sample(things, -(-len(things) // SHARE))


# ---------------------------------------------------------------- spans


class TestSpans:
    """A span holds its instant, and its offset is the zone's offset throughout."""

    def test_no_zone_changes_twice_within_three_days(self):
        # The search for changes looks every three days, and rests on this.
        distances = {
            (second[0] - first[0]) / DAY: name
            for name in zone_names()
            for first, second in pairwise(changes_of(name))
        }

        assert min(distances.items()) > (3, "")

    def test_no_rule_for_the_future_changes_twice_within_three_days(self):
        footers = {file_of(name).rsplit(b"\n", 2)[1]: name for name in zone_names()}
        start, step = floor_ts(datetime(2095, 1, 1, tzinfo=UTC)), DAY // 2

        for name in footers.values():
            moments = range(start, start + 370 * DAY, step)
            offsets = [offset_at(name, ts) for ts in moments]
            changed = [n for n, (a, b) in enumerate(pairwise(offsets)) if a != b]

            assert all(b - a > 6 for a, b in pairwise(changed)), name

    def test_at_every_change_one_span_ends_and_another_begins(self):
        for name in zone_names():
            zone = Zone.named(name)
            for at, before, after in some(changes_of(name), name):
                ending, beginning = zone.span_at(at - 1), zone.span_at(at)

                assert (ending.end, ending.offset) == (at, before), (name, at)
                assert (beginning.start, beginning.offset) == (at, after), (name, at)
                assert beginning.seen >= at + before, (name, at)

    def test_around_every_change_it_agrees_with_zoneinfo(self):
        for name in some(zone_names(), "around"):
            zone = Zone.named(name)
            for at, _, _ in changes_of(name)[-12:]:
                for ts in (at - 1, at, at + 1):
                    assert zone.span_at(ts).offset == offset_at(name, ts), (name, ts)

    def test_at_any_instant_it_agrees_with_zoneinfo(self):
        source = random.Random("any instant")
        for name in zone_names():
            for _ in range(EFFORT):
                ts = source.randint(-5_000_000_000, 10_000_000_000)
                span = Zone.named(name).span_at(ts)

                assert span.start <= ts < span.end, (name, ts)
                assert span.offset == offset_at(name, ts), (name, ts)

    @pytest.mark.parametrize("name", TRICKY)
    def test_spans_follow_each_other_without_holes(self, name):
        zone = Zone.named(name)
        ts = floor_ts(datetime(2009, 1, 1, tzinfo=UTC))
        while ts < floor_ts(datetime(2014, 1, 1, tzinfo=UTC)):
            span, following = zone.span_at(ts), zone.span_at(zone.span_at(ts).end)

            assert following.start == span.end
            # A cut between two blocks is no change: clocks had just reached it.
            if following.offset == span.offset:
                assert following.seen == following.start + following.offset
            ts = span.end

    @pytest.mark.parametrize("ts", [FIRST_TS, FIRST_TS - DAY, LAST_TS, LAST_TS + DAY])
    @pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Pacific/Kiritimati"])
    def test_there_is_one_at_both_ends_of_time(self, name, ts):
        span = Zone.named(name).span_at(ts)

        assert span.start <= ts <= span.end

    def test_a_gap_is_wall_time_that_clocks_skip(self):
        span = Zone.named("Europe/Berlin").span_at(at("2026-03-29T01:00Z"))

        assert span.seen == wall("2026-03-29T02:00")
        assert span.start + span.offset == wall("2026-03-29T03:00")

    def test_a_fold_is_wall_time_that_was_seen_before(self):
        span = Zone.named("Europe/Berlin").span_at(at("2026-10-25T01:00Z"))

        assert span.seen == wall("2026-10-25T03:00")
        assert span.start + span.offset == wall("2026-10-25T02:00")


def at(text):
    return floor_ts(datetime.fromisoformat(text))


def wall(text):
    since = datetime.fromisoformat(text) - EPOCH
    return since.days * DAY + since.seconds


# ---------------------------------------------------------------- wall time


class TestWallTime:
    """A wall time becomes the instant when clocks first show it, or the first one after."""

    @pytest.mark.parametrize(
        ("name", "shown", "expected"),
        [
            pytest.param("UTC", "2026-03-29T02:30", "2026-03-29T02:30Z", id="no changes at all"),
            pytest.param(
                "Europe/Berlin", "2026-01-01T12:00", "2026-01-01T11:00Z", id="a plain day"
            ),
            pytest.param(
                "Europe/Berlin", "2026-03-29T01:59:59", "2026-03-29T00:59:59Z", id="before"
            ),
            pytest.param("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00Z", id="gap begins"),
            pytest.param("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T01:00Z", id="in a gap"),
            pytest.param("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00Z", id="gap ends"),
            pytest.param("Europe/Berlin", "2026-03-29T03:01", "2026-03-29T01:01Z", id="after"),
            pytest.param("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30Z", id="first pass"),
            pytest.param(
                "Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00Z", id="fold is over"
            ),
            pytest.param(
                "Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30Z", id="half-hour gap"
            ),
            pytest.param(
                "Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45Z", id="half-hour fold"
            ),
            pytest.param("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00Z", id="no such day"),
            pytest.param(
                "America/Sao_Paulo", "2018-11-04T00:00", "2018-11-04T03:00Z", id="midnight"
            ),
        ],
    )
    def test_worked_out_by_hand(self, name, shown, expected):
        if name == "Asia/Manila":
            expected = EPOCH + timedelta(seconds=wall(shown) - offset_at(name, wall(shown)))
            expected = f"{expected.isoformat()}Z"

        assert Zone.named(name).ts_of_wall(wall(shown)) == at(expected)

    @quickly
    @given(
        st.sampled_from(TRICKY),
        st.integers(0, 10_000),
        st.integers(-2 * DAY, 2 * DAY),
    )
    def test_near_a_change_clocks_agree(self, name, nth, distance):
        changes = changes_of(name)
        shown = changes[nth % len(changes)][0] + distance
        zone = Zone.named(name)

        found = zone.ts_of_wall(shown)

        naive = EPOCH + timedelta(seconds=shown)
        local = naive.replace(tzinfo=ZoneInfo(name), fold=0)
        if local.astimezone(UTC).astimezone(ZoneInfo(name)).replace(tzinfo=None) == naive:
            assert found == floor_ts(local)
        else:  # a gap
            assert found - 1 + offset_at(name, found - 1) < shown
            assert found + offset_at(name, found) > shown

    @quickly
    @given(st.sampled_from([*TRICKY, "UTC"]), st.integers(FIRST_TS, LAST_TS))
    def test_a_datetime_is_the_instant_it_was_made_of(self, name, ts):
        moment = Zone.named(name).datetime_at(ts)

        assert floor_ts(moment) == ts
        assert moment.utcoffset() == timedelta(seconds=Zone.named(name).span_at(ts).offset)


# ---------------------------------------------------------------- names


class TestNames:
    """A zone is found by its IANA name, or the error explains what is wrong."""

    def test_equal_names_give_the_same_object(self):
        assert Zone.named("Europe/Berlin") is Zone.named("Europe/Berlin")
        assert Zone.named(ZoneInfo("Europe/Berlin")) is Zone.named("Europe/Berlin")
        assert Zone.named(UTC) is Zone.named("UTC") is UTC_ZONE

    @pytest.mark.parametrize("name", ["UTC", "utc", "Z", "z"])
    def test_utc_has_several_names(self, name):
        assert Zone.named(name).name == "UTC"
        assert Zone.named(name).is_utc

    def test_its_datetimes_are_in_the_zone(self):
        assert (
            Zone.named("Asia/Kathmandu").datetime_at(0).isoformat() == "1970-01-01T05:30:00+05:30"
        )
        assert UTC_ZONE.datetime_at(0).tzinfo is UTC

    def test_it_travels_as_its_name(self):
        zone = Zone.named("Europe/Berlin")

        assert pickle.loads(pickle.dumps(zone)) is zone
        assert repr(zone) == "Zone('Europe/Berlin')"

    @pytest.mark.parametrize(
        ("name", "guess"),
        [
            ("Europe/Berln", "Europe/Berlin"),
            ("europe/berlin", "Europe/Berlin"),
            ("America/NewYork", "America/New_York"),
            ("Asia/Katmandoo", "Asia/Katmandu"),
        ],
    )
    def test_a_typo_gets_a_suggestion(self, name, guess):
        with pytest.raises(InvalidSchedule) as caught:
            Zone.named(name)

        assert caught.value.what == f"There is no time zone {name!r}."
        assert caught.value.fix == f"Did you mean {guess!r}?"

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("", id="nothing"),
            pytest.param(" ", id="a blank"),
            pytest.param("America", id="a folder"),
            pytest.param("../x", id="a way out"),
            pytest.param("/etc/passwd", id="a path"),
            pytest.param("zone.tab", id="a file that is no zone"),
            pytest.param("Europe/Berlin\0", id="a null byte"),
            pytest.param("Europe\\Berlin", id="a backslash"),
            pytest.param("\ud800", id="half a character"),
            pytest.param("+02:00", id="an offset"),
        ],
    )
    def test_anything_else_is_an_error(self, name):
        with pytest.raises(InvalidSchedule, match="There is no time zone"):
            Zone.named(name)

    def test_a_long_name_is_not_repeated_in_full(self):
        with pytest.raises(InvalidSchedule) as caught:
            Zone.named("x" * 10_000)

        assert len(caught.value.what) < 100

    @pytest.mark.parametrize("zone", [timezone(timedelta(hours=2)), 5, None, b"UTC"])
    def test_a_zone_without_a_name_is_an_error(self, zone: tzinfo):
        with pytest.raises(InvalidSchedule) as caught:
            Zone.named(zone)

        assert caught.value.what == f"{zone!r} has no IANA name."
        assert "ZoneInfo('Europe/Berlin')" in caught.value.fix

    def test_a_zone_from_a_file_without_a_key_is_an_error(self):
        with resources.files("tzdata.zoneinfo").joinpath("Europe", "Berlin").open("rb") as file:
            nameless = ZoneInfo.from_file(file)

        with pytest.raises(InvalidSchedule, match="has no IANA name"):
            Zone.named(nameless)


class TestInstants:
    """A datetime becomes the whole second at or before it, exactly, in any year."""

    @pytest.mark.parametrize(
        ("moment", "expected"),
        [
            (datetime(1970, 1, 1, tzinfo=UTC), 0),
            (datetime(1970, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC), 0),
            (datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC), -1),
            (datetime(2, 1, 1, tzinfo=UTC), FIRST_TS),
            (datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC), LAST_TS),
            (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), 1_792_888_200),
            (
                datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
                1_792_891_800,
            ),
        ],
    )
    def test_worked_out_by_hand(self, moment, expected):
        assert floor_ts(moment) == expected

    def test_a_naive_datetime_is_an_error(self):
        with pytest.raises(NaiveDatetime):
            floor_ts(datetime(2026, 1, 1))

    def test_the_ends_of_time_are_days_of_the_calendar(self):
        epoch = date(1970, 1, 1).toordinal()

        assert date.fromordinal(FIRST_TS // DAY + epoch) == date(2, 1, 1)
        assert date.fromordinal(LAST_TS // DAY + epoch) == date(9998, 12, 31)
