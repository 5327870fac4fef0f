"""Writes the pages of docs/ that are generated from code: `make docs`.

A test compares the pages with the output of this module.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import click

from docs.error_examples import ERRORS, SIGNALS
from tickwork import errors
from tickwork._define.option_table import OPTIONS, Scope
from tickwork._domain.runs.status import NEXT, PHASES, Phase, RunStatus
from tickwork.cli.commands import EXIT_CODES, DocumentedCommand
from tickwork.cli.main import CONTEXT, MODULES, cli
from tickwork.errors import Signal, TickworkError

FOLDER: Final = Path(__file__).parent
SOURCE: Final = FOLDER
NOTE: Final = "<!-- Written by docs/generate.py. Change the code, then run `make docs`. -->"

NO_FAULTS: Final = frozenset(
    {"test_demo", "test_examples", "test_private_servers", "test_sample_programs", "test_wheel"}
)
"""Scenarios without a fault."""

MEANINGS: Final[Mapping[RunStatus, str]] = {
    RunStatus.PENDING: "it waits for its due time, then for a worker",
    RunStatus.RUNNING: "a worker has claimed it and holds its lease",
    RunStatus.FAILED: "an attempt failed; the run is retried when it is due",
    RunStatus.COMPLETED: "it succeeded",
    RunStatus.SKIPPED: "a filter or a policy skipped it; `reason` says why",
    RunStatus.CANCELED: "it was canceled",
    RunStatus.FAILED_PERMANENT: "it failed for the last time; `tickwork retry` adds a new run",
}

PHASE_MEANINGS: Final[Mapping[Phase, str]] = {
    Phase.WAITING: "it is not due yet",
    Phase.READY: "it is due, and a worker can claim it",
    Phase.BLOCKED: "it is due, but a concurrency limit or a rate limit is reached",
    Phase.RUNNING: "a worker has claimed it",
}

SCOPES: Final[Mapping[Scope, str]] = {
    Scope.JOB: "job",
    Scope.APPLICATION: "defaults",
    Scope.CODE_SCHEDULE: "schedule in code",
    Scope.SCHEDULE: "schedule at run time",
    Scope.DISPATCH: "dispatch",
}

OPTIONS_INTRO: Final = """
An option of a *job* is a keyword of `@app.job`, a method of the builder, and a key of `[[jobs]]` in
a [configuration file](../guide/configuration.md). *Defaults* of all jobs are arguments of
`JobDefaults` and keys of `[defaults]`. One more *schedule in code* is a builder from
`app.schedule(name, job)`, or `[[schedules]]`. A *schedule at run time* is created by
`app.schedules`, the pages and the API. An option of a *dispatch* is a method of a draft, a field of
the API, and an option of `tickwork dispatch`.

A value is checked where it is set. [Define jobs](../guide/jobs.md#job-options) has the defaults.
"""

COMMANDS_INTRO: Final = """
`tickwork COMMAND` works on one application. It is named by `-a module:name`, by the environment
variable `TICKWORK_APP`, or by the key `app` of a `tickwork.toml` in the current folder. A
`tickwork.toml` that defines jobs and has no key `app` is an application itself.

A terminal shows tables and colors; a pipe receives plain lines. `NO_COLOR=1` turns colours off.

`--json` prints one JSON object to standard output. Times are ISO 8601 with an offset (UTC, or the
time zone of a rule), durations are seconds. A later version may add keys; it does not rename or
remove them. With `--json`, errors are JSON on standard error:
`{"error": {"code", "what", "why", "fix"}}`. [Errors](errors.md) lists the codes.

Name a run by the first characters of its id, as long as they match one run only. Write a time
with an offset (`2026-03-01T09:00+01:00`), without one (local time), or as a duration (`2h`).

Your shell can complete commands, options and names of jobs:

```console
$ eval "$(_TICKWORK_COMPLETE=bash_source tickwork)"     # in ~/.bashrc
$ eval "$(_TICKWORK_COMPLETE=zsh_source tickwork)"      # in ~/.zshrc
$ _TICKWORK_COMPLETE=fish_source tickwork | source      # in ~/.config/fish/config.fish
```

A program with a click command of its own mounts all commands with `group.add_command(app.cli())`.
"""


def pages() -> dict[Path, str]:
    """Every generated page, by its path."""
    reference = FOLDER / "reference"
    return {
        reference / "commands.md": "\n".join(commands_page()),
        reference / "errors.md": "\n".join(errors_page()),
        reference / "options.md": "\n".join(options_page()),
        reference / "statuses.md": "\n".join(statuses_page()),
        FOLDER / "guide" / "databases.md": _with_part("guide/databases.md", matrix_table()),
        FOLDER / "reliability.md": _with_part("reliability.md", faults_list()),
    }


def _with_part(name: str, lines: Iterator[str]) -> str:
    """A page of which one part is generated, between two comments."""
    page = (SOURCE / name).read_text(encoding="utf-8")
    start, end = "<!-- The next part is written by docs/generate.py. -->\n", "<!-- End. -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    text = "\n".join(lines)
    return f"{before}{start}\n{text}\n\n{end}{after}"


def faults_list() -> Iterator[str]:
    """What the tests with real processes, servers and signals try, and what holds."""
    for path in sorted((SOURCE.parent / "tests" / "scenarios").glob("test_*.py")):
        if path.stem in NO_FAULTS:
            continue
        module = ast.parse(path.read_text(encoding="utf-8"))
        heading = " ".join((ast.get_docstring(module) or path.stem).split("\n\n")[0].split())
        tests = [
            node.name.removeprefix("test_").replace("_", " ")
            for node in ast.walk(module)
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        yield f"- **{heading.removesuffix('.')}** (`{path.name}`): {'; '.join(tests)}."


def matrix_table() -> Iterator[str]:
    """One line for each entry of the matrix."""
    results = json.loads((SOURCE / "matrix.json").read_text(encoding="utf-8"))
    if not results:
        yield "`make test-matrix` has no results for this version yet."
        return
    yield "| tested | Python | folders of tests | passed | repeated | failed | skipped | date |"
    yield "|---|---|---|---|---|---|---|---|"
    for result in results.values():
        subject, python, date = result["subject"], result["python"], result["date"]
        counts = " | ".join(
            f"{result[kind]:,}" for kind in ("passed", "repeated", "failed", "skipped")
        )
        yield f"| {subject} | {python} | {result['tests']} | {counts} | {date} |"


def errors_page() -> Iterator[str]:
    """A section for each error, under its code, in the order of the tree."""
    drawing = inspect.cleandoc(errors.__doc__ or "").split("\n\n")
    yield from (NOTE, "", "# Errors", "")
    yield "Every error has a stable code, and up to three lines: what happened (`error.what`), why"
    yield "(`error.why`) and what to do (`error.fix`). The values in a message are attributes, too."
    yield from ("", "```text")
    yield "\n\n".join(inspect.cleandoc(part) for part in drawing if "──" in part)
    yield "```"
    for kind in _kinds():
        yield from ("", f"## {kind.code}", "", f"{_ancestry(kind)}", "", _markdown(kind))
        facts = [name for name in _attributes(kind) if name not in {"what", "why", "fix"}]
        if facts:
            yield from ("", "Attributes: " + ", ".join(f"`{fact}`" for fact in facts) + ".")
        yield from _example(kind)
    yield ""


def statuses_page() -> Iterator[str]:
    """The table of statuses, its diagram, and the phases."""
    yield from (NOTE, "", "# Statuses of a run", "")
    yield "| status | meaning | may become |"
    yield "|---|---|---|"
    for status in RunStatus:
        targets = ", ".join(f"`{target}`" for target in RunStatus if target in NEXT[status])
        yield f"| `{status}` | {MEANINGS[status]} | {targets or 'nothing: it is final'} |"
    yield ""
    claimable = " or ".join(f"`{status}`" for status in RunStatus if status.can_execute)
    yield f"A worker may claim a run that is {claimable}."
    yield from ("", "```mermaid", "stateDiagram-v2", "    [*] --> pending")
    for status in RunStatus:
        for target in RunStatus:
            if status.can_transition_to(target):
                yield f"    {status} --> {target}"
        if status.is_final:
            yield f"    {status} --> [*]"
    yield from ("```", "", "## Phases", "")
    yield "An unfinished run also has a phase. It says what the run waits for."
    yield from ("", "| phase | meaning | statuses |", "|---|---|---|")
    for phase in Phase:
        statuses = ", ".join(f"`{status}`" for status in RunStatus if phase in PHASES[status])
        yield f"| `{phase}` | {PHASE_MEANINGS[phase]} | {statuses} |"
    yield ""


def options_page() -> Iterator[str]:
    """The table of the options of jobs, schedules and dispatches."""
    yield from (NOTE, "", "# Options", "", *OPTIONS_INTRO.strip().splitlines(), "")
    yield f"| option | value | {' | '.join(SCOPES.values())} | meaning |"
    yield "|---" * (len(SCOPES) + 3) + "|"
    for option in sorted(OPTIONS, key=lambda each: each.name):
        value = ", ".join(f"`{each}`" for each in option.choices) or option.kind.value
        if option.range is not None:
            value += f" {option.range.text}"
        marks = " | ".join("yes" if scope in option.scope else "" for scope in SCOPES)
        yield f"| `{option.name}` | {value} | {marks} | {option.help} |"
    yield ""


# ---------------------------------------------------------------- commands


def commands_page() -> Iterator[str]:
    """A section for each command: options, examples, exit codes, JSON."""
    yield from (NOTE, "", "# Command line", "")
    yield from COMMANDS_INTRO.strip().splitlines()
    yield from ("", "## Global options", "")
    yield from _options_table(cli, click.Context(cli, info_name="tickwork", **CONTEXT))
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {text} |" for code, text in EXIT_CODES.items())
    commands = {name: _command(name) for name in MODULES}
    yield from ("", "## Commands", "", "| command | purpose |", "|---|---|")
    for name, command in commands.items():
        yield f"| [`{name}`](#{name}) | {command.get_short_help_str(200)} |"
    values: dict[str, type] = {}
    for name, command in commands.items():
        yield from _command_section(name, command, values)
    yield from ("", "## JSON types", "")
    yield "Results refer to these types."
    done: set[str] = set()
    while values.keys() - done:  # a section can add further types
        name = min(values.keys() - done)
        done.add(name)
        yield from ("", f"### Type {name}", "", _markdown(values[name]), "")
        yield from _fields_table(values[name], values)
    yield ""


def _command(name: str) -> DocumentedCommand:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, DocumentedCommand), name
    return found


def _command_section(
    name: str, command: DocumentedCommand, values: dict[str, type]
) -> Iterator[str]:
    ctx = click.Context(command, info_name=f"tickwork {name}", **CONTEXT)
    yield from ("", f"## {name}", *_paragraphs(command.help or ""), "")
    yield from ("```console", f"$ {command.get_usage(ctx).removeprefix('Usage: ')}", "```", "")
    if len(command.params) > (command.result_type is not None):
        yield from _options_table(command, ctx, left_out=("--json",))
        yield ""
    yield from ("```console", *_examples(command), "```")
    if command.exit_codes:
        yield ""
        yield from (f"- Exit code {code}: {text}." for code, text in command.exit_codes.items())
    if command.result_type is not None:
        yield from ("", f"**`--json`:** {_markdown(command.result_type)}", "")
        yield from _fields_table(command.result_type, values)


def _options_table(
    command: click.Command, ctx: click.Context, left_out: tuple[str, ...] = ()
) -> Iterator[str]:
    yield "| option | meaning |"
    yield "|---|---|"
    for param in command.get_params(ctx):
        if left_out and "--help" in param.opts:
            continue  # click keeps the names that its first context gave to this option
        record = param.get_help_record(ctx)
        if record is not None and record[1] and record[0] not in left_out:
            spelled, text = (part.replace("|", "\\|") for part in record)
            yield f"| `{spelled}` | {text} |"


def _examples(command: DocumentedCommand) -> list[str]:
    lines = [line for line in command.examples.strip().splitlines() if line]
    return [line if line.startswith("*") else f"$ {line}" for line in lines]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield from ("", " ".join(paragraph.split()))


def _fields_table(kind: type, values: dict[str, type]) -> Iterator[str]:
    hints = get_type_hints(kind)
    notes = dict(re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(kind), re.MULTILINE))
    yield "| key | type | meaning |"
    yield "|---|---|---|"
    for name in getattr(kind, "__dataclass_fields__", None) or kind._fields:  # type: ignore[attr-defined]  # one or the other
        note = notes.get(name, "").replace("None:", "null:").replace("False:", "false:")
        yield f"| `{name}` | {_type_text(hints[name], values)} | {note} |"


def _type_text(hint: Any, values: dict[str, type]) -> str:
    """Name a type in the terms of JSON, and add a type with keys of its own to ``values``."""
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any"}
    if hint in plain:
        return plain[hint]
    if hint is type(None):
        return "null"
    if hint is datetime:
        return "time"
    if hint is timedelta:
        return "seconds"
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return " or ".join(_type_text(arg, values) for arg in args)
    if origin in {list, tuple}:
        return f"array of {_type_text(args[0], values)}"
    if origin is not None:
        return f"object of {_type_text(args[1], values)}"
    if hasattr(hint, "__supertype__"):
        return "string"
    if issubclass(hint, Enum):
        return ", ".join(f"`{each.value}`" for each in hint)
    values[hint.__name__] = hint
    return f"[{hint.__name__}](#type-{hint.__name__.lower()})"


def _kinds() -> list[type[TickworkError | Signal]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, TickworkError | Signal)
    ]


def _ancestry(kind: type[Exception]) -> str:
    bases = " and ".join(
        f"[`{base.__name__}`](#{base.code})"
        if issubclass(base, TickworkError | Signal)
        else f"`{base.__name__}`"
        for base in kind.__bases__
    )
    return f"`{kind.__name__}`, a kind of {bases}."


def _attributes(kind: type[Exception]) -> list[str]:
    """The attributes of an error, from the base down, each once."""
    bases = [each for each in reversed(kind.__mro__) if each.__module__ == errors.__name__]
    return list(dict.fromkeys(chain.from_iterable(map(_own_attributes, bases))))


def _own_attributes(kind: type[Exception]) -> list[str]:
    if "__dataclass_fields__" in vars(kind):
        return [field.name for field in fields(kind)]  # type: ignore[arg-type]  # it is one
    init = vars(kind).get("__init__")
    pattern = r"self\.(\w+)(?:: [^=]+)? ="
    return [] if init is None else re.findall(pattern, inspect.getsource(init))


def _example(kind: type[Exception]) -> Iterator[str]:
    for error in ERRORS:
        if type(error) is kind:
            yield from ("", "```text", str(error), "```")
    for signal, raised in SIGNALS:
        if type(signal) is kind and raised:
            yield from ("", f"`raise {raised}`")


def _markdown(kind: type[Exception]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").replace("``", "`")


def main() -> None:
    """Write every page that has changed."""
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
