"""``Timing``: what a chain of words says about when, as a value.

A chain has at most one *frequency* (``hourly``, ``daily_at``, ``cron``, …) and any number
of refinements. ``seconds`` … ``months`` replace their own field. Weekday words set the
weekday, and add up among themselves. Order does not matter. The words themselves are in
``frequencies``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, Final, TypeAlias

from tickwork._domain.schedules.bounds import (
    Bounded,
    Window,
    Windowed,
    anchored,
    check_firings,
)
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import whole_second
from tickwork._domain.schedules.pattern import Pattern, Said, Values, field_text
from tickwork._domain.schedules.zones import Zone
from tickwork.errors import InvalidSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldBase:
    """A frequency made of calendar fields."""

    said: Said


@dataclass(frozen=True, slots=True, kw_only=True)
class CronBase:
    """A frequency given as cron text."""

    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBase:
    """A frequency that is a rule of its own: an interval, a recurrence, a single instant.

    ``is_anchored`` is False while the rule still waits for the instant to count from, and
    ``grid`` are then the fields whose last match that is: every second day counts from
    a midnight. ``is_zoned`` is True when the rule came with a zone of its own.
    """

    rule: Schedule
    is_anchored: bool = True
    is_zoned: bool = False
    grid: Said | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBase:
    """A frequency said by another chain, which gets this one's key, zone and anchor."""

    timing: "Timing"


Base: TypeAlias = FieldBase | CronBase | RuleBase | ChainBase

NOTHING_SAID: Final = Said()
_MIDNIGHT: Final = time(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What was said so far about when; :meth:`rule` makes a rule of it."""

    word: str = ""  # the frequency word that was used, for messages
    base: Base | None = None
    refined: Said = NOTHING_SAID
    zone: str | None = None
    between: tuple[Window, ...] = ()
    unless: tuple[Window, ...] = ()
    dates: frozenset[date] = frozenset()
    starting: datetime | None = None
    until: datetime | None = None
    max_firings: int | None = None

    # ------------------------------------------------------------ saying

    def based(self, word: str, base: Base) -> "Timing":
        """With this frequency.

        Raises:
            InvalidSchedule: there is one already.
        """
        if self.base is not None:
            raise InvalidSchedule(
                f"{word}() comes after {self.word}() in one chain.",
                why="Each says how often; one schedule has one frequency.",
                fix=f"Drop one, or refine {self.word}() with seconds() … months() and weekdays.",
            )
        return replace(self, word=word, base=base)

    def refine(self, name: str, *values: Values) -> "Timing":
        """With one field said anew."""
        texts = [field_text(name, value) for value in values]
        if not texts or None in texts:
            raise InvalidSchedule(f"{name}s() needs at least one value.")
        text = ",".join(text for text in texts if text)
        return replace(self, refined=self.refined._replace(**{name: text}))

    def add_weekdays(self, text: str) -> "Timing":
        said = self.refined.weekday
        return replace(
            self, refined=self.refined._replace(weekday=text if said is None else f"{said},{text}")
        )

    def zoned(self, zone: str | tzinfo) -> "Timing":
        return replace(self, zone=Zone.named(zone).name)

    def windowed(
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

    def bounded(
        self,
        *,
        starting: datetime | None = None,
        until: datetime | None = None,
        max_firings: int | None = None,
    ) -> "Timing":
        # Checked here to fail here, not where the rule is made.
        if max_firings is not None:
            check_firings(max_firings)
        return replace(
            self,
            starting=self.starting if starting is None else whole_second(starting),
            until=self.until if until is None else whole_second(until, is_end=True),
            max_firings=self.max_firings if max_firings is None else max_firings,
        )

    # ------------------------------------------------------------ making a rule

    @property
    def is_said(self) -> bool:
        """Whether anything was said about when: a job without it is only dispatched."""
        return self.base is not None or self.refined != NOTHING_SAID

    @property
    def needs_anchor(self) -> bool:
        """Whether the rule counts from an instant that nobody has given yet."""
        return self.starting is None and (
            self._waits or (self.max_firings is not None and self._own_anchor is None)
        )

    @property
    def _waits(self) -> bool:
        """Whether the frequency itself still needs an instant to count from."""
        match self.base:
            case RuleBase(is_anchored=is_anchored):
                return not is_anchored
            case ChainBase(timing=timing):
                return timing.needs_anchor
            case _:
                return False

    @property
    def _own_anchor(self) -> datetime | None:
        """What the frequency counts from, where that was said with it."""
        if isinstance(self.base, RuleBase) and self.base.is_anchored:
            anchor: datetime | None = getattr(self.base.rule, "anchor", None)
            return anchor
        return None

    def zone_name(self, default: str = "UTC") -> str:
        """The zone in which the rule will think; ``default`` if none was said."""
        match self.base:
            case RuleBase(rule=rule, is_zoned=True) if self.zone is None:
                return rule.tz
            case ChainBase(timing=timing):
                return timing.zone_name(self.zone or default)
            case _:
                return self.zone or default

    def rule(
        self, *, key: str | None = None, tz: str = "UTC", anchor: datetime | None = None
    ) -> Schedule:
        """The rule that was said. ``key`` is the schedule's name, ``tz`` the zone if none was.

        ``anchor`` is what an interval without ``starting`` counts from.

        Raises:
            InvalidSchedule: nothing was said, or it contradicts itself.
        """
        if self.needs_anchor and anchor is None:
            raise InvalidSchedule(
                f"{self.word or 'max_firings'}() has no beginning to count from.",
                fix="Say starting=..., or register it: the first registration is kept.",
            )
        starting = self.starting
        rule = self._plain_rule(key, tz, starting or anchor)
        if self.max_firings is not None:
            starting = starting or self._own_anchor or anchor
        if self.between or self.unless or self.dates:
            rule = Windowed(rule=rule, between=self.between, unless=self.unless, dates=self.dates)
        if starting is not None or self.until is not None or self.max_firings is not None:
            rule = Bounded(
                rule=rule, starting=starting, until=self.until, max_firings=self.max_firings
            )
        return rule

    def _plain_rule(self, key: str | None, default_tz: str, anchor: datetime | None) -> Schedule:
        tz = self.zone or default_tz
        if isinstance(self.base, RuleBase | ChainBase) and self.refined != NOTHING_SAID:
            raise InvalidSchedule(
                f"{self.word}() has no calendar fields to refine.",
                fix="Use a cron expression or a frequency such as hourly().",
            )
        match self.base:
            case ChainBase(timing=timing):
                return timing.rule(key=key, tz=tz, anchor=anchor)
            case RuleBase(rule=rule, is_zoned=True):
                if self.zone not in {None, rule.tz}:
                    raise InvalidSchedule(
                        f"timezone({self.zone!r}) and a rule that thinks in {rule.tz!r}.",
                        fix="Make the rule given to on() in the zone that you want.",
                    )
                return rule
            case RuleBase(rule=rule, is_anchored=is_anchored, grid=grid):
                rule = _in_zone(rule, tz)
                if is_anchored or anchor is None:
                    return rule
                if grid is not None and self.starting is None:
                    anchor = _last_on_grid(grid, anchor, tz)
                return anchored(rule, anchor)
            case CronBase(expr=expr):
                cron = Cron.parse(expr, tz=tz, key=key)
                if self.refined == NOTHING_SAID:
                    return cron
                return Pattern(self.refined, cron=expr, key=cron.key, tz=tz)
            case FieldBase(said=said):
                merged = Said(*(new or old for new, old in zip(self.refined, said, strict=True)))
                return Pattern(merged, tz=tz)
            case None:
                return Pattern(_completed(self.refined), tz=tz)


def _completed(refined: Said) -> Said:
    """Refinements alone: smaller fields that nobody said are 0, larger ones may be any."""
    if refined == NOTHING_SAID:
        raise InvalidSchedule(
            "Nothing was said about when.", fix="Say, for example, hourly() or cron('0 9 * * *')."
        )
    said = refined._asdict()
    has_larger = said["year"] is not None
    if said["month"] is None and has_larger:
        said["month"] = "1"
    has_larger = said["month"] is not None
    if said["day"] is None and has_larger and said["weekday"] is None:
        # The first of the month: a weekday would have said which days.
        said["day"] = "1"
    has_larger = has_larger or said["day"] is not None or said["weekday"] is not None
    for name in ("hour", "minute", "second"):
        if said[name] is None:
            said[name] = "0" if has_larger else "*"
        else:
            has_larger = True
    return Said(**said)


def _last_on_grid(grid: Said, anchor: datetime, tz: str) -> datetime:
    """The last match of the grid up to the anchor, on a day that has a midnight.

    Clocks that go forward at midnight move the match to 01:00, and a recurrence counted
    from there would stay at 01:00 for ever.
    """
    found = Pattern(grid, tz=tz).prev_before(whole_second(anchor) + timedelta(seconds=1))
    while found is not None and found.time() != _MIDNIGHT:
        found = Pattern(grid, tz=tz).prev_before(found)
    return found or anchor


def _in_zone(rule: Any, tz: str) -> Schedule:
    """An interval, a recurrence or a single instant, in this zone: each has the field."""
    zoned: Schedule = replace(rule, tz=tz)
    return zoned
