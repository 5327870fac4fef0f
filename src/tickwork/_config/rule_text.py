"""Parses a rule that is one line of text: cron, a symbol, a pattern, a frequency, or JSON.

It is the only reader of such texts: for ``app.schedules``, the dashboard, its API and the CLI.

::

    */5 9-17 * * MON-FRI                          cron, or @daily
    EVERY_DAY                                     a symbol
    minutes=*/15 hours=9-17 wday=1-5              a pattern
    every_five_minutes                            a frequency without arguments
    every_five_minutes().hours(9, 10).weekdays()  a frequency, as in code
    {"expr":"0 9 * * *","kind":"cron","tz":"UTC"}  as the database stores it

The text is parsed and never executed: it can call no function but the builder's methods.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from tickwork._calendars.calendars import NO_CALENDARS, Calendars
from tickwork._config.config_rule import (
    BOUNDS,
    RULE_METHODS,
    WITHOUT_ARGUMENTS,
    call_method,
    read_timing_text,
)
from tickwork._config.toml_document import shown
from tickwork._domain.schedules.pattern import PATTERN_FIELDS, Symbols
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import InvalidSchedule, TickworkError, suggest
from tickwork.schedules import Timetable

_SOME_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)

RULE_MAX: Final = 1_000
"""Characters in a rule. A stored one, which is JSON, may have more."""


def parse_rule_text(text: str, *, symbols: Symbols, calendars: Calendars) -> Timing:
    """Parse a rule. It names symbols and calendars of the application, and never a file.

    Raises:
        InvalidSchedule: The text is not a rule.
    """
    text = text.strip()
    if text.startswith("{"):
        return Timetable().on(from_text(text)).timing
    if len(text) > RULE_MAX:
        raise InvalidSchedule(
            f"A rule must have at most {RULE_MAX:,} characters, got {len(text):,}."
        )
    chain = Timetable(symbols=symbols, calendars=calendars.named)
    try:
        if "(" in text:
            return _parse_calls(text, chain)
        if "=" in text:
            return _parse_pattern(text, chain)
        return read_timing_text(text, chain, label="")
    except TickworkError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,  # how the parser of Python reports a text that is nested too deeply
    ) as fault:
        raise InvalidSchedule(
            f"{shown(text)} is not a rule: {fault}.",
            fix="Write method calls as in code: daily_at('13:00').weekdays()",
        ) from None


def write_rule_text(stored: str) -> str:
    """Write a stored rule as one would type it; as it is stored, if there is no shorter form.

    >>> write_rule_text('{"expr":"0 9 * * *","kind":"cron","tz":"UTC"}')
    '0 9 * * *'
    """
    try:
        plain = json.loads(stored)
        for text in _typed_forms(plain):
            with suppress(InvalidSchedule):
                rule = parse_rule_text(text, symbols={}, calendars=NO_CALENDARS).rule(
                    tz=plain["tz"], anchor=_SOME_TIME, key=plain.get("key", "")
                )
                if rule.to_text() == stored:
                    return text
    # Another program, or a newer version, may have written the row.
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return stored
    return stored


def write_rule(stored: str) -> str | dict[str, Any]:
    """Write a stored rule as one would type it; as an object, if there is no shorter form.

    >>> write_rule('{"expr":"0 9 * * *","kind":"cron","tz":"UTC"}')
    '0 9 * * *'
    """
    text = write_rule_text(stored)
    if text != stored:
        return text
    try:
        plain = json.loads(stored)
    except ValueError:  # as above
        return stored
    return plain if isinstance(plain, dict) else stored


def store_form(rule: Mapping[str, Any]) -> str:
    """Write an object of :func:`write_rule` as the database stores it."""
    return json.dumps(rule, sort_keys=True, separators=(",", ":"))


def _typed_forms(plain: dict[str, Any]) -> Iterator[str]:
    """Texts that may stand for a rule: the caller checks that they do."""
    match plain.get("kind"):
        case "cron":
            yield plain["expr"]
        case "once":
            yield f"once({plain['at']!r})"
        case "interval":
            yield f"every(seconds={plain['seconds']!r}, starting={plain['anchor']!r})"
        case "pattern":
            names = {"minutes": "minute", "hours": "hour", "mday": "day", "wday": "weekday"}
            names |= {"mon": "month", "year": "year"}
            typed_values = {typed: plain.get(name) for typed, name in names.items()}
            yield " ".join(
                f"{typed}={text}"
                for typed, text in typed_values.items()
                if text not in {None, "*"} or typed == "minutes"
            )
        case _:
            return  # a rule inside bounds or windows


def _parse_pattern(text: str, chain: Timetable) -> Timing:
    fields: dict[str, str] = {}
    for pair in text.split():
        name, mark, value = pair.partition("=")
        if not mark or not value:
            raise InvalidSchedule(
                f"{pair!r} is not a field of a pattern.", fix="Write, for example, hours=9-17."
            )
        if name in BOUNDS:
            chain = call_method(chain, name, value)
        elif name not in PATTERN_FIELDS:
            raise InvalidSchedule(
                f"A pattern has no field {name!r}.",
                fix=suggest(name, PATTERN_FIELDS) or f"It has {', '.join(PATTERN_FIELDS)}.",
            )
        elif name in fields:
            raise InvalidSchedule(f"The field {name!r} is given twice.")
        else:
            fields[name] = value
    return chain.pattern(**fields).timing


def _parse_calls(text: str, chain: Timetable) -> Timing:
    try:
        tree = ast.parse(text.lstrip("."), mode="eval").body
    except SyntaxError as error:
        raise InvalidSchedule(
            f"{text!r} cannot be parsed: {error.msg}.",
            fix="Write method calls as in code: daily_at('13:00').weekdays()",
        ) from None
    return _apply_calls(tree, chain).timing


def _apply_calls(node: ast.expr, chain: Timetable) -> Timetable:
    if isinstance(node, ast.Attribute | ast.Name):
        raise InvalidSchedule(
            f"{ast.unparse(node)} has no parentheses.", fix=f"Write {ast.unparse(node)}()."
        )
    if not isinstance(node, ast.Call):
        raise InvalidSchedule(f"{ast.unparse(node)} is not a method of a schedule.")
    match node.func:
        case ast.Name(id=method):
            pass
        case ast.Attribute(value=ast.Name(id="schedules"), attr=method):
            pass
        case ast.Attribute(value=before, attr=method):
            chain = _apply_calls(before, chain)
        case _:
            raise InvalidSchedule(f"{ast.unparse(node)} is not a method of a schedule.")
    if method not in RULE_METHODS:
        raise InvalidSchedule(
            f"A schedule has no method {method!r}.",
            fix=suggest(method, RULE_METHODS) or f"One is {min(WITHOUT_ARGUMENTS)}().",
        )
    args = [_literal(arg) for arg in node.args]
    kwargs = {str(pair.arg): _literal(pair.value) for pair in node.keywords}
    if args and kwargs:
        raise InvalidSchedule(f"{method}() takes arguments by position or by name, not both.")
    if kwargs:
        return call_method(chain, method, kwargs)
    return call_method(chain, method, args or True)


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
            bounds = [_literal(arg) for arg in args]
            if all(isinstance(bound, int) for bound in bounds) and max(map(abs, bounds)) < 10_000:
                return range(*bounds)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise InvalidSchedule(
            f"{ast.unparse(node)} must be a number, a string, a list or range()."
        ) from None
