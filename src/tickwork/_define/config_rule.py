"""When a job is due, as a file says it: a symbol, a cron text, a pattern, or words.

``run`` is one of these::

    run = "EVERY_DAY"                               # a symbol
    run = "*/5 9-17 * * MON-FRI"                    # cron, or @daily
    run = "every_five_minutes"                      # a frequency that needs nothing more
    run = { minutes = "*/15", hours = "9-17" }      # a pattern
    run = { daily_at = "13:00", weekdays = true }   # words, as the builder has them

A table that names a frequency is made of words: each key is one, and its value is what the
builder's word takes. Any other table is a pattern. Zones, windows and ends go with both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from typing import Any, Final, Self, TypeAlias

from tickwork._define.toml_document import Document, guess, shown
from tickwork._define.toml_lines import Path
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork._domain.schedules.pattern import PATTERN_FIELDS, Values, said_by_dict
from tickwork._domain.schedules.timing import Timing
from tickwork._kernel.durations import parse_duration
from tickwork.errors import InvalidSchedule

Symbols: TypeAlias = Mapping[str, Mapping[str, Values]]

_WORDS: Final = frozenset(name for name in vars(Frequencies) if not name.startswith("_"))
BOUNDS: Final = frozenset(
    {"timezone", "between", "unless_between", "except_on", "starting", "until", "max_firings"}
)
_DAYS: Final = ("sundays", "mondays", "tuesdays", "wednesdays", "thursdays", "fridays", "saturdays")
REFINEMENTS: Final = frozenset(
    {"seconds", "minutes", "hours", "days", "months", "weekdays", "weekends", *_DAYS}
)
# ``on`` takes a rule that was made in code.
FREQUENCIES: Final = _WORDS - BOUNDS - REFINEMENTS - {"on"}
WORDS: Final = FREQUENCIES | REFINEMENTS | BOUNDS

_WINDOWS: Final = frozenset({"between", "unless_between"})
_NOTHING: Final = Timing()


@dataclass(frozen=True, slots=True)
class Chain(Frequencies):
    """The words on their own, with the symbols that are known here."""

    symbols: Symbols
    said: Timing = _NOTHING

    @property
    def _timing(self) -> Timing:
        return self.said

    def _timed(self, timing: Timing) -> Self:
        return type(self)(self.symbols, timing)

    @property
    def _symbols(self) -> Symbols:
        return self.symbols


def _is_enough(word: str) -> bool:
    """Whether a frequency says how often without being told anything."""
    parameters = signature(getattr(Frequencies, word)).parameters.values()
    return word not in {"every", "pattern"} and all(
        each.name == "self" or each.default is not each.empty or each.kind is each.VAR_POSITIONAL
        for each in parameters
    )


ALONE: Final = frozenset(word for word in FREQUENCIES if _is_enough(word))


def timing_at(document: Document, path: Path, value: object, symbols: Symbols) -> Timing | None:
    """What the value of ``run`` says; None when it is wrong, which the document notes."""
    before = document.fault_count
    timing: Timing | None = None
    if isinstance(value, dict):
        value = {key: said for key, said in value.items() if said is not False}
    with document.noting(path):
        match value:
            case str():
                timing = timing_of_text(value.strip(), Chain(symbols))
            case dict() if value.keys() & FREQUENCIES:
                timing = _of_words(document, path, value, Chain(symbols))
            case dict():
                timing = _of_pattern(document, path, value, Chain(symbols))
            case _:
                raise InvalidSchedule(
                    f"run is a text or a table, not {shown(value)}.",
                    fix="Write a symbol, a cron expression, a pattern or words.",
                )
    return timing if document.fault_count == before else None


def check_pattern(document: Document, path: Path, fields: Mapping[str, Any]) -> None:
    """Note what is wrong with a pattern, field by field."""
    before = document.fault_count
    if not fields:
        document.fault(path, f"A pattern has one field at least. {guess('', PATTERN_FIELDS)}")
    document.check_keys(path, fields, PATTERN_FIELDS)
    for key in fields.keys() & PATTERN_FIELDS:
        with document.noting((*path, key)):
            said_by_dict({key: fields[key]})
    if document.fault_count == before:
        with document.noting(path):
            said_by_dict(fields)


def timing_of_text(text: str, chain: Chain, *, label: str = "run = ") -> Timing:
    """What a text alone says: a symbol, a cron expression, or a frequency."""
    if text in chain.symbols:
        return chain.symbol(text).said
    if text.startswith("@") or len(text.split()) > 1:
        return chain.cron(text).said
    if text in ALONE:
        return called(chain, text, True).said
    names = [*chain.symbols, *sorted(WORDS)]
    close = get_close_matches(text, names, n=1)
    if text in WORDS:
        fix = f"{text!r} needs more than its name: "
        fix += f"run = {{ {text} = ... }}." if label else f"{text}(...)."
    elif close:
        fix = f"Did you mean {close[0]!r}?"
    else:
        fix = f"Symbols are {', '.join(chain.symbols)}."
    raise InvalidSchedule(
        f"{label}{shown(text)} is no symbol, no frequency and no cron expression.", fix=fix
    )


def _of_pattern(
    document: Document, path: Path, table: Mapping[str, Any], chain: Chain
) -> Timing | None:
    fields = {key: value for key, value in table.items() if key not in BOUNDS}
    for word in sorted(fields.keys() & REFINEMENTS - set(PATTERN_FIELDS)):
        del fields[word]
        document.fault(
            (*path, word),
            f"{word!r} narrows a frequency, and this run names none. "
            "Add one, such as daily = true.",
        )
    if not fields:
        raise InvalidSchedule(
            "This run does not say how often.", fix='Add, for example, daily_at = "13:00".'
        )
    before = document.fault_count
    check_pattern(document, path, fields)
    chain = _of_bounds(document, path, table, chain)
    return None if document.fault_count > before else chain.pattern(**fields).said


def _of_words(
    document: Document, path: Path, table: Mapping[str, Any], chain: Chain
) -> Timing | None:
    first, *more = [key for key in table if key in FREQUENCIES]
    for word in more:
        document.fault(
            (*path, word), f"{word!r} comes after {first!r}: one schedule has one frequency."
        )
    for key, value in table.items():
        if key in BOUNDS or key in more:
            continue
        if key in WORDS:
            with document.noting((*path, key)):
                chain = called(chain, key, value)
        elif key in PATTERN_FIELDS:
            document.fault(
                (*path, key),
                f"{key!r} is a field of a pattern, and {first!r} is a frequency. "
                "Use one or the other.",
            )
        else:
            document.fault((*path, key), f"There is no {key!r} here. {guess(key, sorted(WORDS))}")
    return _of_bounds(document, path, table, chain).said


def _of_bounds(document: Document, path: Path, table: Mapping[str, Any], chain: Chain) -> Chain:
    for key in [key for key in table if key in BOUNDS]:
        with document.noting((*path, key)):
            chain = called(chain, key, table[key])
    return chain


def called(chain: Chain, word: str, value: Any) -> Chain:
    """A word with its arguments: none, one, several by position, or by name."""
    if word == "every" and isinstance(value, str):
        return chain.every(seconds=parse_duration(value).total_seconds())
    if word in _WINDOWS and isinstance(value, list) and isinstance(next(iter(value), None), list):
        for each in value:
            chain = called(chain, word, tuple(each) if isinstance(each, list) else each)
        return chain
    call: Callable[..., Chain] = getattr(chain, word)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    if isinstance(value, dict):
        kwargs = value
    elif isinstance(value, list | tuple):
        args = tuple(value)
    elif value is not True:
        args = (value,)
    _check_call(call, word, args, kwargs)
    return call(*args, **kwargs)


def _check_call(
    call: Callable[..., Chain], word: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    taken = signature(call)
    try:
        taken.bind(*args, **kwargs)
    except TypeError:
        names = list(taken.parameters)
        unknown = [key for key in kwargs if key not in names]
        if not names:
            raise InvalidSchedule(f"{word!r} takes nothing: write {word} = true.") from None
        if unknown:
            raise InvalidSchedule(
                f"{word!r} takes no {unknown[0]!r}.", fix=guess(unknown[0], names)
            ) from None
        raise InvalidSchedule(f"{word!r} takes {', '.join(names)}.") from None
