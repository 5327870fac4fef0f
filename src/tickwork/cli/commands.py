"""What every command shares: its declaration, its context, its errors and exit codes."""

import os
from collections.abc import Callable, Mapping
from getpass import getuser
from socket import gethostname
from typing import Any, Final, TypeVar

import click

from tickwork._kernel.json_form import as_json
from tickwork._kernel.plain_text import escape_lines
from tickwork._program import name_commands
from tickwork.app.tickwork import Tickwork
from tickwork.cli.app_loader import load_app
from tickwork.cli.log_output import LogOptions, configure_log
from tickwork.cli.output import Output, json_text
from tickwork.errors import (
    AmbiguousRun,
    JobNotFound,
    RunNotFound,
    ScheduleNotFound,
    StoreError,
    TickworkError,
    WaitTimeout,
    WorkerNotFound,
)

T = TypeVar("T")

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_STORE: Final = 4
EXIT_TIMEOUT: Final = 5
EXIT_STUCK: Final = 70
EXIT_BEHIND: Final = 71
EXIT_USED_UP: Final = 72
EXIT_DRAINED: Final = 73
"""For the supervisor of a worker only: a worker without one exits with 0."""

EXIT_INTERRUPTED: Final = 130

EXIT_CODES: Final[Mapping[int, str]] = {
    0: "success",
    EXIT_FAILURE: "the command failed, or the answer is no",
    EXIT_USAGE: "the command line is wrong, or the application cannot be loaded",
    EXIT_NOT_FOUND: "no such run, job or schedule; or several runs match an id",
    EXIT_STORE: "the database cannot be reached, or its tables have the wrong version",
    EXIT_TIMEOUT: "a wait timed out",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
}
"""The codes of every command. A command can add codes of its own, or narrow the meaning of 1."""


class CommandContext:
    """One call of a command: its output, and the application, loaded on first use."""

    def __init__(
        self, *, path: str | None = None, app: Tickwork | None = None, is_verbose: bool = False
    ) -> None:
        self.path = path
        self.is_mounted = app is not None  # inside a program's own command
        self.log = LogOptions(is_verbose=is_verbose)
        self._app = app
        self.out = Output()
        self._has_log = False

    @property
    def app(self) -> Tickwork:
        if self._app is None:
            self._app = load_app(self.path)
            click.get_current_context().find_root().call_on_close(self._app.close)
        if not self._has_log:
            # After the application was loaded: it may configure logging itself.
            self._has_log = True
            if not self.is_mounted or self.log != LogOptions():
                configure_log(self.log)
        return self._app

    def audit(self, action: str, subject: str, change: Callable[[], T], **detail: Any) -> T:
        """Add an entry to the audit log in the name of the user of this machine, and change it."""
        return self.app.audit.perform(
            action,
            subject,
            change,
            actor=_user_name(),
            source=f"command line on {gethostname()}",
            detail=as_json({name: value for name, value in detail.items() if value}),
        )


def _user_name() -> str:
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # a container may have no entry for the user id
        return str(getattr(os, "getuid", lambda: "unknown")())


class CommandError(click.ClickException):
    """Prints an error of tickwork without a traceback; as JSON with ``--json``."""

    def __init__(self, error: TickworkError, *, is_json: bool) -> None:
        super().__init__(escape_lines(str(error)))
        self._error = error
        self._is_json = is_json
        self.exit_code = _exit_code(error)  # type: ignore[misc]  # click reads it so

    def show(self, file: Any = None) -> None:
        if not self._is_json:
            super().show(file)
            return
        parts = {name: getattr(self._error, name) for name in ("code", "what", "why", "fix")}
        click.echo(json_text({"error": parts}), err=True)


def _exit_code(error: TickworkError) -> int:
    match error:
        case RunNotFound() | AmbiguousRun() | JobNotFound() | ScheduleNotFound() | WorkerNotFound():
            return EXIT_NOT_FOUND
        case WaitTimeout():
            return EXIT_TIMEOUT
        case StoreError():
            return EXIT_STORE
        case _:
            return EXIT_FAILURE


class DocumentedCommand(click.Command):
    """A command with examples, exit codes of its own, and the type of its JSON."""

    def __init__(
        self,
        *args: Any,
        examples: str,
        exit_codes: Mapping[int, str],
        result_type: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.exit_codes = exit_codes
        self.result_type = result_type

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TickworkError as error:
            raise CommandError(error, is_json=_context(ctx).out.is_json) from error
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)

    def get_help(self, ctx: click.Context) -> str:
        return name_commands(super().get_help(ctx))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for line in self.examples.strip().splitlines():
                formatter.write(f"  {line}".rstrip() + "\n")
        if self.exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), text) for code, text in self.exit_codes.items()])


def command(
    *, examples: str, result_type: Any = None, exit_codes: Mapping[int, str] | None = None
) -> Callable[[Callable[..., Any]], DocumentedCommand]:
    """Declare a command; ``status_command`` becomes ``status``.

    A command with a ``result_type`` has the option ``--json``, and prints a value of that type.
    """

    def declare(function: Callable[..., Any]) -> DocumentedCommand:
        declared = click.command(
            function.__name__.removesuffix("_command"),
            cls=DocumentedCommand,
            examples=examples,
            result_type=result_type,
            exit_codes=exit_codes or {},
        )(click.pass_obj(function))
        assert isinstance(declared, DocumentedCommand), declared
        if result_type is not None:
            declared.params.append(
                click.Option(
                    ["--json", "is_json"],
                    is_flag=True,
                    is_eager=True,  # so that errors in other options are JSON, too
                    expose_value=False,
                    callback=_set_json,
                    help="Print JSON.",
                )
            )
        return declared

    return declare


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  # click's
    _context(ctx).out = Output(is_json=value)


def _context(ctx: click.Context) -> CommandContext:
    context = ctx.find_object(CommandContext)
    assert context is not None, ctx
    return context
