"""Generates the API reference from docstrings and events when the site is built.

The pages are not stored in the repository.
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
    "reference/celery.md": "tickwork.integrations.celery",
    "reference/contracts.md": "tickwork.contracts",
    "reference/export.md": "tickwork.export",
    "reference/dashboard.md": "tickwork.dashboard",
    "reference/alerts.md": "tickwork.alerts",
    "reference/schedules.md": "tickwork.schedules",
    "reference/testing.md": "tickwork.testing",
    "reference/fastapi.md": "tickwork.integrations.fastapi",
    "reference/flask.md": "tickwork.integrations.flask",
    "reference/opentelemetry.md": "tickwork.integrations.opentelemetry",
    "reference/prometheus.md": "tickwork.integrations.prometheus",
    "reference/sentry.md": "tickwork.integrations.sentry",
    "reference/health.md": "tickwork.integrations.health",
}
RETURNED: Final = (
    "tickwork._dispatch.runs:Runs",
    "tickwork._control.schedules:Schedules",
    "tickwork._control.limits:Limits",
    "tickwork._control.audit:AuditLog",
    "tickwork._control.audit:IdempotentDispatcher",
    "tickwork._inspect.inspector:Inspector",
    "tickwork._control.locks:Lock",
    "tickwork.app.async_tickwork:AsyncTickwork",
)
"""Classes that public methods return and that programs do not import."""
PREFIXES: Final = r"\b(?:tickwork\.(?:\w+\.)*|collections\.abc\.|typing\.|datetime\.(?=\w))"
DEFAULT_LENGTH_MAX: Final = 40
"""Longer default values are shown as three dots."""
ERROR_NAMES: Final = {"Discard", "RetryLater", "Snooze", "TickworkError"}
"""These are on the page of errors."""


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
    """The public names of a module."""
    yield from (f"# {module.__name__}", "", markdown(module.__doc__ or ""))
    for name in sorted(module.__all__, key=lambda name: name != "Tickwork"):  # the main class first
        value = getattr(module, name)
        if callable(value) and name not in ERROR_NAMES:
            yield from _section(name, value)


def objects_page() -> Iterator[str]:
    """The objects that methods of the application return."""
    yield from ("# Objects", "")
    yield "`app.job`, `dispatch`, `app.schedules` and other methods return these objects."
    yield "You do not import them."
    described: dict[Any, str] = {}
    for path in RETURNED:
        module, _, name = path.partition(":")
        kind = getattr(import_module(module), name)
        yield from ("", f"## {name}", "", markdown(kind.__doc__ or ""))
        yield from _members_once(name, kind, described)


def _members_once(name: str, kind: type, described: dict[Any, str]) -> Iterator[str]:
    """The members of a class. Those that an earlier class has too are only listed."""
    members = list(_members(kind))
    inherited: dict[str, list[str]] = {}
    for member, found in members:
        if found in described:
            inherited.setdefault(described[found], []).append(member)
    for owner, names in inherited.items():
        listed = ", ".join(f"`{each}`" for each in names)
        yield from ("", f"It has these members of [{owner}](#{owner.lower()}): {listed}.")
    for member, found in members:
        if found not in described:
            described[found] = name
            yield from _member_section(name, member, found)


def _section(name: str, value: Any) -> Iterator[str]:
    """A section for one name."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        yield from ("", f"## {name}", "", _text_below_definition(name))
        return
    yield from ("", f"## {name}", "", *_signature(name, value), markdown(value.__doc__ or ""))
    if inspect.isclass(value):
        for member, found in _members(value):
            yield from _member_section(name, member, found)


def _member_section(name: str, member: str, value: Any) -> Iterator[str]:
    yield from ("", f"### {name}.{member}", "")
    yield from _signature(member, value)
    yield markdown(inspect.getdoc(value) or "")


def _text_below_definition(name: str) -> str:
    """The string literal below the definition of a constant."""
    source = inspect.getsource(import_module(_HOMES[name]))
    found = re.search(rf'^{name}\b.*\n"""(.+?)"""', source, re.MULTILINE | re.DOTALL)
    return markdown(found[1]) if found else ""


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class and its bases, in the order of the code."""
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
    kept = [
        one if len(repr(one.default)) <= DEFAULT_LENGTH_MAX else one.replace(default=...)
        for one in signature.parameters.values()
        if one.name not in {"self", "cls"}
    ]
    text = re.sub(PREFIXES, "", str(signature.replace(parameters=kept)))
    text = text.replace("Ellipsis", "...")
    text = re.sub(r"\[~\w+\]|~", "", re.sub(r"<[^>]*>", "...", text))
    yield from ("```text", "\n".join(textwrap.wrap(f"{name}{text}", 96)), "```", "")


def markdown(docstring: str) -> str:
    """Convert a docstring to Markdown: examples become code blocks, sections become lists."""
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
    """A section for each event, with its fields."""
    yield from ("# Events", "", markdown(events.__doc__ or ""), "")
    yield "`@app.on(RunFailed)` subscribes to one event, `@app.on(Event)` to all."
    for name in events.__all__:
        kind = getattr(events, name)
        yield from ("", f"## {name}", "", markdown(kind.__doc__ or ""))
        fields = ", ".join(f"`{field}`" for field in kind.__dataclass_fields__)
        yield from ("", f"Fields: {fields}.")
