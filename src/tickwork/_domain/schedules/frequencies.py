"""The words of a chain: ``every_five_minutes``, ``daily_at``, ``weekdays`` and so on.

``Frequencies`` holds them for whoever carries a :class:`Timing`: the fluent builder, and
:class:`Timetable`, which carries nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, Final, Self, TypeVar

from tickwork._domain.schedules.bounds import Window, parse_time
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Instant, Interval, Once, whole_second
from tickwork._domain.schedules.pattern import (
    SYMBOLS,
    Said,
    Symbols,
    Values,
    field_text,
    said_by_dict,
)
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork._domain.schedules.timing import ChainBase, CronBase, FieldBase, RuleBase, Timing
from tickwork._domain.schedules.zones import EPOCH
from tickwork.errors import InvalidSchedule, suggest

F = TypeVar("F", bound="Frequencies")


class Frequencies(ABC):
    """Everything that can be said about when. Each word returns a new value.

    One frequency in a chain; ``seconds`` … ``months``, weekdays, windows and zones refine
    it, in any order.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def _timing(self) -> Timing:
        """What was said so far."""

    @abstractmethod
    def _timed(self, timing: Timing) -> Self:
        """The same with something more said."""

    @property
    def _symbols(self) -> Symbols:
        return SYMBOLS

    def _fields(self, word: str, **said: Values) -> Self:
        """A frequency of calendar fields: what is not named is any, the second is 0."""
        texts = {name: field_text(name, values) for name, values in said.items()}
        base = {"second": "0", "minute": "*", "hour": "*", "day": "*", "month": "*"}
        full = Said(**{**base, "weekday": "*", **texts})
        return self._timed(self._timing.based(word, FieldBase(said=full)))

    def _at(self, word: str, at: str | time, **said: Values) -> Self:
        moment = parse_time(at)
        return self._fields(
            word, second=moment.second, minute=moment.minute, hour=moment.hour, **said
        )

    def _refined(self, name: str, values: tuple[Values, ...]) -> Self:
        return self._timed(self._timing.refine(name, *values))

    # ------------------------------------------------------------ rules

    def cron(self, expr: str) -> Self:
        """By a cron expression: five fields, or six with seconds first."""
        # Parsed here to fail here; ``H`` gets its key later, so any will do.
        Cron.parse(expr, key="")
        return self._timed(self._timing.based("cron", CronBase(expr=expr)))

    def pattern(self, /, **fields: Values) -> Self:
        """By a dict pattern: ``minutes``, ``hours``, ``mday``, ``wday``, ``mon``, ``year``."""
        return self._timed(self._timing.based("pattern", FieldBase(said=said_by_dict(fields))))

    def symbol(self, name: str) -> Self:
        """By the name of a pattern, such as ``EVERY_DAY``."""
        fields = self._symbols.get(str(name))
        if fields is None:
            raise InvalidSchedule(
                f"There is no symbol {name!r}.",
                why=f"Known are {', '.join(sorted(self._symbols))}.",
                fix=suggest(name, self._symbols) or "Add it: app.symbols[...] = {...}",
            )
        return self._timed(self._timing.based("symbol", FieldBase(said=said_by_dict(fields))))

    def every(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        starting: Instant | None = None,
    ) -> Self:
        """Again and again in elapsed time, on the grid that ``starting`` lays out."""
        try:
            length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except (TypeError, ValueError, OverflowError) as fault:
            raise InvalidSchedule(
                f"every() was not given a length of time: {fault}.", fix="Say every(minutes=15)."
            ) from None
        rule = Interval(length=length, anchor=EPOCH if starting is None else whole_second(starting))
        return self._timed(
            self._timing.based("every", RuleBase(rule=rule, is_anchored=starting is not None))
        )

    def once(self, at: Instant) -> Self:
        """At a single instant."""
        rule = Once(at=whole_second(at))
        return self._timed(self._timing.based("once", RuleBase(rule=rule)))

    def on(self, rule: Schedule) -> Self:
        """By a rule made elsewhere: see ``tickwork.schedules``.

        A plain rule thinks in its own zone; a chain that names none, in this chain's.
        """
        if isinstance(rule, Timetable):
            return self._timed(self._timing.based("on", ChainBase(timing=rule.said)))
        if not isinstance(rule, Schedule):
            raise InvalidSchedule(
                f"on() was not given a rule, but {rule!r}.", fix="Say on(schedules.hourly())."
            )
        return self._timed(self._timing.based("on", RuleBase(rule=rule, is_zoned=True)))

    def _recurring(
        self,
        unit: Unit,
        grid: Said,
        *,
        interval: int,
        starting: Instant | None,
        weekdays: int | Iterable[int] = (),
        missing: str = "clamp",
    ) -> Self:
        if missing not in list(Missing):
            raise InvalidSchedule(
                f"missing={missing!r} is not known.", fix="Say 'clamp' or 'skip'."
            )
        rule = Recurrence(
            unit=unit,
            interval=interval,
            anchor=EPOCH if starting is None else whole_second(starting),
            weekdays=tuple(weekdays) if isinstance(weekdays, Iterable) else (weekdays,),
            missing=Missing(missing),
        )
        base = RuleBase(rule=rule, is_anchored=starting is not None, grid=grid)
        return self._timed(self._timing.based(_RECURRING[unit], base))

    # ------------------------------------------------------------ seconds

    def every_second(self) -> Self:
        """Every second."""
        return self._fields("every_second", second="*")

    def every_two_seconds(self) -> Self:
        """Every two seconds."""
        return self._fields("every_two_seconds", second="*/2")

    def every_five_seconds(self) -> Self:
        """Every five seconds."""
        return self._fields("every_five_seconds", second="*/5")

    def every_ten_seconds(self) -> Self:
        """Every ten seconds."""
        return self._fields("every_ten_seconds", second="*/10")

    def every_fifteen_seconds(self) -> Self:
        """Every fifteen seconds."""
        return self._fields("every_fifteen_seconds", second="*/15")

    def every_twenty_seconds(self) -> Self:
        """Every twenty seconds."""
        return self._fields("every_twenty_seconds", second="*/20")

    def every_thirty_seconds(self) -> Self:
        """Every thirty seconds."""
        return self._fields("every_thirty_seconds", second="*/30")

    # ------------------------------------------------------------ minutes

    def every_minute(self) -> Self:
        """Every minute."""
        return self._fields("every_minute")

    def every_two_minutes(self) -> Self:
        """Every two minutes."""
        return self._fields("every_two_minutes", minute="*/2")

    def every_three_minutes(self) -> Self:
        """Every three minutes."""
        return self._fields("every_three_minutes", minute="*/3")

    def every_four_minutes(self) -> Self:
        """Every four minutes."""
        return self._fields("every_four_minutes", minute="*/4")

    def every_five_minutes(self) -> Self:
        """Every five minutes."""
        return self._fields("every_five_minutes", minute="*/5")

    def every_ten_minutes(self) -> Self:
        """Every ten minutes."""
        return self._fields("every_ten_minutes", minute="*/10")

    def every_fifteen_minutes(self) -> Self:
        """Every fifteen minutes."""
        return self._fields("every_fifteen_minutes", minute="*/15")

    def every_twenty_minutes(self) -> Self:
        """Every twenty minutes."""
        return self._fields("every_twenty_minutes", minute="*/20")

    def every_thirty_minutes(self) -> Self:
        """Every thirty minutes."""
        return self._fields("every_thirty_minutes", minute="*/30")

    # ------------------------------------------------------------ hours

    def hourly(self) -> Self:
        """Every hour, on the hour."""
        return self._fields("hourly", minute=0)

    def every_hour(self) -> Self:
        """Every hour, on the hour: another name for :meth:`hourly`."""
        return self._fields("every_hour", minute=0)

    def hourly_at(self, *minutes: Values) -> Self:
        """Every hour, at these minutes."""
        texts = [field_text("minute", value) for value in minutes or (0,)]
        return self._fields("hourly_at", minute=",".join(text for text in texts if text))

    def every_two_hours(self) -> Self:
        """At 00:00, 02:00, 04:00 and so on."""
        return self._fields("every_two_hours", minute=0, hour="*/2")

    def every_three_hours(self) -> Self:
        """At 00:00, 03:00, 06:00 and so on."""
        return self._fields("every_three_hours", minute=0, hour="*/3")

    def every_four_hours(self) -> Self:
        """At 00:00, 04:00, 08:00 and so on."""
        return self._fields("every_four_hours", minute=0, hour="*/4")

    def every_six_hours(self) -> Self:
        """At 00:00, 06:00, 12:00 and 18:00."""
        return self._fields("every_six_hours", minute=0, hour="*/6")

    # ------------------------------------------------------------ days

    def daily(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
    ) -> Self:
        """At midnight; with ``interval``, every so many days, at the time of ``starting``."""
        if interval == 1 and starting is None:
            chain = self._at("daily", "00:00")
        else:
            chain = self._recurring(Unit.DAY, _MIDNIGHT, interval=interval, starting=starting)
        return _ended(chain, until, max_firings)

    def daily_at(self, at: str | time) -> Self:
        """Every day at this time."""
        return self._at("daily_at", at)

    def twice_daily(self, first: int = 1, second: int = 13) -> Self:
        """Every day at these two hours."""
        return self._fields("twice_daily", minute=0, hour=[first, second])

    def weekly(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
        weekdays: int | Iterable[int] = (),
    ) -> Self:
        """On Sunday at midnight; with ``interval``, every so many weeks."""
        if interval == 1 and starting is None and not weekdays:
            chain = self._at("weekly", "00:00", weekday=0)
        else:
            chain = self._recurring(
                Unit.WEEK,
                _MIDNIGHT if weekdays else _MIDNIGHT._replace(weekday="0"),
                interval=interval,
                starting=starting,
                weekdays=weekdays,
            )
        return _ended(chain, until, max_firings)

    def weekly_on(self, weekday: Values, at: str | time = "00:00") -> Self:
        """On this weekday (0 and 7 are Sunday), or these, at this time."""
        return self._at("weekly_on", at, weekday=weekday)

    def monthly(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
        missing: str = "clamp",
    ) -> Self:
        """On the 1st at midnight; with ``interval``, every so many months.

        ``missing`` says what becomes of a 31st in a short month: ``clamp`` or ``skip``.
        """
        if interval == 1 and starting is None:
            chain = self._at("monthly", "00:00", day=1)
        else:
            chain = self._recurring(
                Unit.MONTH,
                _MIDNIGHT._replace(day="1"),
                interval=interval,
                starting=starting,
                missing=missing,
            )
        return _ended(chain, until, max_firings)

    def monthly_on(self, day: Values = 1, at: str | time = "00:00") -> Self:
        """On this day of the month, or these, at this time."""
        return self._at("monthly_on", at, day=day)

    def twice_monthly(self, first: int = 1, second: int = 16, at: str | time = "00:00") -> Self:
        """On these two days of the month."""
        return self._at("twice_monthly", at, day=[first, second])

    def last_day_of_month(self, at: str | time = "00:00") -> Self:
        """On the last day of the month, at this time."""
        return self._at("last_day_of_month", at, day="L")

    def quarterly(self) -> Self:
        """On 1 January, 1 April, 1 July and 1 October, at midnight."""
        return self._at("quarterly", "00:00", day=1, month=[1, 4, 7, 10])

    def yearly(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
        missing: str = "clamp",
    ) -> Self:
        """On 1 January at midnight; with ``interval``, every so many years."""
        if interval == 1 and starting is None:
            chain = self._at("yearly", "00:00", day=1, month=1)
        else:
            chain = self._recurring(
                Unit.YEAR,
                _MIDNIGHT._replace(day="1", month="1"),
                interval=interval,
                starting=starting,
                missing=missing,
            )
        return _ended(chain, until, max_firings)

    def yearly_on(self, month: int, day: int = 1, at: str | time = "00:00") -> Self:
        """On this date of every year, at this time."""
        return self._at("yearly_on", at, day=day, month=month)

    # ------------------------------------------------------------ refinements

    def seconds(self, *values: Values) -> Self:
        """Only at these seconds of the minute."""
        return self._refined("second", values)

    def minutes(self, *values: Values) -> Self:
        """Only at these minutes of the hour."""
        return self._refined("minute", values)

    def hours(self, *values: Values) -> Self:
        """Only in these hours of the day."""
        return self._refined("hour", values)

    def days(self, *values: Values) -> Self:
        """Only on these days of the month."""
        return self._refined("day", values)

    def months(self, *values: Values) -> Self:
        """Only in these months."""
        return self._refined("month", values)

    def weekdays(self) -> Self:
        """Monday to Friday."""
        return self._timed(self._timing.add_weekdays("1-5"))

    def weekends(self) -> Self:
        """Saturday and Sunday."""
        return self._timed(self._timing.add_weekdays("0,6"))

    def sundays(self) -> Self:
        """On Sundays."""
        return self._timed(self._timing.add_weekdays("0"))

    def mondays(self) -> Self:
        """On Mondays."""
        return self._timed(self._timing.add_weekdays("1"))

    def tuesdays(self) -> Self:
        """On Tuesdays."""
        return self._timed(self._timing.add_weekdays("2"))

    def wednesdays(self) -> Self:
        """On Wednesdays."""
        return self._timed(self._timing.add_weekdays("3"))

    def thursdays(self) -> Self:
        """On Thursdays."""
        return self._timed(self._timing.add_weekdays("4"))

    def fridays(self) -> Self:
        """On Fridays."""
        return self._timed(self._timing.add_weekdays("5"))

    def saturdays(self) -> Self:
        """On Saturdays."""
        return self._timed(self._timing.add_weekdays("6"))

    # ------------------------------------------------------------ zone, windows, ends

    def timezone(self, zone: str | tzinfo) -> Self:
        """Read all fields and windows in this zone."""
        return self._timed(self._timing.zoned(zone))

    def between(self, first: str | time, last: str | time) -> Self:
        """Only from ``first`` to ``last`` of the day, both included; may pass midnight."""
        return self._timed(self._timing.windowed(between=Window.parse(first, last)))

    def unless_between(self, first: str | time, last: str | time) -> Self:
        """Never from ``first`` to ``last`` of the day."""
        return self._timed(self._timing.windowed(unless=Window.parse(first, last)))

    def except_on(self, *dates: date | str | Iterable[date | str]) -> Self:
        """Never on these dates."""
        return self._timed(self._timing.windowed(dates=_dates(dates)))

    def starting(self, at: Instant) -> Self:
        """Not before this instant."""
        return self._timed(self._timing.bounded(starting=whole_second(at)))

    def until(self, at: Instant) -> Self:
        """Not after this instant."""
        return self._timed(self._timing.bounded(until=whole_second(at, is_end=True)))

    def max_firings(self, count: int) -> Self:
        """At most this many times."""
        return self._timed(self._timing.bounded(max_firings=count))


_NOTHING: Final = Timing()


@dataclass(frozen=True, slots=True)
class Timetable(Frequencies):
    """A chain of words that is a rule: every word gives another one.

    >>> from datetime import UTC, datetime
    >>> office = Timetable().every_five_minutes().hours(range(9, 18)).weekdays()
    >>> office.describe()
    'every 5 minutes during hours 9 to 17 on Monday to Friday (UTC)'
    >>> Timetable().weekdays().describe()
    'at 00:00 on Monday to Friday (UTC)'
    """

    said: Timing = _NOTHING
    # Named patterns that symbol() accepts. They are no part of the rule, so equality ignores them.
    symbols: Symbols | None = field(default=None, repr=False, compare=False)

    @property
    def _timing(self) -> Timing:
        return self.said

    def _timed(self, timing: Timing) -> Self:
        return type(self)(timing, self.symbols)

    @property
    def _symbols(self) -> Symbols:
        return SYMBOLS if self.symbols is None else self.symbols

    def rule(self, *, key: str | None = None) -> Schedule:
        """The plain rule that was said; ``key`` is what ``H`` hashes."""
        return self.said.rule(key=key)

    @property
    def tz(self) -> str:
        """The name of the zone in which the rule thinks."""
        # Not by making the rule: a chain is a Schedule before it has an anchor or a key.
        return self.said.zone_name()

    def next_after(self, after: datetime) -> datetime | None:
        """The first instant strictly after this one; None when there is no more."""
        return self.rule().next_after(after)

    def prev_before(self, before: datetime) -> datetime | None:
        """The last instant strictly before this one; None when there was none."""
        return self.rule().prev_before(before)

    def count_between(self, first: datetime, last: datetime) -> int:
        """How many instants there are from ``first`` to ``last``, both included."""
        return self.rule().count_between(first, last)

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        """The next ``count`` instants after this one; fewer when the rule ends."""
        return self.rule().preview(count, after=after)

    def describe(self) -> str:
        """The rule in plain English."""
        return self.rule().describe()

    def to_text(self) -> str:
        """The rule as text, for a row to hold."""
        return self.rule().to_text()


def _ended(chain: F, until: Instant | None, max_firings: int | None) -> F:
    chain = chain if until is None else chain.until(until)
    return chain if max_firings is None else chain.max_firings(max_firings)


_MIDNIGHT: Final = Said("0", "0", "0")
_RECURRING: Final = {
    Unit.DAY: "daily",
    Unit.WEEK: "weekly",
    Unit.MONTH: "monthly",
    Unit.YEAR: "yearly",
}


def _dates(given: Iterable[Any]) -> Iterable[date]:
    for item in given:
        if isinstance(item, datetime):
            raise InvalidSchedule(f"{item} is an instant, not a date.", fix="Use its .date().")
        if isinstance(item, date):
            yield item
        elif isinstance(item, str):
            try:
                yield date.fromisoformat(item)
            except ValueError:
                raise InvalidSchedule(
                    f"{item!r} is not a date.", fix="Write it as '2026-12-25'."
                ) from None
        elif isinstance(item, Iterable):
            yield from _dates(item)
        else:
            raise InvalidSchedule(f"{item!r} is not a date.", fix="Write it as '2026-12-25'.")
