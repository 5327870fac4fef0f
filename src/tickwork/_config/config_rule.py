"""Reads the value of ``run`` in a configuration file: when a job is due.

``run`` is one of these::

    run = "EVERY_DAY"                               # a symbol
    run = "*/5 9-17 * * MON-FRI"                    # cron, or @daily
    run = "every_five_minutes"                      # a frequency without arguments
    run = { minutes = "*/15", hours = "9-17" }      # a pattern
    run = { daily_at = "13:00", weekdays = true }   # a frequency, and what refines it

A table that names a frequency has the builder's methods as keys and their arguments as
values. Any other table is a pattern. Both can have a time zone, windows and bounds.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final

from tickwork._calendars.calendars import Calendars
from tickwork._config.toml_document import Document, Path, shown, suggest_or_list
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork._domain.schedules.pattern import PATTERN_FIELDS, Symbols, parse_dict_pattern
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import InvalidSchedule, suggest
from tickwork.schedules import Timetable

_METHODS: Final = frozenset(name for name in vars(Frequencies) if not name.startswith("_"))
BOUNDS: Final = frozenset(
    {"timezone", "between", "unless_between", "except_on", "starting", "until", "max_firings"}
)
_DAYS: Final = ("sundays", "mondays", "tuesdays", "wednesdays", "thursdays", "fridays", "saturdays")
REFINEMENTS: Final = frozenset(
    {"seconds", "minutes", "hours", "days", "months", "weekdays", "weekends", *_DAYS}
)
# on() takes a rule that was made in code.
FREQUENCIES: Final = _METHODS - BOUNDS - REFINEMENTS - {"on"}
RULE_METHODS: Final = FREQUENCIES | REFINEMENTS | BOUNDS

_WINDOWS: Final = frozenset({"between", "unless_between"})


def _needs_no_arguments(method: str) -> bool:
    parameters = signature(getattr(Frequencies, method)).parameters.values()
    return method not in {"every", "pattern"} and all(
        each.name == "self" or each.default is not each.empty or each.kind is each.VAR_POSITIONAL
        for each in parameters
    )


WITHOUT_ARGUMENTS: Final = frozenset(
    method for method in FREQUENCIES if _needs_no_arguments(method)
)
"""Frequencies that need no arguments: ``run = "every_five_minutes"``."""


def read_timing(
    document: Document, path: Path, value: object, symbols: Symbols, calendars: Calendars
) -> Timing | None:
    """Read the value of ``run``; if it is wrong, report that to the document and return None."""
    before = document.problem_count
    timing: Timing | None = None
    chain = Timetable(symbols=symbols, calendars=calendars.named)
    if isinstance(value, dict):
        value = {key: argument for key, argument in value.items() if argument is not False}
    with document.reporting(path):
        match value:
            case str():
                timing = read_timing_text(value.strip(), chain)
            case dict() if value.keys() & FREQUENCIES:
                timing = _read_frequency(document, path, value, chain)
            case dict():
                timing = _read_pattern(document, path, value, chain)
            case _:
                raise InvalidSchedule(
                    f"run must be a string or a table, got {shown(value)}.",
                    fix="Write a symbol, a cron expression, a pattern or a frequency.",
                )
    return timing if document.problem_count == before else None


def check_pattern(document: Document, path: Path, fields: Mapping[str, Any]) -> None:
    """Report what is wrong with a pattern, field by field."""
    before = document.problem_count
    if not fields:
        document.report(
            path, f"A pattern needs at least one field. {suggest_or_list('', PATTERN_FIELDS)}"
        )
    document.check_keys(path, fields, PATTERN_FIELDS)
    for key in fields.keys() & PATTERN_FIELDS:
        with document.reporting((*path, key)):
            parse_dict_pattern({key: fields[key]})
    if document.problem_count == before:
        with document.reporting(path):
            parse_dict_pattern(fields)


def read_timing_text(text: str, chain: Timetable, *, label: str = "run = ") -> Timing:
    """Read a symbol, a cron expression, or a frequency that needs no arguments."""
    symbols = chain.symbols or {}
    if text in symbols:
        return chain.symbol(text).timing
    if text.startswith("@") or len(text.split()) > 1:
        return chain.cron(text).timing
    if text in WITHOUT_ARGUMENTS:
        return call_method(chain, text, True).timing
    if text in RULE_METHODS:
        fix = f"{text!r} needs arguments: "
        fix += f"run = {{ {text} = ... }}." if label else f"{text}(...)."
    else:
        fix = suggest(text, [*symbols, *sorted(RULE_METHODS)])
        fix = fix or f"The symbols are {', '.join(symbols)}."
    raise InvalidSchedule(
        f"{label}{shown(text)} is not a symbol, a frequency or a cron expression.", fix=fix
    )


def _read_pattern(
    document: Document, path: Path, table: Mapping[str, Any], chain: Timetable
) -> Timing | None:
    fields = {key: value for key, value in table.items() if key not in BOUNDS}
    for method in sorted(fields.keys() & REFINEMENTS - set(PATTERN_FIELDS)):
        del fields[method]
        document.report(
            (*path, method),
            f"{method!r} refines a frequency, and this run has none. "
            "Add one, such as daily = true.",
        )
    if not fields:
        raise InvalidSchedule(
            "This run has no frequency.", fix='Add one, such as daily_at = "13:00".'
        )
    before = document.problem_count
    check_pattern(document, path, fields)
    chain = _read_bounds(document, path, table, chain)
    return None if document.problem_count > before else chain.pattern(**fields).timing


def _read_frequency(
    document: Document, path: Path, table: Mapping[str, Any], chain: Timetable
) -> Timing | None:
    first, *more = [key for key in table if key in FREQUENCIES]
    for method in more:
        document.report(
            (*path, method), f"{method!r} comes after {first!r}: a schedule has one frequency."
        )
    for key, value in table.items():
        if key in BOUNDS or key in more:
            continue
        if key in RULE_METHODS:
            with document.reporting((*path, key)):
                chain = call_method(chain, key, value)
        elif key in PATTERN_FIELDS:
            document.report(
                (*path, key),
                f"{key!r} is a field of a pattern, and {first!r} is a frequency. "
                "Use one or the other.",
            )
        else:
            document.report_unknown_key((*path, key), sorted(RULE_METHODS))
    return _read_bounds(document, path, table, chain).timing


def _read_bounds(
    document: Document, path: Path, table: Mapping[str, Any], chain: Timetable
) -> Timetable:
    for key in [key for key in table if key in BOUNDS]:
        with document.reporting((*path, key)):
            chain = call_method(chain, key, table[key])
    return chain


def call_method(chain: Timetable, method: str, value: Any) -> Timetable:
    """Call a method of the builder with the value of its key.

    True stands for no argument, a list for arguments by position, a table for those by name.
    """
    if method in _WINDOWS and isinstance(value, list) and isinstance(next(iter(value), None), list):
        for each in value:
            chain = call_method(chain, method, tuple(each) if isinstance(each, list) else each)
        return chain
    call: Callable[..., Timetable] = getattr(chain, method)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    if isinstance(value, dict):
        kwargs = value
    elif isinstance(value, list | tuple):
        args = tuple(value)
    elif value is not True:
        args = (value,)
    _check_call(call, method, args, kwargs)
    return call(*args, **kwargs)


def _check_call(
    call: Callable[..., Timetable], method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    parameters = signature(call)
    try:
        parameters.bind(*args, **kwargs)
    except TypeError:
        names = list(parameters.parameters)
        unknown = [key for key in kwargs if key not in names]
        if not names:
            raise InvalidSchedule(
                f"{method!r} takes no arguments.", fix=f"Write {method} = true."
            ) from None
        if unknown:
            raise InvalidSchedule(
                f"{method!r} takes no argument {unknown[0]!r}.",
                fix=suggest_or_list(unknown[0], names),
            ) from None
        raise InvalidSchedule(f"{method!r} takes ({', '.join(names)}).") from None
