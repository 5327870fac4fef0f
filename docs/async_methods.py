"""Writes the methods for coroutines: ``make docs``.

A class for coroutines has the methods of another class. Those below the line BEGIN are made from
that class, so both have the same signatures. Methods that are more than one call stand above it.
"""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tickwork._control.async_schedules import AsyncLimits, AsyncSchedules
from tickwork._control.limits import Limits
from tickwork._control.schedules import Schedules
from tickwork._dispatch.runs import AsyncRunHandle, RunHandle
from tickwork.app.async_tickwork import AsyncTickwork
from tickwork.app.tickwork import Tickwork

BEGIN: Final = "    # From here on, docs/async_methods.py writes the methods.\n"
END: Final = "    # The end of these methods.\n"


class Twin(NamedTuple):
    """A class, the one for coroutines, and how a method of that calls the first one."""

    sync: type
    twin: type
    names: str
    call: str  # {call} is the method with its arguments, {body} what it returns


TWINS: Final = (
    Twin(
        Tickwork,
        AsyncTickwork,
        "get_run due pause resume pauses drain_worker schema_version install prune"
        " cancel_orphans explain check_health check_worker status unlock",
        "self._call(lambda services: {body})",
    ),
    Twin(
        Schedules,
        AsyncSchedules,
        "create register unregister update pause resume run_now backfill get preview list"
        " count_between page",
        "self._call(lambda each: each.{call})",
    ),
    Twin(Limits, AsyncLimits, "change reset list holders", "self._call(lambda each: each.{call})"),
    Twin(
        RunHandle,
        AsyncRunHandle,
        "read attempts log turn at delay cancel wake signal retry",
        "self._bridge.call(self._run.{name}{rest})",
    ),
)


def write() -> None:
    """Write the methods of all classes."""
    for path, text in contents().items():
        path.write_text(text, encoding="utf-8")


def contents() -> dict[Path, str]:
    """The text of each file that has such methods."""
    found: dict[Path, str] = {}
    for each in TWINS:
        path = Path(inspect.getfile(each.twin))
        text = found.get(path) or path.read_text(encoding="utf-8")
        head, name, tail = text.partition(f"\nclass {each.twin.__name__}")
        before, begin, rest = tail.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (name and begin and end):
            raise ValueError(f"{path}: {each.twin.__name__} has no place for its methods.")
        found[path] = "".join((head, name, before, begin, "\n", *_methods(each), end, after))
    return {path: _formatted(text, path) for path, text in found.items()}


def _methods(twin: Twin) -> Iterator[str]:
    source = inspect.getsource(twin.sync)
    lines = source.splitlines(keepends=True)
    [kind] = ast.parse(source).body
    assert isinstance(kind, ast.ClassDef)
    by_name = {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)}
    for name in twin.names.split():
        node = by_name[name]
        signature = "".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
        passed = _arguments(node.args)
        call = twin.call.format(
            name=name,
            rest=f", {passed}" if passed else "",
            call=f"{name}({passed})",
            body=_body(node),
        )
        yield f"    async {signature.lstrip()}"
        yield f'        """As :meth:`{twin.sync.__name__}.{name}`."""\n'
        yield f"        return await {call}\n\n"


def _arguments(found: ast.arguments) -> str:
    """The arguments with which a method passes its own on."""
    passed = [one.arg for one in (*found.posonlyargs, *found.args)][1:]
    passed += [f"*{found.vararg.arg}"] if found.vararg else []
    passed += [f"{one.arg}={one.arg}" for one in found.kwonlyargs]
    passed += [f"**{found.kwarg.arg}"] if found.kwarg else []
    return ", ".join(passed)


def _body(node: ast.FunctionDef) -> str:
    """What a method of the application returns, of its services."""
    last = node.body[-1]
    returned = ast.unparse(last.value) if isinstance(last, ast.Return) and last.value else ""
    return re.sub(r"\bself\._services\b", "services", returned)


def _formatted(text: str, path: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--quiet",
        "--stdin-filename",
        str(path),
        "-",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603  # ruff
    return done.stdout


if __name__ == "__main__":
    write()
