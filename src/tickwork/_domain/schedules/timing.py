"""``Timing``: the definition of a schedule, before it becomes a rule.

It has at most one *frequency* (``hourly``, ``daily_at``, ``cron``, …) and any number of
refinements. ``seconds`` to ``months`` replace their own field. Weekdays are added to those set
before. The order does not matter. The methods that users call are in ``frequencies``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, Final, TypeAlias

from tickwork._domain.schedules.bounds import (
    Bounded,
    Window,
    Windowed,
    check_firings,
    just_after,
    set_anchor,
)
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import whole_second
from tickwork._domain.schedules.pattern import FieldTexts, Pattern, Values, field_text
from tickwork._domain.schedules.zones import Zone
from tickwork._kernel.step_budget import count_steps, step_budget
from tickwork.errors import InvalidSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldBase:
    fields: FieldTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class CronBase:
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBase:
    """A frequency that is a complete rule: an interval, a recurrence or a single time.

    ``is_anchored`` is False while the rule has no time to count from. The anchor will then be
    the last match of ``grid``: "every second day" counts from a midnight. ``is_zoned`` is True
    if the rule has its own time zone.
    """

    rule: Rule
    is_anchored: bool = True
    is_zoned: bool = False
    grid: FieldTexts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBase:
    """The frequency of another timetable. It gets the key, zone and anchor of this one."""

    timing: "Timing"


Base: TypeAlias = FieldBase | CronBase | RuleBase | ChainBase

NO_FIELDS: Final = FieldTexts()
_MIDNIGHT: Final = time(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The definition of a schedule so far. :meth:`rule` builds the rule."""

    method: str = ""  # the name of the frequency method, for messages
    base: Base | None = None
    refined: FieldTexts = NO_FIELDS
    zone: str | None = None
    between: tuple[Window, ...] = ()
    unless: tuple[Window, ...] = ()
    dates: frozenset[date] = frozenset()
    starting: datetime | None = None
    until: datetime | None = None
    max_firings: int | None = None

    # ------------------------------------------------------------ definition

    def check_free(self, method: str) -> None:
        """Check that this method may set the frequency.

        Raises:
            InvalidSchedule: Another one has set it.
        """
        if self.base is not None:
            raise InvalidSchedule(
                f"{self.method}() and {method}() both set the frequency of one schedule.",
                fix="Remove one. seconds() to months() and weekdays refine a frequency.",
            )

    def refine(self, name: str, *values: Values) -> "Timing":
        texts = [field_text(name, value) for value in values]
        if not texts or None in texts:
            raise InvalidSchedule(f"{name}s() needs at least one value.")
        text = ",".join(text for text in texts if text)
        return replace(self, refined=self.refined._replace(**{name: text}))

    def add_weekdays(self, text: str) -> "Timing":
        before = self.refined.weekday
        weekday = text if before is None else f"{before},{text}"
        return replace(self, refined=self.refined._replace(weekday=weekday))

    def with_zone(self, zone: str | tzinfo) -> "Timing":
        return replace(self, zone=Zone.named(zone).name)

    def with_windows(
        self,
        *,
        between: Window | None = None,
        unless: Window | None = None,
        dates: Iterable[date] = (),
    ) -> "Timing":
        return replace(
            self,
            between=self.between + ((between,) if between else ()),
            unless=self.unless + ((unless,) if unless else ()),
            dates=self.dates | frozenset(dates),
        )

    def with_bounds(
        self,
        *,
        starting: datetime | None = None,
        until: datetime | None = None,
        max_firings: int | None = None,
    ) -> "Timing":
        # Check it now, not when the rule is built.
        if max_firings is not None:
            check_firings(max_firings)
        return replace(
            self,
            starting=self.starting if starting is None else whole_second(starting),
            until=self.until if until is None else whole_second(until, is_end=True),
            max_firings=self.max_firings if max_firings is None else max_firings,
        )

    # ------------------------------------------------------------ rule

    @property
    def has_rule(self) -> bool:
        """Whether it defines a schedule. A job without one is only dispatched."""
        return self.base is not None or self.refined != NO_FIELDS

    @property
    def needs_anchor(self) -> bool:
        """Whether the time to count from is still missing."""
        return self.starting is None and (
            self._base_needs_anchor or (self.max_firings is not None and self._own_anchor is None)
        )

    @property
    def _base_needs_anchor(self) -> bool:
        """Whether the frequency itself needs a time to count from."""
        match self.base:
            case RuleBase(is_anchored=is_anchored):
                return not is_anchored
            case ChainBase(timing=timing):
                return timing.needs_anchor
            case _:
                return False

    @property
    def _own_anchor(self) -> datetime | None:
        """The time from which the frequency counts, if it has one."""
        if isinstance(self.base, RuleBase) and self.base.is_anchored:
            anchor: datetime | None = getattr(self.base.rule, "anchor", None)
            return anchor
        return None

    def zone_name(self, default: str = "UTC") -> str:
        match self.base:
            case RuleBase(rule=rule, is_zoned=True) if self.zone is None:
                return rule.tz
            case ChainBase(timing=timing):
                return timing.zone_name(self.zone or default)
            case _:
                return self.zone or default

    def rule(
        self, *, key: str | None = None, tz: str = "UTC", anchor: datetime | None = None
    ) -> Rule:
        """Build the rule. ``key`` is the name of the schedule, ``tz`` the default time zone.

        An interval without ``starting`` counts from ``anchor``.

        Raises:
            InvalidSchedule: The definition is empty or contradictory.
        """
        if self.needs_anchor and anchor is None:
            raise InvalidSchedule(
                f"{self.method or 'max_firings'}() needs a time to count from.",
                fix="Add starting=..., or register the schedule: it counts from then on.",
            )
        starting = self.starting
        rule = self._plain_rule(key, tz, starting or anchor)
        if self.max_firings is not None:
            starting = starting or self._own_anchor or (anchor and just_after(anchor))
        if self.between or self.unless or self.dates:
            rule = Windowed(rule=rule, between=self.between, unless=self.unless, dates=self.dates)
        if starting is not None or self.until is not None or self.max_firings is not None:
            rule = Bounded(
                rule=rule, starting=starting, until=self.until, max_firings=self.max_firings
            )
        return rule

    def _plain_rule(self, key: str | None, default_tz: str, anchor: datetime | None) -> Rule:
        tz = self.zone or default_tz
        if isinstance(self.base, RuleBase | ChainBase) and self.refined != NO_FIELDS:
            raise InvalidSchedule(
                f"{self.method}() has no calendar fields to refine.",
                fix="Use a cron expression or a frequency such as hourly().",
            )
        match self.base:
            case ChainBase(timing=timing):
                return timing.rule(key=key, tz=tz, anchor=anchor)
            case RuleBase(rule=rule, is_zoned=True):
                if self.zone not in {None, rule.tz}:
                    raise InvalidSchedule(
                        f"timezone() is {self.zone!r}, but the rule of on() has {rule.tz!r}.",
                        fix="Set the time zone on the rule that you pass to on().",
                    )
                return rule
            case RuleBase(rule=rule, is_anchored=is_anchored, grid=grid):
                rule = _in_zone(rule, tz)
                if is_anchored or anchor is None:
                    return rule
                if grid is not None and self.starting is None:
                    anchor = _last_on_grid(grid, anchor, tz)
                return set_anchor(rule, anchor)
            case CronBase(expr=expr):
                cron = Cron.parse(expr, tz=tz, key=key)
                if self.refined == NO_FIELDS:
                    return cron
                return Pattern(self.refined, cron=expr, key=cron.key, tz=tz)
            case FieldBase(fields=fields):
                merged = FieldTexts(
                    *(new or old for new, old in zip(self.refined, fields, strict=True))
                )
                return Pattern(merged, tz=tz)
            case None:
                return Pattern(_complete(self.refined), tz=tz)


def _complete(refined: FieldTexts) -> FieldTexts:
    """Refinements without a frequency: missing smaller fields are 0, larger ones any value."""
    if refined == NO_FIELDS:
        raise InvalidSchedule(
            "The schedule is empty.", fix="Add a frequency, such as hourly() or cron('0 9 * * *')."
        )
    fields = refined._asdict()
    has_larger = fields["year"] is not None
    if fields["month"] is None and has_larger:
        fields["month"] = "1"
    has_larger = fields["month"] is not None
    if fields["day"] is None and has_larger and fields["weekday"] is None:
        # Without weekdays, the first of the month.
        fields["day"] = "1"
    has_larger = has_larger or fields["day"] is not None or fields["weekday"] is not None
    for name in ("hour", "minute", "second"):
        if fields[name] is None:
            fields[name] = "0" if has_larger else "*"
        else:
            has_larger = True
    return FieldTexts(**fields)


@step_budget()
def _last_on_grid(grid: FieldTexts, anchor: datetime, tz: str) -> datetime:
    """The last match of the grid up to the anchor, on a day that has a midnight.

    If clocks go forward at midnight, the match is at 01:00, and a recurrence from there would
    stay at 01:00.
    """
    midnight = Pattern(grid, tz=tz).prev_before(whole_second(anchor) + timedelta(seconds=1))
    while midnight is not None and midnight.time() != _MIDNIGHT:
        count_steps()
        midnight = Pattern(grid, tz=tz).prev_before(midnight)
    return midnight or anchor


def _in_zone(rule: Any, tz: str) -> Rule:
    """Interval, Recurrence and Once all have the field ``tz``."""
    zoned: Rule = replace(rule, tz=tz)
    return zoned
