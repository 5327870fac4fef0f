"""Turns ``rule``, ``at``, ``timezone`` and ``max_firings`` of a definition into one rule."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tickwork._calendars.calendars import Calendars
from tickwork._config.rule_text import parse_rule_text
from tickwork._control.schedule_definition import RuleOrText
from tickwork._domain.schedules.bounds import Bounded, just_after
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.interval import whole_second
from tickwork._domain.schedules.pattern import Symbols
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.timing import NO_FIELDS, FieldBase, RuleBase, Timing
from tickwork.errors import InvalidSchedule
from tickwork.schedules import Timetable

_RECURRING: Final = frozenset({"daily", "weekly", "monthly", "yearly"})


def timing_of(
    rule: RuleOrText | None,
    *,
    at: datetime | None,
    max_firings: int | None,
    timezone: str | None,
    symbols: Symbols,
    calendars: Calendars,
) -> Timing:
    """Combine the four options that decide when a schedule fires."""
    if rule is None:
        assert at is not None, "ScheduleDefinition requires a rule or an instant"
        timing = Timetable().once(at).timing
    else:
        timing = _read_rule(rule, symbols, calendars)
        timing = timing if at is None else _start_at(timing, at)
    if timezone is not None:
        if timing.zone not in {None, timezone}:
            raise InvalidSchedule(
                f"timezone is {timezone!r}, but the rule has the time zone {timing.zone!r}.",
                fix="Set the time zone in one place.",
            )
        timing = timing.with_zone(timezone)
    return timing if max_firings is None else timing.with_bounds(max_firings=max_firings)


def build_rule(timing: Timing, *, key: str, tz: str, anchor: datetime) -> Rule:
    """Build the rule, as a process that reads the stored row will see it."""
    return check_storable(timing.rule(key=key, tz=tz, anchor=anchor))


def check_storable(rule: Rule) -> Rule:
    """Return the rule after a round trip through text. Rules of users' own classes fail."""
    return from_text(rule.to_text())


def set_max_firings(rule: Rule, max_firings: int | None, *, now: datetime) -> Rule:
    """Change how often a stored rule fires: counted from its start, or from now on."""
    if isinstance(rule, Bounded):
        starting = rule.starting or (None if max_firings is None else just_after(now))
        return replace(rule, max_firings=max_firings, starting=starting)
    if max_firings is None:
        return rule
    return Bounded(rule=rule, starting=just_after(now), max_firings=max_firings)


def _read_rule(rule: Any, symbols: Symbols, calendars: Calendars) -> Timing:
    if isinstance(rule, Timetable):
        return rule.timing
    if isinstance(rule, str):
        return parse_rule_text(rule, symbols=symbols, calendars=calendars)
    if not isinstance(rule, Rule):
        raise InvalidSchedule(
            f"{rule!r} is not a rule.",
            fix="Use one of tickwork.schedules, or a cron expression such as '0 9 * * 1-5'.",
        )
    return Timetable().on(rule).timing


def _start_at(timing: Timing, at: datetime) -> Timing:
    start = whole_second(at)
    if timing.starting not in {None, start}:
        raise InvalidSchedule(
            f"at is {at}, but the rule starts at {timing.starting}.",
            fix="Set the start in one place.",
        )
    has_no_time = timing.refined == NO_FIELDS and isinstance(timing.base, FieldBase)
    if timing.method in _RECURRING and has_no_time:
        # daily() alone fires at midnight. With a start at nine o'clock it fires at nine.
        frequency = getattr(Timetable(), timing.method)
        return replace(timing, base=frequency(starting=start).timing.base)
    if isinstance(timing.base, RuleBase) and getattr(timing.base.rule, "anchor", None) == start:
        return timing
    return timing.with_bounds(starting=start)
