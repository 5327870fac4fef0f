"""A rule in one text, as people type it: cron, a symbol, a pattern, or words.

::

    */5 9-17 * * MON-FRI                        cron, or @daily
    EVERY_DAY                                   a symbol
    minutes=*/15 hours=9-17 wday=1-5            a pattern
    every_five_minutes().hours(9, 10).weekdays()  words, as code has them

Words are read, and never executed: a text can name no function but them.
"""

import ast
from difflib import get_close_matches
from typing import Any, Final

from tickwork._define.config_rule import (
    ALONE,
    BOUNDS,
    WORDS,
    Chain,
    Symbols,
    called,
    timing_of_text,
)
from tickwork._domain.schedules.pattern import PATTERN_FIELDS
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import InvalidSchedule

RULE_MAX: Final = 1_000


def rule_timing(text: str, *, symbols: Symbols) -> Timing:
    """What a text says about when.

    Raises:
        InvalidSchedule: It says nothing that could be; the message says why.
    """
    said = text.strip()
    if len(said) > RULE_MAX:
        raise InvalidSchedule(f"A rule of {len(said):,} characters is too long to be typed.")
    chain = Chain(symbols)
    if "(" in said:
        return _of_calls(said, chain)
    if "=" in said:
        return _of_pairs(said, chain)
    return timing_of_text(said, chain, label="")


def _of_pairs(text: str, chain: Chain) -> Timing:
    fields: dict[str, str] = {}
    for word in text.split():
        name, mark, value = word.partition("=")
        if not mark or not value:
            raise InvalidSchedule(f"{word!r} is no field of a pattern.", fix="Write hours=9-17.")
        if name in BOUNDS:
            chain = called(chain, name, value)
        elif name not in PATTERN_FIELDS:
            close = get_close_matches(name, PATTERN_FIELDS, n=1)
            raise InvalidSchedule(
                f"A pattern has no field {name!r}.",
                fix=f"Did you mean {close[0]!r}?"
                if close
                else f"It has {', '.join(PATTERN_FIELDS)}.",
            )
        elif name in fields:
            raise InvalidSchedule(f"The field {name!r} is given twice.")
        else:
            fields[name] = value
    return chain.pattern(**fields).said


def _of_calls(text: str, chain: Chain) -> Timing:
    try:
        tree = ast.parse(text.lstrip("."), mode="eval").body
    except SyntaxError as fault:
        raise InvalidSchedule(
            f"{text!r} cannot be read: {fault.msg}.",
            fix="Write words as code has them: daily_at('13:00').weekdays()",
        ) from None
    return _called_chain(tree, chain).said


def _called_chain(node: ast.expr, chain: Chain) -> Chain:
    if isinstance(node, ast.Attribute | ast.Name):
        raise InvalidSchedule(f"{ast.unparse(node)} is not called.", fix="Add its parentheses: ().")
    if not isinstance(node, ast.Call):
        raise InvalidSchedule(f"{ast.unparse(node)} is no word of a schedule.")
    match node.func:
        case ast.Name(id=word):
            pass
        case ast.Attribute(value=ast.Name(id="schedules"), attr=word):
            pass
        case ast.Attribute(value=before, attr=word):
            chain = _called_chain(before, chain)
        case _:
            raise InvalidSchedule(f"{ast.unparse(node)} is no word of a schedule.")
    if word not in WORDS:
        close = get_close_matches(word, WORDS, n=1)
        raise InvalidSchedule(
            f"There is no word {word!r}.",
            fix=f"Did you mean {close[0]!r}?" if close else f"One is {min(ALONE)}().",
        )
    args = [_value(arg) for arg in node.args]
    kwargs = {str(pair.arg): _value(pair.value) for pair in node.keywords}
    if args and kwargs:
        raise InvalidSchedule(f"{word}() takes values by position or by name, not both.")
    if kwargs:
        return called(chain, word, kwargs)
    return called(chain, word, args or True)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
            bounds = [_value(arg) for arg in args]
            if all(isinstance(bound, int) for bound in bounds) and max(map(abs, bounds)) < 10_000:
                return list(range(*bounds))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise InvalidSchedule(
            f"{ast.unparse(node)} is no value: write numbers, texts, lists or range()."
        ) from None
