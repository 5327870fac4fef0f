"""Parses the stored text of a rule."""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final

from tickwork._domain.schedules.bounds import Bounded, Window, Windowed
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.pattern import FIELD_NAMES, FieldTexts, Pattern
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork.errors import InvalidSchedule

TEXT_LENGTH_MAX: Final = 256 * 1024
_DEPTH_MAX: Final = 8


def from_text(text: str) -> Rule:
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


def _rule(stored: Mapping[str, Any], *, depth: int) -> Rule:
    if depth > _DEPTH_MAX:
        raise ValueError("rules inside rules go too deep")
    kind = stored["kind"]
    if kind in {"bounded", "windowed"}:
        inner = _rule(stored["rule"], depth=depth + 1)
        return _bounded(stored, inner) if kind == "bounded" else _windowed(stored, inner)
    make = _MAKERS.get(kind)
    if make is None:
        raise ValueError(f"there is no kind {kind!r}")
    return make(stored)


def _cron(stored: Mapping[str, Any]) -> Cron:
    return Cron.parse(stored["expr"], tz=stored["tz"], key=_key(stored))


def _pattern(stored: Mapping[str, Any]) -> Pattern:
    fields = FieldTexts(*(stored.get(name) for name in FIELD_NAMES))
    return Pattern(fields, cron=stored.get("cron"), key=_key(stored), tz=stored["tz"])


def _key(stored: Mapping[str, Any]) -> str | None:
    key = stored.get("key")
    if key is not None and not isinstance(key, str):
        raise TypeError(f"a key is text, not {key!r}")
    return key


def _interval(stored: Mapping[str, Any]) -> Interval:
    return Interval(
        length=timedelta(seconds=stored["seconds"]),
        anchor=datetime.fromisoformat(stored["anchor"]),
        tz=stored["tz"],
    )


def _once(stored: Mapping[str, Any]) -> Once:
    return Once(at=datetime.fromisoformat(stored["at"]), tz=stored["tz"])


def _recurrence(stored: Mapping[str, Any]) -> Recurrence:
    return Recurrence(
        unit=Unit(stored["unit"]),
        interval=stored["interval"],
        anchor=datetime.fromisoformat(stored["anchor"]),
        weekdays=tuple(stored.get("weekdays", ())),
        missing=Missing(stored["missing"]),
        tz=stored["tz"],
    )


def _bounded(stored: Mapping[str, Any], rule: Rule) -> Bounded:
    starting, until = stored.get("starting"), stored.get("until")
    return Bounded(
        rule=rule,
        starting=None if starting is None else datetime.fromisoformat(starting),
        until=None if until is None else datetime.fromisoformat(until),
        max_firings=stored.get("max_firings"),
    )


def _windowed(stored: Mapping[str, Any], rule: Rule) -> Windowed:
    return Windowed(
        rule=rule,
        between=tuple(Window.parse(*text.split("-")) for text in stored.get("between", ())),
        unless=tuple(Window.parse(*text.split("-")) for text in stored.get("unless", ())),
        dates=frozenset(map(date.fromisoformat, stored.get("dates", ()))),
    )


_MAKERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Rule]]] = {
    "cron": _cron,
    "pattern": _pattern,
    "interval": _interval,
    "once": _once,
    "recurrence": _recurrence,
}
