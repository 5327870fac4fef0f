"""What all commands share: how they are declared, what they are given, how they refuse."""

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import click

from tickwork._kernel.clock import SystemClock
from tickwork._kernel.durations import parse_duration
from tickwork.app import Tickwork
from tickwork.cli.loading import load_app
from tickwork.cli.render import Output, json_text
from tickwork.errors import (
    AmbiguousRun,
    JobNotFound,
    RunNotFound,
    ScheduleNotFound,
    StoreError,
    TickworkError,
    WaitTimeout,
)

F = TypeVar("F", bound=Callable[..., Any])

EXIT_NO: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNKNOWN: Final = 3
EXIT_STORE: Final = 4
EXIT_TIME: Final = 5
EXIT_STUCK: Final = 70
EXIT_BEHIND: Final = 71
EXIT_INTERRUPTED: Final = 130

EXITS: Final[Mapping[int, str]] = {
    0: "done",
    EXIT_NO: "it was refused, or the answer is no",
    EXIT_USAGE: "the command line, or the application that it names, is wrong",
    EXIT_UNKNOWN: "there is no such run, job or schedule, or an id begins like several",
    EXIT_STORE: "the database cannot be reached, or its tables do not fit",
    EXIT_TIME: "what was waited for took longer than allowed",
    EXIT_INTERRUPTED: "somebody pressed Ctrl-C",
}
"""What every command ends with. Some have more of their own, or say 1 more exactly."""


class Call:
    """One call of a command: the application, loaded when it is asked for, and the output."""

    def __init__(self, *, path: str | None = None, app: Tickwork | None = None) -> None:
        self.path = path
        self.is_mounted = app is not None  # in a program's own command
        self._app = app
        self.out = Output()

    @property
    def app(self) -> Tickwork:
        """The application that the command line names."""
        if self._app is None:
            self._app = load_app(self.path)
            click.get_current_context().find_root().call_on_close(self._app.close)
        return self._app


class Refusal(click.ClickException):
    """An error of tickwork, told in words: what happened, why, and what to do."""

    def __init__(self, fault: TickworkError, *, is_json: bool) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.exit_code = exit_code_of(fault)  # type: ignore[misc]  # click reads it so
        self._is_json = is_json

    def show(self, file: Any = None) -> None:
        """Print it where errors go; for programs, as JSON."""
        if not self._is_json:
            super().show(file)
            return
        fault = self.fault
        told = {"code": fault.code, "what": fault.what, "why": fault.why, "fix": fault.fix}
        click.echo(json_text({"error": told}), err=True)


def exit_code_of(fault: TickworkError) -> int:
    """The exit code that an error means."""
    match fault:
        case RunNotFound() | AmbiguousRun() | JobNotFound() | ScheduleNotFound():
            return EXIT_UNKNOWN
        case WaitTimeout():
            return EXIT_TIME
        case StoreError():
            return EXIT_STORE
        case _:
            return EXIT_NO


class Verb(click.Command):
    """A command that knows its examples, its exit codes and what its JSON looks like."""

    def __init__(
        self,
        *args: Any,
        examples: str = "",
        exits: Mapping[int, str] | None = None,
        answer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.exits = exits or {}
        self.answer = answer

    def invoke(self, ctx: click.Context) -> Any:
        """Call it; errors of tickwork are told in words, without a traceback."""
        try:
            return super().invoke(ctx)
        except TickworkError as fault:
            raise Refusal(fault, is_json=ctx.find_object(Call).out.is_json) from fault  # type: ignore[union-attr]  # the group made it
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, and exit codes of its own, below the options."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"  {line}".rstrip() + "\n")
        if self.exits:
            with formatter.section("Exit codes of its own"):
                formatter.write_dl([(str(code), text) for code, text in self.exits.items()])


def verb(
    *,
    examples: str,
    answer: Any = None,
    exits: Mapping[int, str] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Verb]:
    """Declare a command. With an ``answer``, it has ``--json``, and answers with that."""

    def declare(function: Callable[..., Any]) -> Verb:
        made = click.command(name, cls=Verb, examples=examples, answer=answer, exits=exits)(
            click.pass_obj(function)
        )
        assert isinstance(made, Verb), made
        if answer is not None:
            made.params.append(
                click.Option(
                    ["--json", "is_json"],
                    is_flag=True,
                    is_eager=True,  # whatever is wrong with the others is told in JSON, too
                    expose_value=False,
                    callback=_set_json,
                    help="Answer in JSON, for programs.",
                )
            )
        return made

    return declare


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  # click's
    call = ctx.find_object(Call)
    assert call is not None, ctx
    call.out = Output(is_json=value)


# ---------------------------------------------------------------- kinds of parameters


class Length(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions
    """A length of time: ``90s``, ``5m``, or a number of seconds."""

    name = "length"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it, or say what is wrong with it."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(seconds=float(value))
        except (ValueError, OverflowError):
            pass
        try:
            return parse_duration(value)
        except TickworkError as fault:
            self.fail(f"{fault.what} {fault.fix}", param, ctx)


class Moment(click.ParamType):  # type: ignore[type-arg]  # as above
    """An instant: ``2026-03-01T09:00+01:00``, the same without an offset, or ``2h``.

    Without an offset it is in the reader's own zone. A length is that long ago, or that
    long from now, as the option has it.
    """

    name = "time"

    def __init__(self, *, is_past: bool = False) -> None:
        self._is_past = is_past

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it, or say what is wrong with it."""
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None:
            return found.astimezone()
        try:
            length = parse_duration(value)
            now = SystemClock().now()
            return now - length if self._is_past else now + length
        except (TickworkError, OverflowError):
            side = "ago" if self._is_past else "from now"
            self.fail(
                f"{value!r} is no time. Write 2026-03-01T09:00, 2026-03-01T09:00+01:00, "
                f"or a length such as 2h for two hours {side}.",
                param,
                ctx,
            )


LENGTH: Final = Length()
AGO: Final = Moment(is_past=True)
AHEAD: Final = Moment()


def complete_jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of jobs, for the shell: nothing where the application cannot be loaded."""
    try:
        path = ctx.find_root().params.get("path") or os.environ.get("TICKWORK_APP")
        names = load_app(path).registry.job_names()
    except Exception:  # noqa: BLE001  # a shell that completes must not be shouted at
        return []
    return [name for name in names if name.startswith(incomplete)]
