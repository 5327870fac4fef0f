"""Converted schedules, and the Python code that defines them."""

import ast
import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from tickwork._domain.names import check_name
from tickwork._kernel.plain_text import escape_line
from tickwork.errors import InvalidSchedule, TickworkError
from tickwork.schedules import Timetable


class NotConvertible(Exception):  # noqa: N818  # a result of a conversion
    """A schedule has no equal definition. The text is the reason."""


class MethodCall(NamedTuple):
    """A call of a builder method with literal arguments."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    def to_code(self) -> str:
        return f".{self.method}({call_arguments(self.args, self.kwargs)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedSchedule:
    """A schedule with an equal definition.

    ``handler`` is the expression of its handler. ``timing`` are the calls that set its rule,
    ``options`` the others. ``notes`` become comments.
    """

    name: str
    handler: str
    timing: Sequence[MethodCall]
    options: Sequence[MethodCall] = ()
    notes: Sequence[str] = ()
    modules: Sequence[str] = ()  # that the handler needs


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconvertedEntry:
    """An entry that has no equal definition, as it was written, and the reason."""

    name: str
    source: str
    reason: str


Entry: TypeAlias = ConvertedSchedule | UnconvertedEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSchedules:
    """The schedules of another scheduler, as Python code."""

    code: str
    converted: list[str]  # names
    unconverted: list[UnconvertedEntry]


CALL_HELPER: Final = '''\
def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Make a handler that calls a function with these arguments."""

    async def call_coroutine() -> None:
        await function(*args, **kwargs)

    def call_function() -> None:
        function(*args, **kwargs)

    return call_coroutine if inspect.iscoroutinefunction(function) else call_function
'''
CALL_IMPORTS: Final = (
    "import inspect",
    "from collections.abc import Callable",
    "from typing import Any",
)


def check_schedule(schedule: ConvertedSchedule, *, now: datetime) -> None:
    """Check that the definition is valid and fires.

    Raises:
        NotConvertible: It is not, or does not.
    """
    try:
        check_name("name", schedule.name)
        timetable = Timetable()
        for method, args, kwargs in schedule.timing:
            timetable = getattr(timetable, method)(*args, **kwargs)
        rule = timetable.timing.rule(tz="UTC", anchor=now, key=schedule.name)
        first = rule.next_after(now)
    except TickworkError as error:
        raise NotConvertible(" ".join(str(error).split())) from None
    if first is None:
        raise NotConvertible("It does not fire any more.")


def to_module(
    entries: Iterable[Entry],
    *,
    source: str,
    imports: Sequence[str] = (),
    helper: str = "",
    notes: Sequence[str] = (),
) -> ImportedSchedules:
    """Write the module that defines the schedules."""
    entries = list(entries)
    converted = [entry for entry in entries if isinstance(entry, ConvertedSchedule)]
    unconverted = [entry for entry in entries if isinstance(entry, UnconvertedEntry)]
    modules = {module for entry in converted for module in entry.modules}
    lines = [
        *_comments(f"Converted by `tickwork import {source}`."),
        *(line for note in notes for line in _comments(note)),
        "",
    ]
    used = imports if converted else ()
    plain = {line for line in used if line.startswith("import ")}
    lines += sorted(plain) + sorted(set(used) - plain) + ["", "from tickwork import Tickwork"]
    lines += [f"import {module}" for module in sorted(modules)]
    lines += ["", "app = Tickwork()  # on the database of TICKWORK_URL", ""]
    if converted and helper:
        lines += ["", helper]
    for entry in entries:
        lines += ["", *_entry_lines(entry)]
    code = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n") + "\n"
    ast.parse(code)
    return ImportedSchedules(
        code=code, converted=[entry.name for entry in converted], unconverted=unconverted
    )


def _entry_lines(entry: Entry) -> Iterator[str]:
    if isinstance(entry, UnconvertedEntry):
        yield from _comments(f"NOT CONVERTED: {entry.name}")
        yield from _comments(f"  {entry.source}")
        yield from _comments(f"  Reason: {entry.reason}")
        return
    for note in entry.notes:
        yield from _comments(note)
    calls = [call.to_code() for call in (*entry.timing, *entry.options)]
    start = f"app.schedule({literal(entry.name)}, {entry.handler})"
    line = start + "".join(calls)
    if len(line) <= 100:
        yield line
        return
    yield "("
    yield f"    {start}"
    yield from (f"    {call}" for call in calls)
    yield ")"


def _comments(text: str) -> Iterator[str]:
    # A line end inside of the text must not end the comment.
    yield f"# {escape_line(text)}"


def literal(value: Any) -> str:
    """Write a value as a Python literal.

    Raises:
        NotConvertible: It has none.
    """
    match value:
        case str():
            return json.dumps(value)
        case None | bool() | int() | float() | bytes():
            text = repr(value)
        case list():
            text = f"[{', '.join(map(literal, value))}]"
        case tuple():
            text = f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
        case dict():
            pairs = (f"{literal(key)}: {literal(each)}" for key, each in value.items())
            text = f"{{{', '.join(pairs)}}}"
        case set() if value:
            text = f"{{{', '.join(sorted(map(literal, value)))}}}"
        case _:
            raise NotConvertible(
                f"An argument is an object of type {type(value).__name__}, which has no literal."
            )
    if text in {"nan", "inf", "-inf"}:
        raise NotConvertible(f"An argument is {text}, which has no literal.")
    return text


def call_arguments(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """Write the arguments of a call."""
    parts = [literal(value) for value in args]
    if all(is_name(name) for name in kwargs):
        parts += [f"{name}={literal(value)}" for name, value in kwargs.items()]
    else:
        parts.append(f"**{literal(dict(kwargs))}")
    return ", ".join(parts)


def is_name(text: object) -> bool:
    """Whether a text can be the name of an argument, of a module or of a function."""
    return isinstance(text, str) and text.isidentifier() and not keyword.iskeyword(text)


def zone_calls(zone: str) -> list[MethodCall]:
    return [] if zone == "UTC" else [MethodCall("timezone", (zone,))]


def converted_or_not(
    name: str, source: str, convert: Any, *, now: datetime
) -> ConvertedSchedule | UnconvertedEntry:
    """Convert one entry, and check the result."""
    try:
        schedule: ConvertedSchedule = convert()
        check_schedule(schedule, now=now)
        for call in (*schedule.timing, *schedule.options):
            call.to_code()
    except (NotConvertible, InvalidSchedule) as reason:
        return UnconvertedEntry(
            name=name or "(no name)", source=source, reason=" ".join(str(reason).split())
        )
    return schedule
