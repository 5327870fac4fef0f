"""The methods that define a schedule: ``every_five_minutes``, ``daily_at``, ``weekdays``, ….

``Frequencies`` is the base of the job builder and of ``schedules.Timetable``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, time, timedelta, tzinfo
from functools import wraps
from os import PathLike
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from tickwork._domain.schedules.bounds import Window, parse_time
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Instant, Interval, Once, whole_second
from tickwork._domain.schedules.pattern import (
    SYMBOLS,
    FieldTexts,
    Symbols,
    Values,
    field_text,
    parse_dict_pattern,
)
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork._domain.schedules.timing import Base, ChainBase, CronBase, FieldBase, RuleBase, Timing
from tickwork._domain.schedules.zones import EPOCH
from tickwork._kernel.durations import DELAY_MAX, as_duration
from tickwork.errors import InvalidSchedule, suggest

F = TypeVar("F", bound="Frequencies")
P = ParamSpec("P")


def frequency(method: Callable[Concatenate[F, P], F]) -> Callable[Concatenate[F, P], F]:
    """A method that sets the frequency of a schedule, which has one. Messages name the method."""

    @wraps(method)
    def set_frequency(self: F, /, *args: P.args, **kwargs: P.kwargs) -> F:
        self._timing.check_free(method.__name__)
        chain = method(self, *args, **kwargs)
        named = replace(chain._timing, method=method.__name__)  # noqa: SLF001  # of the same kind
        return chain._with_timing(named)  # noqa: SLF001

    return set_frequency


class Frequencies(ABC):
    """Methods that define when a job runs. Each returns a new value.

    Call one frequency, such as :meth:`hourly`. Refine it, in any order, with ``seconds`` to
    ``months``, weekdays, windows and a time zone.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def _timing(self) -> Timing:
        """The definition so far."""

    @abstractmethod
    def _with_timing(self, timing: Timing) -> Self:
        """A copy with this definition."""

    @abstractmethod
    def _holidays(
        self, calendar: str | PathLike[str] | None, country: str | None
    ) -> frozenset[date]:
        """The dates of a calendar, a country or both. A rule itself reads no file."""

    @property
    def _symbols(self) -> Symbols:
        return SYMBOLS

    def _with_base(self, base: Base) -> Self:
        return self._with_timing(replace(self._timing, base=base))

    def _fields(self, **fields: Values) -> Self:
        """A frequency of calendar fields. Other fields match any value; the second is 0."""
        texts = {name: field_text(name, values) for name, values in fields.items()}
        base = {"second": "0", "minute": "*", "hour": "*", "day": "*", "month": "*"}
        full = FieldTexts(**{**base, "weekday": "*", **texts})
        return self._with_base(FieldBase(fields=full))

    def _at(self, at: str | time, **fields: Values) -> Self:
        moment = parse_time(at)
        return self._fields(second=moment.second, minute=moment.minute, hour=moment.hour, **fields)

    def _refine(self, name: str, values: tuple[Values, ...]) -> Self:
        return self._with_timing(self._timing.refine(name, *values))

    # ------------------------------------------------------------ rules

    @frequency
    def cron(self, expr: str) -> Self:
        """Run by a cron expression with five fields, or six if the first one is seconds."""
        # Parse it now to report errors now. ``H`` gets its real key later.
        Cron.parse(expr, key="")
        return self._with_base(CronBase(expr=expr))

    @frequency
    def pattern(self, /, **fields: Values) -> Self:
        """Run by a pattern: ``minutes``, ``hours``, ``mday``, ``wday``, ``mon``, ``year``."""
        return self._with_base(FieldBase(fields=parse_dict_pattern(fields)))

    @frequency
    def symbol(self, name: str) -> Self:
        """Run by a named pattern, cron expression or rule, such as ``EVERY_DAY``."""
        meaning = self._symbols.get(str(name))
        if meaning is None:
            raise InvalidSchedule(
                f"There is no symbol {name!r}.",
                why=f"The symbols are: {', '.join(sorted(self._symbols))}.",
                fix=suggest(name, self._symbols) or "Add it: app.symbols[...] = {...}",
            )
        return self._with_base(_base_of_symbol(name, meaning))

    @frequency
    def every(
        self,
        length: timedelta | float | str | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        starting: Instant | None = None,
    ) -> Self:
        """Run at a fixed interval of elapsed time, counted from ``starting``.

        ``every("90m")`` and ``every(timedelta(minutes=90))`` are ``every(minutes=90)``.
        """
        try:
            interval = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise InvalidSchedule(f"An interval must be at most {DELAY_MAX.days:,} days.") from None
        except (TypeError, ValueError) as fault:
            raise InvalidSchedule(
                f"every() needs a length of time: {fault}.", fix="Write every(minutes=15)."
            ) from None
        if length is not None:
            if interval:
                raise InvalidSchedule(
                    f"every() needs one length of time, got {length!r} and another one.",
                    fix='Write every("90m") or every(minutes=90).',
                )
            interval = as_duration(length)
        rule = Interval(
            length=interval, anchor=EPOCH if starting is None else whole_second(starting)
        )
        return self._with_base(RuleBase(rule=rule, is_anchored=starting is not None))

    @frequency
    def once(self, at: Instant) -> Self:
        """Run once, at this time."""
        rule = Once(at=whole_second(at))
        return self._with_base(RuleBase(rule=rule))

    @frequency
    def on(self, rule: Rule) -> Self:
        """Run by another rule (see ``tickwork.schedules``).

        A rule keeps its own time zone. A timetable without one gets the zone of this one.
        """
        if not isinstance(rule, Rule):
            raise InvalidSchedule(
                f"on() needs a rule, got {rule!r}.", fix="Write on(schedules.hourly())."
            )
        return self._with_base(_base_of_rule(rule))

    def _recur(
        self,
        unit: Unit,
        grid: FieldTexts,
        *,
        interval: int,
        starting: Instant | None,
        weekdays: int | Iterable[int] = (),
        missing: str = "clamp",
    ) -> Self:
        if missing not in list(Missing):
            raise InvalidSchedule(f"missing must be 'clamp' or 'skip', got {missing!r}.")
        rule = Recurrence(
            unit=unit,
            interval=interval,
            anchor=EPOCH if starting is None else whole_second(starting),
            weekdays=tuple(weekdays) if isinstance(weekdays, Iterable) else (weekdays,),
            missing=Missing(missing),
        )
        base = RuleBase(rule=rule, is_anchored=starting is not None, grid=grid)
        return self._with_base(base)

    # ------------------------------------------------------------ seconds

    @frequency
    def every_second(self) -> Self:
        """Every second."""
        return self._fields(second="*")

    @frequency
    def every_two_seconds(self) -> Self:
        """Every two seconds."""
        return self._fields(second="*/2")

    @frequency
    def every_five_seconds(self) -> Self:
        """Every five seconds."""
        return self._fields(second="*/5")

    @frequency
    def every_ten_seconds(self) -> Self:
        """Every ten seconds."""
        return self._fields(second="*/10")

    @frequency
    def every_fifteen_seconds(self) -> Self:
        """Every fifteen seconds."""
        return self._fields(second="*/15")

    @frequency
    def every_twenty_seconds(self) -> Self:
        """Every twenty seconds."""
        return self._fields(second="*/20")

    @frequency
    def every_thirty_seconds(self) -> Self:
        """Every thirty seconds."""
        return self._fields(second="*/30")

    # ------------------------------------------------------------ minutes

    @frequency
    def every_minute(self) -> Self:
        """Every minute."""
        return self._fields()

    @frequency
    def every_two_minutes(self) -> Self:
        """Every two minutes."""
        return self._fields(minute="*/2")

    @frequency
    def every_three_minutes(self) -> Self:
        """Every three minutes."""
        return self._fields(minute="*/3")

    @frequency
    def every_four_minutes(self) -> Self:
        """Every four minutes."""
        return self._fields(minute="*/4")

    @frequency
    def every_five_minutes(self) -> Self:
        """Every five minutes."""
        return self._fields(minute="*/5")

    @frequency
    def every_ten_minutes(self) -> Self:
        """Every ten minutes."""
        return self._fields(minute="*/10")

    @frequency
    def every_fifteen_minutes(self) -> Self:
        """Every fifteen minutes."""
        return self._fields(minute="*/15")

    @frequency
    def every_twenty_minutes(self) -> Self:
        """Every twenty minutes."""
        return self._fields(minute="*/20")

    @frequency
    def every_thirty_minutes(self) -> Self:
        """Every thirty minutes."""
        return self._fields(minute="*/30")

    # ------------------------------------------------------------ hours

    @frequency
    def hourly(self) -> Self:
        """Every hour, on the hour."""
        return self._fields(minute=0)

    @frequency
    def every_hour(self) -> Self:
        """Every hour, on the hour: another name for :meth:`hourly`."""
        return self._fields(minute=0)

    @frequency
    def hourly_at(self, *minutes: Values) -> Self:
        """Every hour, at these minutes."""
        texts = [field_text("minute", value) for value in minutes or (0,)]
        return self._fields(minute=",".join(text for text in texts if text))

    @frequency
    def every_two_hours(self) -> Self:
        """At 00:00, 02:00, 04:00 and so on."""
        return self._fields(minute=0, hour="*/2")

    @frequency
    def every_three_hours(self) -> Self:
        """At 00:00, 03:00, 06:00 and so on."""
        return self._fields(minute=0, hour="*/3")

    @frequency
    def every_four_hours(self) -> Self:
        """At 00:00, 04:00, 08:00 and so on."""
        return self._fields(minute=0, hour="*/4")

    @frequency
    def every_six_hours(self) -> Self:
        """At 00:00, 06:00, 12:00 and 18:00."""
        return self._fields(minute=0, hour="*/6")

    # ------------------------------------------------------------ days

    @frequency
    def daily(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
    ) -> Self:
        """Run at midnight, or every ``interval`` days at the time of ``starting``."""
        if interval == 1 and starting is None:
            chain = self._at("00:00")
        else:
            chain = self._recur(Unit.DAY, _MIDNIGHT, interval=interval, starting=starting)
        return _add_end(chain, until, max_firings)

    @frequency
    def daily_at(self, at: str | time) -> Self:
        """Every day at this time."""
        return self._at(at)

    @frequency
    def twice_daily(self, first: int = 1, second: int = 13) -> Self:
        """Every day at these two hours."""
        return self._fields(minute=0, hour=[first, second])

    @frequency
    def weekly(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
        weekdays: int | Iterable[int] = (),
    ) -> Self:
        """Run on Sunday at midnight, or every ``interval`` weeks."""
        if interval == 1 and starting is None and not weekdays:
            chain = self._at("00:00", weekday=0)
        else:
            chain = self._recur(
                Unit.WEEK,
                _MIDNIGHT if weekdays else _MIDNIGHT._replace(weekday="0"),
                interval=interval,
                starting=starting,
                weekdays=weekdays,
            )
        return _add_end(chain, until, max_firings)

    @frequency
    def weekly_on(self, weekday: Values, at: str | time = "00:00") -> Self:
        """Run on this weekday or these weekdays, at this time. 0 and 7 are Sunday."""
        return self._at(at, weekday=weekday)

    @frequency
    def monthly(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
        missing: str = "clamp",
    ) -> Self:
        """Run on the 1st at midnight, or every ``interval`` months.

        If a month has no such day, ``missing="clamp"`` takes its last day and ``"skip"`` skips
        the month.
        """
        if interval == 1 and starting is None:
            chain = self._at("00:00", day=1)
        else:
            chain = self._recur(
                Unit.MONTH,
                _MIDNIGHT._replace(day="1"),
                interval=interval,
                starting=starting,
                missing=missing,
            )
        return _add_end(chain, until, max_firings)

    @frequency
    def monthly_on(self, day: Values = 1, at: str | time = "00:00") -> Self:
        """Run on this day or these days of the month, at this time."""
        return self._at(at, day=day)

    @frequency
    def twice_monthly(self, first: int = 1, second: int = 16, at: str | time = "00:00") -> Self:
        """On these two days of the month."""
        return self._at(at, day=[first, second])

    @frequency
    def last_day_of_month(self, at: str | time = "00:00") -> Self:
        """On the last day of the month, at this time."""
        return self._at(at, day="L")

    @frequency
    def quarterly(self) -> Self:
        """On 1 January, 1 April, 1 July and 1 October, at midnight."""
        return self._at("00:00", day=1, month=[1, 4, 7, 10])

    @frequency
    def yearly(
        self,
        *,
        interval: int = 1,
        starting: Instant | None = None,
        until: Instant | None = None,
        max_firings: int | None = None,
        missing: str = "clamp",
    ) -> Self:
        """Run on 1 January at midnight, or every ``interval`` years."""
        if interval == 1 and starting is None:
            chain = self._at("00:00", day=1, month=1)
        else:
            chain = self._recur(
                Unit.YEAR,
                _MIDNIGHT._replace(day="1", month="1"),
                interval=interval,
                starting=starting,
                missing=missing,
            )
        return _add_end(chain, until, max_firings)

    @frequency
    def yearly_on(self, month: int, day: int = 1, at: str | time = "00:00") -> Self:
        """On this date of every year, at this time."""
        return self._at(at, day=day, month=month)

    # ------------------------------------------------------------ refinements

    def seconds(self, *values: Values) -> Self:
        """Only at these seconds of the minute."""
        return self._refine("second", values)

    def minutes(self, *values: Values) -> Self:
        """Only at these minutes of the hour."""
        return self._refine("minute", values)

    def hours(self, *values: Values) -> Self:
        """Only in these hours of the day."""
        return self._refine("hour", values)

    def days(self, *values: Values) -> Self:
        """Only on these days of the month."""
        return self._refine("day", values)

    def months(self, *values: Values) -> Self:
        """Only in these months."""
        return self._refine("month", values)

    def weekdays(self) -> Self:
        """Monday to Friday."""
        return self._with_timing(self._timing.add_weekdays("1-5"))

    def weekends(self) -> Self:
        """Saturday and Sunday."""
        return self._with_timing(self._timing.add_weekdays("0,6"))

    def sundays(self) -> Self:
        """On Sundays."""
        return self._with_timing(self._timing.add_weekdays("0"))

    def mondays(self) -> Self:
        """On Mondays."""
        return self._with_timing(self._timing.add_weekdays("1"))

    def tuesdays(self) -> Self:
        """On Tuesdays."""
        return self._with_timing(self._timing.add_weekdays("2"))

    def wednesdays(self) -> Self:
        """On Wednesdays."""
        return self._with_timing(self._timing.add_weekdays("3"))

    def thursdays(self) -> Self:
        """On Thursdays."""
        return self._with_timing(self._timing.add_weekdays("4"))

    def fridays(self) -> Self:
        """On Fridays."""
        return self._with_timing(self._timing.add_weekdays("5"))

    def saturdays(self) -> Self:
        """On Saturdays."""
        return self._with_timing(self._timing.add_weekdays("6"))

    # ------------------------------------------------------------ zone, windows, ends

    def timezone(self, zone: str | tzinfo) -> Self:
        """Use this time zone for all fields and windows."""
        return self._with_timing(self._timing.with_zone(zone))

    def between(self, first: str | time, last: str | time) -> Self:
        """Only between these times of day, both included. The window may pass midnight."""
        return self._with_timing(self._timing.with_windows(between=Window.parse(first, last)))

    def unless_between(self, first: str | time, last: str | time) -> Self:
        """Never between these times of day, both included."""
        return self._with_timing(self._timing.with_windows(unless=Window.parse(first, last)))

    def except_on(
        self,
        *dates: date | str | Iterable[date | str],
        calendar: str | PathLike[str] | None = None,
        country: str | None = None,
    ) -> Self:
        """Never on these dates, on days with events in a calendar, or on public holidays.

        ``calendar`` is the name of a calendar of the application or, in code, the path of an .ics
        file; ``country``, in code only, is a code such as ``DE`` or ``DE-BY``. The dates of this
        year and the next two become a part of the rule.
        """
        excluded = set(read_dates(dates))
        if calendar is not None or country is not None:
            excluded |= self._holidays(calendar, country)
        return self._with_timing(self._timing.with_windows(dates=excluded))

    def starting(self, at: Instant) -> Self:
        """Not before this time."""
        return self._with_timing(self._timing.with_bounds(starting=whole_second(at)))

    def until(self, at: Instant) -> Self:
        """Not after this time."""
        return self._with_timing(self._timing.with_bounds(until=whole_second(at, is_end=True)))

    def max_firings(self, count: int) -> Self:
        """At most this many times."""
        return self._with_timing(self._timing.with_bounds(max_firings=count))


def _base_of_rule(rule: Rule) -> Base:
    """A chain of methods gets the key, zone and anchor later; any other rule is complete."""
    if isinstance(rule, Frequencies):
        return ChainBase(timing=rule._timing)  # noqa: SLF001  # of the same kind
    return RuleBase(rule=rule, is_zoned=True)


def _base_of_symbol(name: str, meaning: object) -> Base:
    match meaning:
        case str():
            try:
                Cron.parse(meaning, key="")  # as cron() does
            except InvalidSchedule as error:
                raise InvalidSchedule(
                    f"The symbol {name!r} is invalid: {error.what}", why=error.why, fix=error.fix
                ) from error
            return CronBase(expr=meaning)
        case Mapping():
            return FieldBase(fields=parse_dict_pattern(meaning))
        case Rule():
            return _base_of_rule(meaning)
        case _:
            raise InvalidSchedule(
                f"The symbol {name!r} stands for {meaning!r}, which is not a rule.",
                fix="Use a cron expression, a pattern such as {'hours': 4}, or a rule.",
            )


def _add_end(chain: F, until: Instant | None, max_firings: int | None) -> F:
    chain = chain if until is None else chain.until(until)
    return chain if max_firings is None else chain.max_firings(max_firings)


_MIDNIGHT: Final = FieldTexts("0", "0", "0")


def read_dates(values: Iterable[Any]) -> Iterator[date]:
    """The dates of dates, texts and collections of them.

    Raises:
        InvalidSchedule: One of them is not a date.
    """
    for item in values:
        if isinstance(item, datetime):
            raise InvalidSchedule(f"{item} is a datetime, not a date.", fix="Use its .date().")
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
            yield from read_dates(item)
        else:
            raise InvalidSchedule(f"{item!r} is not a date.", fix="Write it as '2026-12-25'.")
