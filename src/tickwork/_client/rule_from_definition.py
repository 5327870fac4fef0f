"""From what a definition says about when to a rule, and to its first instant."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from tickwork._client.schedule_definition import Rule
from tickwork._domain.firings import first_due
from tickwork._domain.job import ScheduleRow
from tickwork._domain.schedules.bounds import Bounded
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.frequencies import Frequencies, Timetable
from tickwork._domain.schedules.interval import Once, whole_second
from tickwork._domain.schedules.pattern import Values
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.timing import NOTHING_SAID, FieldBase, RuleBase, Timing
from tickwork.errors import InvalidSchedule

Symbols = Mapping[str, Mapping[str, Values]]

_RECURRING: Final = frozenset({"daily", "weekly", "monthly", "yearly"})
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Chain(Frequencies):
    """A chain of words that knows the application's own symbols."""

    said: Timing
    symbols: Symbols

    @property
    def _timing(self) -> Timing:
        return self.said

    def _timed(self, timing: Timing) -> Self:
        return replace(self, said=timing)

    @property
    def _symbols(self) -> Symbols:
        return self.symbols


def timing_of(
    rule: Rule | None,
    *,
    at: datetime | None,
    max_firings: int | None,
    timezone: str | None,
    symbols: Symbols,
) -> Timing:
    """What was said about when.

    Raises:
        InvalidSchedule: It is no rule, or it contradicts itself.
    """
    if rule is None:
        assert at is not None, "a definition says when"
        timing = Timetable().once(at).said
    else:
        timing = _said(rule, symbols)
        timing = timing if at is None else _starting(timing, at)
    if timezone is not None:
        if timing.zone not in {None, timezone}:
            raise InvalidSchedule(
                f"timezone={timezone!r} and a rule that thinks in {timing.zone!r}.",
                fix="Say the zone once.",
            )
        timing = timing.zoned(timezone)
    return timing if max_firings is None else timing.bounded(max_firings=max_firings)


def made_rule(timing: Timing, *, key: str, tz: str, anchor: datetime) -> Schedule:
    """The rule that was said, as whoever reads the row will see it.

    Raises:
        InvalidSchedule: It contradicts itself, or it cannot be kept as text.
    """
    return readable(timing.rule(key=key, tz=tz, anchor=anchor))


def readable(rule: Schedule) -> Schedule:
    """A rule that can be kept as text and read back: one of a user's own class cannot.

    Raises:
        InvalidSchedule: The rule is none that ``tickwork.schedules`` makes.
    """
    return from_text(rule.to_text())


def first_instant(
    rule: Schedule,
    *,
    now: datetime,
    until: datetime | None,
    starts_at: datetime | None,
    grace: timedelta,
    row: ScheduleRow | None = None,
) -> datetime | None:
    """When a schedule that somebody makes now falls due first; None when never.

    A single instant that has passed is due at once, as it is for a dispatch. A grid goes on
    at its next instant; that it was to start just now, and some of that time is gone, is no
    reason to leave its start out. Of a schedule that is there (``row``), what was decided on
    stays decided, and what lies in its pause is left out.
    """
    after = now
    if isinstance(rule, Once):
        after = min(now, rule.at - _SECOND)
    elif starts_at is not None and timedelta(0) <= now - starts_at <= grace:
        after = starts_at - _SECOND
    if row is not None:
        ends = row.paused_until if row.is_paused_at(now) else None
        after = max(filter(None, (after, row.last_fired_at, ends)))
    return first_due(rule, after=after, until=until)


def counted(rule: Schedule, max_firings: int | None, *, now: datetime) -> Schedule:
    """A rule that was stored, with another end: counted as before, or from now on."""
    if isinstance(rule, Bounded):
        starting = rule.starting or (None if max_firings is None else now)
        return replace(rule, max_firings=max_firings, starting=starting)
    return (
        rule if max_firings is None else Bounded(rule=rule, starting=now, max_firings=max_firings)
    )


def check_fires(name: str, rule: Schedule, first: datetime | None) -> None:
    """See that there is an instant left.

    Raises:
        InvalidSchedule: There is none.
    """
    if first is None:
        raise InvalidSchedule(
            f"The schedule {name!r} would never fire: {rule.describe()}.",
            fix="Look at the rule with preview(), and at what ends it.",
        )


def _said(rule: Any, symbols: Symbols) -> Timing:
    if isinstance(rule, Timetable):
        return rule.said
    if isinstance(rule, str):
        return _of_text(rule.strip(), symbols)
    if not isinstance(rule, Schedule):
        raise InvalidSchedule(
            f"{rule!r} is not a rule.",
            fix="Give one of tickwork.schedules, or a cron expression such as '0 9 * * 1-5'.",
        )
    return Timetable().on(rule).said


def _of_text(text: str, symbols: Symbols) -> Timing:
    if text.startswith("{"):
        return Timetable().on(from_text(text)).said
    chain = _Chain(Timing(), symbols)
    # A single word is a symbol, and its error names the close one.
    return (chain.symbol(text) if text.isidentifier() else chain.cron(text)).said


def _starting(timing: Timing, at: datetime) -> Timing:
    beginning = whole_second(at)
    if timing.starting not in {None, beginning}:
        raise InvalidSchedule(
            f"at={at} and a rule that is said to start at {timing.starting}.",
            fix="Say the beginning once.",
        )
    is_bare = timing.refined == NOTHING_SAID and isinstance(timing.base, FieldBase)
    if timing.word in _RECURRING and is_bare:
        # Left alone, daily() would be at midnight; from nine o'clock on, it is at nine.
        word = getattr(Timetable(), timing.word)
        return replace(timing, base=word(starting=beginning).said.base)
    if isinstance(timing.base, RuleBase) and getattr(timing.base.rule, "anchor", None) == beginning:
        return timing
    return timing.bounded(starting=beginning)
