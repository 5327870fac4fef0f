"""The reference pages that are made from docstrings and events.

They are made when the site is built, and stored nowhere: what they say is in the code.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from tickwork import _HOMES, events

MODULES: Final = {
    "reference/tickwork.md": "tickwork",
    "reference/schedules.md": "tickwork.schedules",
    "reference/testing.md": "tickwork.testing",
}
HELD: Final = (
    "tickwork._client.jobs:Job",
    "tickwork._client.jobs:Draft",
    "tickwork._client.jobs:AsyncDraft",
    "tickwork._client.builder:JobBuilder",
    "tickwork._client.builder:ScheduleBuilder",
    "tickwork._client.runs:RunHandle",
    "tickwork._client.runs:Runs",
    "tickwork._client.schedules:Schedules",
    "tickwork._client.limits:Limits",
    "tickwork._inspect.inspector:Inspector",
    "tickwork._client.locks:Lock",
    "tickwork.async_app:AsyncTickwork",
)
"""What a program is handed and never imports."""
PREFIXES: Final = r"\b(?:tickwork\.(?:\w+\.)*|collections\.abc\.|typing\.|datetime\.(?=\w))"
ERROR_NAMES: Final = {"Discard", "RetryLater", "Snooze", "TickworkError"}
"""They have a page of their own."""


def pages() -> dict[str, str]:
    """Every page, by its path below docs/."""
    found = {path: _text(module_page(import_module(name))) for path, name in MODULES.items()}
    found["reference/objects.md"] = _text(objects_page())
    found["reference/events.md"] = _text(events_page())
    return found


def _text(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- docstrings


def module_page(module: ModuleType) -> Iterator[str]:
    """Everything that a module offers."""
    yield from (f"# {module.__name__}", "", markdown(module.__doc__ or ""))
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and name not in ERROR_NAMES:
            yield from _described(name, value)


def objects_page() -> Iterator[str]:
    """What a program is handed by the application."""
    yield from ("# What you are handed", "")
    yield "Nobody imports these: `app.job`, `dispatch`, `app.schedules` and the like return them."
    for path in HELD:
        module, _, name = path.partition(":")
        yield from _described(name, getattr(import_module(module), name), is_made=False)


def _described(name: str, value: Any, *, is_made: bool = True) -> Iterator[str]:
    """A section; with the signature, unless it is of something that programs do not make."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        yield from ("", f"## {name}", "", _below_its_line(name))
        return
    signature = _signature(name, value) if is_made else ()
    yield from ("", f"## {name}", "", *signature, markdown(value.__doc__ or ""))
    if inspect.isclass(value):
        for member, found in _members(value):
            yield from ("", f"### {name}.{member}", "")
            yield from _signature(member, found)
            yield markdown(inspect.getdoc(found) or "")


def _below_its_line(name: str) -> str:
    """What is said of a value that can have no docstring: the text below its definition."""
    source = inspect.getsource(import_module(_HOMES[name]))
    found = re.search(rf'^{name}\b.*\n"""(.+?)"""', source, re.MULTILINE | re.DOTALL)
    return markdown(found[1]) if found else ""


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Its public methods and properties, with those of its bases, in the order of the code."""
    seen = set(dir(object)) | (set(dir(Exception)) if issubclass(kind, Exception) else set())
    for each in kind.__mro__:
        if not each.__module__.startswith("tickwork"):
            continue
        for name, raw in vars(each).items():
            if name.startswith("_") or name in seen or not inspect.getdoc(raw):
                continue
            if isinstance(raw, property | classmethod | staticmethod) or inspect.isroutine(raw):
                seen.add(name)
                yield name, raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw


def _signature(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property) or not callable(value):
        return
    try:
        signature = inspect.signature(value)
    except ValueError:
        return
    kept = [one for one in signature.parameters.values() if one.name not in {"self", "cls"}]
    text = re.sub(PREFIXES, "", str(signature.replace(parameters=kept)))
    text = re.sub(r"\[~\w+\]|~", "", re.sub(r"<[^>]*>", "...", text))
    yield from ("```text", "\n".join(textwrap.wrap(f"{name}{text}", 96)), "```", "")


def markdown(docstring: str) -> str:
    """A docstring as a page shows it: its examples are code, its sections have names."""
    lines: list[str] = []
    in_example = False
    text = re.sub(r":\w+:(?=`)", "", inspect.cleandoc(docstring).replace("``", "`"))
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    for line in text.splitlines():
        if line.lstrip().startswith(">>>") and not in_example:
            in_example = True
            lines += ["```pycon", line.strip()]
        elif in_example and not line.strip():
            in_example = False
            lines += ["```", ""]
        elif re.fullmatch(r"(Raises|Args|Returns|Yields):", line):
            lines += [f"**{line}**", ""]
        elif found := re.fullmatch(r"    (\w+): (.+)", line):
            lines.append(f"- `{found[1]}`: {found[2]}")
        else:
            lines.append(line)
    return "\n".join([*lines, "```"] if in_example else lines)


# ---------------------------------------------------------------- events


def events_page() -> Iterator[str]:
    """A section for each event, with its facts."""
    yield from ("# Events", "", markdown(events.__doc__ or ""), "")
    yield "`@app.on(RunFailed)` subscribes to one kind, `@app.on(Event)` to all of them."
    for name in events.__all__:
        kind = getattr(events, name)
        yield from ("", f"## {name}", "", markdown(kind.__doc__ or ""))
        facts = ", ".join(f"`{fact}`" for fact in kind.__dataclass_fields__)
        yield from ("", f"Facts: {facts}.")
