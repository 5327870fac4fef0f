"""Parses the stored text of a rule."""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final

from tickwork._domain.schedules.bounds import Bounded, Window, Windowed
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.pattern import FIELD_NAMES, FieldTexts, Pattern
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork.errors import InvalidSchedule

TEXT_LENGTH_MAX: Final = 256 * 1024
_DEPTH_MAX: Final = 8


def from_text(text: str) -> Schedule:
    """Parse a rule that ``to_text`` wrote.

    Raises:
        InvalidSchedule: The text is not a rule that this version knows.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidSchedule(
            f"A rule must have at most {TEXT_LENGTH_MAX:,} characters, got {len(text):,}."
        )
    try:
        return _rule(json.loads(text), depth=0)
    except InvalidSchedule:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as fault:
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise InvalidSchedule(
            f"{shown!r} is not a rule: {fault}.",
            why="A newer version of tickwork may have written it.",
            fix="Upgrade this process, or define the schedule again.",
        ) from fault


def _rule(facts: Mapping[str, Any], *, depth: int) -> Schedule:
    if depth > _DEPTH_MAX:
        raise ValueError("rules inside rules go too deep")
    kind = facts["kind"]
    if kind in {"bounded", "windowed"}:
        inner = _rule(facts["rule"], depth=depth + 1)
        return _bounded(facts, inner) if kind == "bounded" else _windowed(facts, inner)
    make = _MAKERS.get(kind)
    if make is None:
        raise ValueError(f"there is no kind {kind!r}")
    return make(facts)


def _cron(facts: Mapping[str, Any]) -> Cron:
    return Cron.parse(facts["expr"], tz=facts["tz"], key=_key(facts))


def _pattern(facts: Mapping[str, Any]) -> Pattern:
    fields = FieldTexts(*(facts.get(name) for name in FIELD_NAMES))
    return Pattern(fields, cron=facts.get("cron"), key=_key(facts), tz=facts["tz"])


def _key(facts: Mapping[str, Any]) -> str | None:
    key = facts.get("key")
    if key is not None and not isinstance(key, str):
        raise TypeError(f"a key is text, not {key!r}")
    return key


def _interval(facts: Mapping[str, Any]) -> Interval:
    return Interval(
        length=timedelta(seconds=facts["seconds"]),
        anchor=datetime.fromisoformat(facts["anchor"]),
        tz=facts["tz"],
    )


def _once(facts: Mapping[str, Any]) -> Once:
    return Once(at=datetime.fromisoformat(facts["at"]), tz=facts["tz"])


def _recurrence(facts: Mapping[str, Any]) -> Recurrence:
    return Recurrence(
        unit=Unit(facts["unit"]),
        interval=facts["interval"],
        anchor=datetime.fromisoformat(facts["anchor"]),
        weekdays=tuple(facts.get("weekdays", ())),
        missing=Missing(facts["missing"]),
        tz=facts["tz"],
    )


def _bounded(facts: Mapping[str, Any], rule: Schedule) -> Bounded:
    starting, until = facts.get("starting"), facts.get("until")
    return Bounded(
        rule=rule,
        starting=None if starting is None else datetime.fromisoformat(starting),
        until=None if until is None else datetime.fromisoformat(until),
        max_firings=facts.get("max_firings"),
    )


def _windowed(facts: Mapping[str, Any], rule: Schedule) -> Windowed:
    return Windowed(
        rule=rule,
        between=tuple(Window.parse(*text.split("-")) for text in facts.get("between", ())),
        unless=tuple(Window.parse(*text.split("-")) for text in facts.get("unless", ())),
        dates=frozenset(map(date.fromisoformat, facts.get("dates", ()))),
    )


_MAKERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Schedule]]] = {
    "cron": _cron,
    "pattern": _pattern,
    "interval": _interval,
    "once": _once,
    "recurrence": _recurrence,
}
