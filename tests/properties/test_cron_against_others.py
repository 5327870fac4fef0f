"""Cron beside croniter and cronsim: thousands of answers, and a name for every difference.

Each case asks all three the same question. Where a rival's answer is not ours, the
brute-force oracle must say that ours is right, and the table of `DEVIATIONS` must know
why the rival differs. A difference without a known reason fails, and prints the case.

TICKWORK_TEST_EFFORT=20 pytest ... asks twenty times as many questions.
"""

import functools
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger
from croniter import CroniterBadCronError, CroniterBadDateError, croniter
from cronsim import CronSim, CronSimError

from oracle import brute_force
from oracle.brute_force import instant_of, moment_of
from tickwork._domain.schedules.cron import Cron
from tickwork.errors import CronError

EFFORT = int(os.environ.get("TICKWORK_TEST_EFFORT", "1"))

ZONES = [
    "Africa/Casablanca",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "UTC",
]
FIRST = instant_of(datetime(1971, 1, 1, tzinfo=UTC))
LAST = instant_of(datetime(2037, 12, 31, tzinfo=UTC))

# ---------------------------------------------------------------- questions


class Case(NamedTuple):
    """One question. Its repr is all that is needed to ask it again."""

    expr: str
    zone: ZoneInfo
    moment: datetime
    direction: Literal["next", "prev"]

    @property
    def meaning(self) -> brute_force.Meaning:
        return brute_force.read(self.expr)

    @property
    def fields(self) -> list[str]:
        """Second, minute, hour, day, month, weekday."""
        return ["0", *self.expr.split()][-6:]

    @property
    def has_two_day_rules(self) -> bool:
        """Say whether both day fields are restricted, so that either may match."""
        return not any(self.fields[n].startswith(("*", "?")) for n in (3, 5))

    def ours(self) -> int | None:
        cron = Cron.parse(self.expr, tz=self.zone)
        found = cron.next(self.moment) if self.direction == "next" else cron.prev(self.moment)
        return None if found is None else instant_of(found)

    def oracles(self, meaning: brute_force.Meaning | None = None) -> int | None:
        ask = brute_force.next_after if self.direction == "next" else brute_force.prev_before
        return ask(meaning or self.meaning, self.zone, self.moment)

    def __repr__(self) -> str:
        moment = f"datetime.fromisoformat({self.moment.isoformat()!r})"
        zone = f"ZoneInfo({self.zone.key!r})"
        return f"Case({self.expr!r}, {zone}, {moment}.astimezone({zone}), {self.direction!r})"


@functools.cache
def changes_of(zone: ZoneInfo) -> list[brute_force.Change]:
    return brute_force.offset_changes(zone, FIRST, LAST)


class Draw:
    """Draws questions in the part of the language that all three speak, or nearly so."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.one_of = self.random.choice

    def case(self) -> Case:
        zone = ZoneInfo(self.one_of(ZONES))
        near_hours = [0, 1, 2, 3, 12]
        if changes_of(zone) and self.random.random() < 0.4:
            change = self.one_of(changes_of(zone))
            instant = change.at + self.distance()
            hour = brute_force.wall_at(change.at, zone).hour
            near_hours = [(hour + n) % 24 for n in (-2, -1, 0, 0, 1)]
        else:
            instant = self.random.randint(FIRST, LAST)
        direction: Literal["next", "prev"] = "next" if self.random.random() < 0.6 else "prev"
        return Case(self.expression(near_hours), zone, moment_of(instant, zone), direction)

    def distance(self) -> int:
        edges = self.one_of([-3600, -1800, -60, -1, 0, 1, 60, 1800, 3600])
        near = self.random.randint(-10_800, 10_800)
        return self.one_of([edges, near, self.random.randint(-90_000, 90_000)])

    def expression(self, near_hours: list[int]) -> str:
        texts = [
            self.number_field(0, 59, favoured=[0, 0, 0, 15, 30, 45], open_share=0.15),
            self.number_field(0, 23, favoured=near_hours, open_share=0.3),
            self.day_field(),
            self.number_field(1, 12, favoured=[1, 2, 3, 10], open_share=0.75),
            self.weekday_field(),
        ]
        if self.random.random() < 0.2:
            texts.insert(0, self.number_field(0, 59, favoured=[0, 30], open_share=0.2))
        return " ".join(texts)

    def day_field(self) -> str:
        if self.random.random() < 0.04:
            return self.one_of(["L", "LW", "?", f"{self.random.randint(1, 31)}W"])
        return self.number_field(1, 31, favoured=[1, 15, 28, 29, 30, 31], open_share=0.65)

    def weekday_field(self) -> str:
        if self.random.random() < 0.06:
            day = self.one_of(["MON", "FRI", "SUN", "0", "3", "5", "7"])
            return self.one_of([day, "?", f"{day}L", f"{day}#{self.random.randint(1, 5)}"])
        return self.number_field(0, 7, favoured=[0, 1, 5, 7], open_share=0.65)

    def number_field(self, low: int, high: int, *, favoured: list[int], open_share: float) -> str:
        if self.random.random() < open_share:
            return "*"
        first, other = (
            self.one_of([self.one_of(favoured), self.random.randint(low, high)]) for _ in "ab"
        )
        low_end, high_end = sorted((first, other))
        step = self.random.randint(1, (high - low) // 2)
        shapes = [
            f"{first}",
            f"{first}",
            ",".join(map(str, sorted({first, other, self.random.randint(low, high)}))),
            f"{low_end}-{high_end}",
            f"{low_end}-{high_end}/{step}",
            f"{min(first, 6)}/{step}" if high == 7 else f"{first}/{step}",
            f"*/{step}",
        ]
        return self.one_of(shapes)


# ---------------------------------------------------------------- rivals


class Refused(NamedTuple):
    """The rival does not read this expression at all."""

    why: str


class Failed(NamedTuple):
    """The rival raised something that is no answer."""

    why: str


Answer = int | None | Refused | Failed


def ask_croniter(expr: str, moment: datetime, direction: str) -> Answer:
    try:
        # Both switches are croniter's own: seconds first, and Vixie's star rule.
        rival = croniter(
            expr,
            moment,
            ret_type=datetime,
            second_at_beginning=True,
            implement_cron_bug=True,
        )
    except CroniterBadCronError as error:
        return Refused(str(error))
    try:
        return instant_of(rival.get_next() if direction == "next" else rival.get_prev())
    except CroniterBadDateError:
        return None
    except Exception as error:  # noqa: BLE001  # whatever it raises is its answer
        return Failed(repr(error))


class StuckError(Exception):
    """It goes round in circles."""


class BoundedCronSim(CronSim):
    """A cronsim with a time limit: some of its loops never end."""

    ticks_left = 20_000

    def tick(self, seconds: int = 1) -> None:
        self.ticks_left -= 1
        if self.ticks_left < 0:
            raise StuckError
        super().tick(seconds)


def ask_cronsim(expr: str, moment: datetime, direction: str) -> Answer:
    if moment.tzinfo == ZoneInfo("UTC"):
        moment = moment.astimezone(UTC)  # it has a fast path for this one only
    try:
        rival = BoundedCronSim(expr, moment, reverse=direction == "prev")
    except CronSimError as error:
        return Refused(str(error))
    try:
        return instant_of(next(rival))
    except StopIteration:
        return None
    except Exception as error:  # noqa: BLE001
        return Failed(repr(error))


RIVALS: dict[str, Callable[[str, datetime, str], Answer]] = {
    "croniter": ask_croniter,
    "cronsim": ask_cronsim,
}


# ---------------------------------------------------------------- differences, by name


@dataclass(frozen=True)
class Deviation:
    """One way in which one rival differs from the written rule, and how to recognise it."""

    rival: str
    name: str
    explains: Callable[[Case, Answer, int | None], bool]
    # A question that shows it, with the rival's answer to it: ISO time, None, or a type.
    example: tuple[str, str, str, Literal["next", "prev"]]
    answer: str | type[Refused] | type[Failed] | None
    # Whether the rival gives our answer once every field is spelled out in plain numbers.
    is_spelling: bool = field(default=False, kw_only=True)


def is_in_second_pass(instant: int, zone: ZoneInfo) -> bool:
    passes = brute_force.instants_showing(brute_force.wall_at(instant, zone), zone)
    return len(passes) == 2 and passes[1] == instant


def gap_that_ended_within_a_minute(instant: int, zone: ZoneInfo) -> brute_force.Change | None:
    changes = brute_force.offset_changes(zone, instant - 59, instant)
    return changes[0] if changes and changes[0].is_gap else None


def is_odd(change: brute_force.Change, zone: ZoneInfo) -> bool:
    """Say whether clocks changed by a part of an hour, or in the middle of one."""
    wall = brute_force.wall_at(change.at, zone)
    return bool(wall.minute or wall.second or (change.after - change.before) % timedelta(hours=1))


def changes_near(case: Case, *answers: Answer) -> list[brute_force.Change]:
    instants = [instant_of(case.moment), *(each for each in answers if isinstance(each, int))]
    return brute_force.offset_changes(case.zone, min(instants) - 90_000, max(instants) + 90_000)


def midnight(change: brute_force.Change) -> datetime:
    """Return the last midnight before the clock's hands stood still, or where they landed."""
    landed = brute_force.wall_of(change.at, change.after) - timedelta(seconds=1)
    return landed.replace(hour=0, minute=0, second=0)


def is_against_the_clock(case: Case, ours: int) -> bool:
    """Say whether the answer is later, but its wall time is earlier; or the other way round."""
    start, answer = case.moment.replace(tzinfo=None), brute_force.wall_at(ours, case.zone)
    return answer <= start if case.direction == "next" else answer >= start


SPANS = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def items_of(text: str) -> list[tuple[str, str, str]]:
    """Split a field into its items, each as first, last and step."""
    split = []
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        split.append((first, last, step))
    return split


def has_range_of_one(case: Case) -> bool:
    """Say whether a range starts where it ends: `9-9`, or `59/2`, which is `59-59/2`."""
    return any(
        first == last or (step and not last and first == str(high))
        for text, (_, high) in zip(case.fields, SPANS, strict=True)
        for first, last, step in items_of(text)
    )


def has_special_weekday(case: Case) -> bool:
    return "#" in case.fields[5] or "L" in case.fields[5]


DEVIATIONS = [
    # ---- croniter: what it reads differently
    Deviation(
        "croniter",
        "reads a range of one value, such as 0-0, as the whole field",
        lambda case, _theirs, _ours: has_range_of_one(case),
        ("0 9 * * 0-0", "UTC", "2024-05-06T12:00+00:00", "next"),
        "2024-05-07T09:00+00:00",
        is_spelling=True,
    ),
    Deviation(
        "croniter",
        "does not know day 7 where there are six fields",
        lambda case, theirs, _ours: (
            isinstance(theirs, Refused)
            and len(case.expr.split()) == 6
            and any(
                "7" in {first.split("#")[0], last} for first, last, _ in items_of(case.fields[5])
            )
        ),
        ("0 0 9 * * 7", "UTC", "2024-05-06T12:00+00:00", "next"),
        Refused,
        is_spelling=True,
    ),
    Deviation(
        "croniter",
        "writes the last Friday as L5, not 5L",
        lambda case, theirs, _ours: isinstance(theirs, Refused) and "L" in case.fields[5],
        ("0 9 * * 5L", "UTC", "2024-05-06T12:00+00:00", "next"),
        Refused,
        is_spelling=True,
    ),
    Deviation(
        "croniter",
        "has no LW",
        lambda case, theirs, _ours: isinstance(theirs, Refused) and case.fields[3] == "LW",
        ("0 9 LW * *", "UTC", "2024-05-06T12:00+00:00", "next"),
        Refused,
    ),
    Deviation(
        "croniter",
        "moves 31W to the last workday of shorter months",
        lambda case, _theirs, _ours: case.fields[3] in {"29W", "30W", "31W"},
        ("0 9 31W * *", "UTC", "2024-04-06T12:00+00:00", "next"),
        "2024-04-30T09:00+00:00",
    ),
    Deviation(
        "croniter",
        "loses the day of week when the day of month says W",
        lambda case, _theirs, _ours: case.has_two_day_rules and case.fields[3].endswith("W"),
        ("0 9 15W * 1", "UTC", "2024-05-06T12:00+00:00", "next"),
        "2024-05-15T09:00+00:00",  # Monday the 13th was skipped
    ),
    Deviation(
        "croniter",
        "loses the day of month when the day of week says # or L",
        lambda case, _theirs, _ours: case.has_two_day_rules and has_special_weekday(case),
        ("0 9 13 * 5#2", "UTC", "2024-05-11T12:00+00:00", "next"),
        "2024-06-14T09:00+00:00",  # the 13th of May was skipped
    ),
    Deviation(
        "croniter",
        "gives up when one of two day fields alone never matches",
        lambda case, theirs, _ours: case.has_two_day_rules and theirs is None,
        ("0 0 31 2 1", "UTC", "2024-05-06T12:00+00:00", "next"),
        None,
    ),
    # ---- croniter: what it does when clocks change
    Deviation(
        "croniter",
        "runs fixed jobs twice in a fold",
        lambda case, theirs, _ours: (
            case.meaning.is_fixed
            and isinstance(theirs, int)
            and case.meaning.names(brute_force.wall_at(theirs, case.zone))
            and is_in_second_pass(theirs, case.zone)
        ),
        ("30 2 * * *", "Europe/Berlin", "2024-10-27T02:30+02:00", "next"),
        "2024-10-27T02:30+01:00",
    ),
    Deviation(
        "croniter",
        "runs wildcard jobs at the end of a gap",
        lambda case, theirs, _ours: (
            not case.meaning.is_fixed
            and isinstance(theirs, int)
            and (gap := gap_that_ended_within_a_minute(theirs, case.zone)) is not None
            and brute_force.firings(replace(case.meaning, is_fixed=True), case.zone, gap.at, gap.at)
            == [gap.at]
        ),
        ("* 2 * * *", "Europe/Berlin", "2024-03-31T01:12+01:00", "next"),
        "2024-03-31T03:00+02:00",
    ),
    Deviation(
        "croniter",
        "keeps the seconds of a time in a gap, and so runs late",
        lambda case, theirs, ours: (
            case.meaning.is_fixed
            and len(case.expr.split()) == 6
            and any(
                isinstance(answer, int) and gap_that_ended_within_a_minute(answer, case.zone)
                for answer in (theirs, ours)
            )
        ),
        ("44 30 2 * * *", "Europe/Berlin", "2024-03-31T01:12+01:00", "next"),
        "2024-03-31T03:00:44+02:00",
    ),
    Deviation(
        "croniter",
        "treats fixed jobs that name every hour as wildcards",
        lambda case, theirs, _ours: (
            case.meaning.is_fixed
            and len(case.meaning.hours) == 24
            and theirs == case.oracles(replace(case.meaning, is_fixed=False))
        ),
        ("15 0-23 * * *", "Europe/Dublin", "2016-03-27T00:43+00:00", "next"),
        "2016-03-27T02:15+01:00",
    ),
    Deviation(
        "croniter",
        "loses runs in a fold that the clock on the wall puts on the other side of the start",
        lambda case, _theirs, ours: ours is not None and is_against_the_clock(case, ours),
        ("*/25 * * * *", "Australia/Lord_Howe", "2001-03-25T01:52:01+11:00", "next"),
        "2001-03-25T02:00+10:30",  # 01:50 was skipped
    ),
    # ---- cronsim: what it reads differently
    Deviation(
        "cronsim",
        "has no ?",
        lambda case, theirs, _ours: isinstance(theirs, Refused) and "?" in case.expr,
        ("0 9 ? * 1", "UTC", "2024-05-06T12:00+00:00", "next"),
        Refused,
        is_spelling=True,
    ),
    Deviation(
        "cronsim",
        "has no names before L",
        lambda case, theirs, _ours: isinstance(theirs, Refused) and "L" in case.fields[5],
        ("0 9 * * FRIL", "UTC", "2024-05-06T12:00+00:00", "next"),
        Refused,
        is_spelling=True,
    ),
    Deviation(
        "cronsim",
        "reads a-a/n as a/n",
        lambda case, _theirs, _ours: any(
            first == last and step for text in case.fields for first, last, step in items_of(text)
        ),
        ("0 9-9/4 * * *", "UTC", "2024-05-06T12:00+00:00", "next"),
        "2024-05-06T13:00+00:00",
        is_spelling=True,
    ),
    Deviation(
        "cronsim",
        "lets weekday steps run on to day 7",
        lambda case, _theirs, _ours: any(
            first != "*" and not last and step for first, last, step in items_of(case.fields[5])
        ),
        ("0 9 * * 1/2", "UTC", "2024-05-04T12:00+00:00", "next"),
        "2024-05-05T09:00+00:00",
        is_spelling=True,
    ),
    Deviation(
        "cronsim",
        "has no W",
        lambda case, theirs, _ours: isinstance(theirs, Refused) and "W" in case.fields[3],
        ("0 9 15W * *", "UTC", "2024-05-06T12:00+00:00", "next"),
        Refused,
    ),
    Deviation(
        "cronsim",
        "refuses dates that never come",
        lambda _case, theirs, ours: isinstance(theirs, Refused) and ours is None,
        ("0 9 30 2 *", "UTC", "2024-05-06T12:00+00:00", "next"),
        Refused,
    ),
    # ---- cronsim: what it does when clocks change
    Deviation(
        "cronsim",
        "takes the second pass of a fold for the first when it starts there",
        lambda case, _theirs, _ours: (
            case.meaning.is_fixed and is_in_second_pass(instant_of(case.moment), case.zone)
        ),
        ("30 2 * * *", "Europe/Berlin", "2024-10-27T02:10+01:00", "next"),
        "2024-10-27T02:30+02:00",  # 40 minutes before the start
    ),
    Deviation(
        "cronsim",
        "treats fixed jobs with seconds as wildcards",
        lambda case, theirs, _ours: (
            case.meaning.is_fixed
            and len(case.expr.split()) == 6
            and theirs == case.oracles(replace(case.meaning, is_fixed=False))
        ),
        ("0 30 2 * * *", "Europe/Berlin", "2024-03-31T01:12+01:00", "next"),
        "2024-04-01T02:30+02:00",
    ),
    Deviation(
        "cronsim",
        "loses its way where clocks change by a part of an hour, or in the middle of one",
        lambda case, theirs, ours: (
            isinstance(theirs, int)
            and (not case.meaning.is_fixed or len(case.expr.split()) == 6)
            and any(is_odd(change, case.zone) for change in changes_near(case, theirs, ours))
        ),
        ("0 */7 * * *", "Australia/Lord_Howe", "2022-04-03T01:30+11:00", "next"),
        "2022-04-03T14:00+10:30",  # 07:00 was skipped
    ),
    Deviation(
        "cronsim",
        "enters a day through the wrong pass of a fold at midnight",
        lambda case, theirs, ours: (
            isinstance(theirs, int)
            and ours is not None
            and (
                is_in_second_pass(ours, case.zone)
                or is_in_second_pass(instant_of(case.moment), case.zone)
            )
        ),
        ("*/3 * 16 2 *", "America/Sao_Paulo", "2019-04-14T00:00-03:00", "prev"),
        "2019-02-16T23:57-02:00",  # the second 23:57 was skipped
    ),
    Deviation(
        "cronsim",
        "starts a day at a midnight that does not exist",
        lambda case, theirs, ours: (
            isinstance(theirs, int)
            and (not case.meaning.is_fixed or len(case.expr.split()) == 6)
            and any(change.skips(midnight(change)) for change in changes_near(case, theirs, ours))
        ),
        ("*/10 0,3 * * 0", "America/Sao_Paulo", "1993-10-16T23:30-03:00", "next"),
        "1993-10-17T01:00-02:00",
    ),
    Deviation(
        "cronsim",
        "goes round in circles where clocks change around midnight",
        lambda case, theirs, _ours: (
            theirs == Failed(repr(StuckError())) and bool(changes_near(case))
        ),
        ("0 17 * 28 * *", "America/St_Johns", "2001-10-27T23:31-03:30", "next"),
        Failed,
    ),
]

# ---------------------------------------------------------------- the comparison

_WEEKDAYS = {"SUN": "0", "MON": "1", "FRI": "5"}


def spelled_out(case: Case, rival: str) -> str:
    """Write the expression with plain numbers, as every rival reads them alike."""
    texts = []
    for number, (text, (low, high)) in enumerate(zip(case.fields, SPANS, strict=True)):
        if number == 5:
            texts.append(_weekday_spelled_out(text, rival))
        elif text[0] in "*?" or not text[-1].isdigit():
            texts.append(text.replace("?", "*"))
        else:
            texts.append(_numbers_spelled_out(text, low, high))
    return " ".join(texts[-len(case.expr.split()) :])


def _weekday_spelled_out(text: str, rival: str) -> str:
    for name, day in _WEEKDAYS.items():
        text = text.replace(name, day)
    if text[0] in "*?":
        return text.replace("?", "*")
    if "#" in text:
        return text.replace("7#", "0#")
    if "L" in text:
        day = str(int(text[:-1]) % 7)
        return f"L{day}" if rival == "croniter" else f"{day}L"
    return _numbers_spelled_out(text, 0, 6)


def _numbers_spelled_out(text: str, low: int, high: int) -> str:
    numbers: set[int] = set()
    for first, last, step in items_of(text):
        end = int(last or (high if step else first))
        numbers.update(range(int(first), end + 1, int(step or 1)))
    return ",".join(str(n % 7 if high == 6 else n) for n in sorted(numbers))


@dataclass
class Survey:
    """The results of all comparisons."""

    cases: int = 0
    near_a_change: int = 0
    agreed: Counter[str] = field(default_factory=Counter)
    deviated: Counter[tuple[str, str]] = field(default_factory=Counter)
    alone: list[Case] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)

    def ask(self, case: Case) -> None:
        ours = case.ours()
        answers = {rival: ask(*self._question(case)) for rival, ask in RIVALS.items()}
        agreeing = {rival for rival, theirs in answers.items() if theirs == ours}
        if len(agreeing) < len(RIVALS):
            self._confirm(case, ours)
        for rival in RIVALS.keys() - agreeing:
            if self._name(case, rival, answers[rival], ours):
                agreeing.add(rival)
        self.cases += 1
        self.near_a_change += is_near_a_change(case)
        self.agreed.update(agreeing)
        if not agreeing:
            self.alone.append(case)

    def _confirm(self, case: Case, ours: int | None) -> None:
        oracles = case.oracles()
        if ours != oracles:
            self.wrong.append(f"{case!r}\n  ours {ours}, the oracle's {oracles}")

    def _name(self, case: Case, rival: str, theirs: Answer, ours: int | None) -> bool:
        """Name the difference; say whether it was one of spelling only."""
        spelling = [each for each in DEVIATIONS if each.is_spelling and each.rival == rival]
        found = [each for each in spelling if each.explains(case, theirs, ours)]
        if found:
            self.deviated[rival, found[0].name] += 1
            theirs = RIVALS[rival](spelled_out(case, rival), case.moment, case.direction)
            if theirs == ours:
                return True
        for deviation in DEVIATIONS:
            if deviation.is_spelling or deviation.rival != rival:
                continue
            if deviation.explains(case, theirs, ours):
                self.deviated[rival, deviation.name] += 1
                return False
        self.nameless.append(f"{case!r}\n  {rival} says {shown(theirs, case.zone)}, not {ours}")
        return False

    @staticmethod
    def _question(case: Case) -> tuple[str, datetime, str]:
        return case.expr, case.moment, case.direction

    def __str__(self) -> str:
        lines = [
            f"{self.cases} cases, {self.near_a_change} of them near an offset change",
            f"agreed: {dict(self.agreed)}, compared with no other library: {len(self.alone)}",
            *(f"{n:6} {rival} {name}" for (rival, name), n in self.deviated.most_common()),
        ]
        return "\n".join(lines)


def is_near_a_change(case: Case) -> bool:
    at = instant_of(case.moment)
    return bool(brute_force.offset_changes(case.zone, at - 90_000, at + 90_000))


def shown(answer: Answer, zone: ZoneInfo) -> str:
    return f"{answer} ({moment_of(answer, zone)})" if isinstance(answer, int) else repr(answer)


@functools.cache
def survey() -> Survey:
    found = Survey()
    draw = Draw("croniter and cronsim")
    for _ in range(6_000 * EFFORT):
        found.ask(draw.case())
    return found


class TestAgainstOthers:
    """Cron gives what croniter and cronsim give, or knows by name why it does not."""

    def test_where_others_differ_the_oracle_sides_with_us(self):
        assert survey().wrong == []

    def test_every_difference_has_a_name(self):
        sys.stdout.write(f"{survey()}\n")  # pytest -rP shows it

        assert survey().nameless == []

    def test_almost_every_case_is_compared_with_another_library(self):
        found = survey()

        assert len(found.alone) < 0.05 * found.cases

    def test_cases_crowd_around_offset_changes(self):
        found = survey()

        assert found.near_a_change > 0.35 * found.cases


def question(deviation: Deviation) -> Case:
    expr, zone, moment, direction = deviation.example
    where = ZoneInfo(zone)
    return Case(expr, where, datetime.fromisoformat(moment).astimezone(where), direction)


@pytest.mark.parametrize(
    "deviation", [pytest.param(each, id=f"{each.rival} {each.name}") for each in DEVIATIONS]
)
class TestDeviations:
    """Each entry in the table is real: the rival does it, and we do not."""

    def test_the_rival_answers_as_the_table_says(self, deviation):
        case = question(deviation)

        theirs = RIVALS[deviation.rival](case.expr, case.moment, case.direction)

        if isinstance(deviation.answer, str):
            expected = datetime.fromisoformat(deviation.answer)
            assert theirs == instant_of(expected), shown(theirs, case.zone)
        elif deviation.answer is None:
            assert theirs is None
        else:
            assert isinstance(theirs, deviation.answer)

    def test_the_oracle_sides_with_us(self, deviation):
        case = question(deviation)

        theirs = RIVALS[deviation.rival](case.expr, case.moment, case.direction)

        assert case.ours() == case.oracles() != theirs

    def test_the_table_recognises_it(self, deviation):
        case = question(deviation)

        theirs = RIVALS[deviation.rival](case.expr, case.moment, case.direction)

        assert deviation.explains(case, theirs, case.ours())

    def test_spelling_it_out_helps_where_the_table_says_so(self, deviation):
        case = question(deviation)
        plain = spelled_out(case, deviation.rival)

        theirs = RIVALS[deviation.rival](plain, case.moment, case.direction)

        assert (theirs == case.ours()) is deviation.is_spelling


@pytest.mark.parametrize(
    ("expr", "reading"),
    [
        pytest.param("0 ٩ * * *", "2024-05-06T09:00+00:00", id="Arabic digits"),
        pytest.param("0 \uff19 * * *", "2024-05-06T09:00+00:00", id="fullwidth digits"),
        pytest.param("0 22-2 * * *", "2024-05-06T01:00+00:00", id="ranges that run backwards"),
        pytest.param("0 9 * * 5-1", "2024-05-06T09:00+00:00", id="weeks that run backwards"),
        pytest.param("0 9 0-0 * *", "2024-05-06T09:00+00:00", id="day 0 of the month"),
    ],
)
class TestReadByCroniterOnly:
    """What croniter reads without a word, Cron refuses: it may not mean what it seems to."""

    def test_croniter_reads_it(self, expr, reading):
        midnight = datetime(2024, 5, 6, tzinfo=UTC)

        theirs = ask_croniter(expr, midnight, "next")

        assert theirs == instant_of(datetime.fromisoformat(reading))

    def test_cron_refuses_it(self, expr, reading):
        with pytest.raises(CronError):
            Cron.parse(expr)


class TestAgainstApscheduler:
    """APScheduler 3 gets two things wrong in spring that Cron must not."""

    @staticmethod
    def theirs(expr: str, zone: ZoneInfo, after: datetime) -> datetime:
        trigger = CronTrigger.from_crontab(expr, timezone=zone)
        fires: datetime = trigger.get_next_fire_time(after, after + timedelta(seconds=1))
        return fires

    def test_it_skips_the_day_after_clocks_went_forward(self):
        berlin = ZoneInfo("Europe/Berlin")
        midnight = datetime(2024, 3, 31, tzinfo=berlin)

        assert self.theirs("0 0 * * *", berlin, midnight) == datetime(2024, 4, 2, tzinfo=berlin)
        assert Cron.parse("0 0 * * *", tz=berlin).next(midnight) == datetime(
            2024, 4, 1, tzinfo=berlin
        )

    def test_it_returns_a_time_that_does_not_exist(self):
        berlin = ZoneInfo("Europe/Berlin")
        noon = datetime(2024, 3, 30, 12, tzinfo=berlin)

        theirs = self.theirs("30 2 * * *", berlin, noon)
        ours = Cron.parse("30 2 * * *", tz=berlin).next(noon)

        assert theirs.isoformat() == "2024-03-31T02:30:00+01:00"
        assert theirs.astimezone(UTC).astimezone(berlin).isoformat() != theirs.isoformat()
        assert ours is not None
        assert ours.isoformat() == "2024-03-31T03:00:00+02:00"
