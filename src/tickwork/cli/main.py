"""The command ``tickwork``: its groups of commands, and the module of each."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import click

from tickwork._masks.url import mask_quoted
from tickwork._program import name_commands
from tickwork.app.tickwork import Tickwork
from tickwork.cli.app_loader import APP_VARIABLE
from tickwork.cli.commands import CommandContext
from tickwork.errors import suggest

GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "setup": ("Set up", "init install upgrade settings usage"),
    "work": ("Work", "work collect unlock"),
    "ui": ("Dashboard", "ui"),
    "inspect": ("Inspect", "status runs inspect"),
    "schedules": ("Schedules and definitions", "next preview simulate show calendar"),
    "control": ("Control", "dispatch retry cancel emit signal wake pause resume drain prune"),
    "diagnose": ("Diagnose", "explain doctor alerts watch"),
    "imports": ("Migrate", "import"),
}
"""Each module of commands with its title in the help, and its commands in their order."""

MODULES: Final = {name: module for module, (_, names) in GROUPS.items() for name in names.split()}

CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


_WORDS: Final = "tickwork.words"


class CommandGroup(click.Group):
    """Loads a command when it is called: a worker does not load the others.

    Errors about the command line repeat its words. URLs among them are masked.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        words = list(args)  # click empties the list
        with _masking_errors(words):
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[_WORDS] = words
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        with _masking_errors(ctx.meta[_WORDS]):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        if cmd_name not in MODULES:
            return None
        module = import_module(f"tickwork.cli.{MODULES[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command), cmd_name
        return command

    def get_help(self, ctx: click.Context) -> str:
        return name_commands(super().get_help(ctx))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, MODULES))
        room = formatter.width - 6 - longest
        for title, names in GROUPS.values():
            with formatter.section(title):
                commands = ((name, self.get_command(ctx, name)) for name in names.split())
                formatter.write_dl(
                    [
                        (name.ljust(longest), command.get_short_help_str(room))
                        for name, command in commands
                        if command is not None
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in MODULES and not args[0].startswith("-"):
            hint = suggest(args[0], MODULES) or "List them: tickwork --help"
            ctx.fail(f"There is no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


@contextmanager
def _masking_errors(words: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        values = [word.partition("=")[2] for word in words]
        attached = [word.removeprefix("-a") for word in words]
        origins = [*words, *values, *attached, os.environ.get(APP_VARIABLE, "")]
        error.message = mask_quoted(error.message, origins)  # type: ignore[misc]
        raise


def command_for(app: Tickwork | None = None) -> click.Group:
    """Build the command for one application, or for the one that the command line names."""

    @click.pass_context
    def cli(ctx: click.Context, verbose: bool, path: str | None = None) -> None:  # noqa: FBT001  # a flag
        _require_folder()
        ctx.obj = CommandContext(path=path, app=app, is_verbose=verbose)

    params: list[click.Parameter] = [
        click.Option(["-v", "--verbose"], is_flag=True, help="Also log each run that ends.")
    ]
    if app is None:
        params.insert(
            0,
            click.Option(
                ["-a", "--app", "path"],
                metavar="MODULE:NAME",
                help="The application. Default: $TICKWORK_APP, then tickwork.toml.",
            ),
        )
    group = CommandGroup(
        "tickwork",
        callback=cli,
        params=params,
        context_settings=CONTEXT,
        help="Jobs, schedules and runs in your own database.",
        epilog="Start with `tickwork init` in an empty folder, then `tickwork work`. "
        "`tickwork COMMAND --help` shows examples.",
    )
    if app is None:
        group = click.version_option(package_name="tickwork")(group)
    return group


def _require_folder() -> None:
    """Fail if the current folder was deleted: no relative path and no module is found there."""
    try:
        os.getcwd()  # noqa: PTH109  # Path.cwd() is the same
    except FileNotFoundError:
        raise click.UsageError(
            "The current folder was deleted.\nChange to a folder that exists, and try again."
        ) from None


cli: Final = command_for()


def main(**extra: Any) -> None:
    cli(prog_name="tickwork", **extra)
