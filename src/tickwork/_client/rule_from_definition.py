"""Turns ``rule``, ``at``, ``timezone`` and ``max_firings`` of a definition into one rule."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tickwork._client.schedule_definition import Rule
from tickwork._define.rule_text import parse_rule_text
from tickwork._domain.schedules.bounds import Bounded, just_after
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.frequencies import Timetable
from tickwork._domain.schedules.interval import whole_second
from tickwork._domain.schedules.pattern import Symbols
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.timing import NO_FIELDS, FieldBase, RuleBase, Timing
from tickwork.errors import InvalidSchedule

_RECURRING: Final = frozenset({"daily", "weekly", "monthly", "yearly"})


def timing_of(
    rule: Rule | None,
    *,
    at: datetime | None,
    max_firings: int | None,
    timezone: str | None,
    symbols: Symbols,
) -> Timing:
    """Combine the four options that decide when a schedule fires."""
    if rule is None:
        assert at is not None, "ScheduleDefinition requires a rule or an instant"
        timing = Timetable().once(at).timing
    else:
        timing = _read_rule(rule, symbols)
        timing = timing if at is None else _start_at(timing, at)
    if timezone is not None:
        if timing.zone not in {None, timezone}:
            raise InvalidSchedule(
                f"timezone is {timezone!r}, but the rule has the time zone {timing.zone!r}.",
                fix="Set the time zone in one place.",
            )
        timing = timing.with_zone(timezone)
    return timing if max_firings is None else timing.with_bounds(max_firings=max_firings)


def build_rule(timing: Timing, *, key: str, tz: str, anchor: datetime) -> Schedule:
    """Build the rule, as a process that reads the stored row will see it."""
    return check_storable(timing.rule(key=key, tz=tz, anchor=anchor))


def check_storable(rule: Schedule) -> Schedule:
    """Return the rule after a round trip through text. Rules of users' own classes fail."""
    return from_text(rule.to_text())


def set_max_firings(rule: Schedule, max_firings: int | None, *, now: datetime) -> Schedule:
    """Change how often a stored rule fires: counted from its start, or from now on."""
    if isinstance(rule, Bounded):
        starting = rule.starting or (None if max_firings is None else just_after(now))
        return replace(rule, max_firings=max_firings, starting=starting)
    if max_firings is None:
        return rule
    return Bounded(rule=rule, starting=just_after(now), max_firings=max_firings)


def _read_rule(rule: Any, symbols: Symbols) -> Timing:
    if isinstance(rule, Timetable):
        return rule.timing
    if isinstance(rule, str):
        return _parse_rule(rule.strip(), symbols)
    if not isinstance(rule, Schedule):
        raise InvalidSchedule(
            f"{rule!r} is not a rule.",
            fix="Use one of tickwork.schedules, or a cron expression such as '0 9 * * 1-5'.",
        )
    return Timetable().on(rule).timing


def _parse_rule(text: str, symbols: Symbols) -> Timing:
    chain = Timetable(symbols=symbols)
    if text.startswith("{"):
        return chain.on(from_text(text)).timing
    if "(" in text or "=" in text:
        return parse_rule_text(text, symbols=symbols)
    # A single identifier must be a symbol: the error for an unknown one suggests a close name.
    return (chain.symbol(text) if text.isidentifier() else chain.cron(text)).timing


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
