"""The command ``tickwork``: its groups of commands, and the module of each."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from tickwork.app import Tickwork
from tickwork.cli.commands import CommandContext
from tickwork.errors import suggest

GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "setup": ("Set up", "init install upgrade settings usage"),
    "work": ("Work", "work collect unlock"),
    "ui": ("Dashboard", "ui"),
    "inspect": ("Inspect", "status runs inspect"),
    "schedules": ("Schedules and definitions", "next preview simulate show calendar"),
    "control": ("Control", "dispatch retry cancel pause resume drain prune"),
    "diagnose": ("Diagnose", "explain doctor watch"),
    "imports": ("Migrate", "import"),
}
"""Each module of commands with its title in the help, and its commands in their order."""

MODULES: Final = {name: module for module, (_, names) in GROUPS.items() for name in names.split()}

CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class CommandGroup(click.Group):
    """Loads a command when it is called: a worker does not load the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        if cmd_name not in MODULES:
            return None
        module = import_module(f"tickwork.cli.{MODULES[cmd_name]}")
        found = getattr(module, f"{cmd_name}_command")
        assert isinstance(found, click.Command), cmd_name
        return found

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


def command_for(app: Tickwork | None = None) -> click.Group:
    """Build the command for one application, or for the one that the command line names."""

    @click.pass_context
    def cli(ctx: click.Context, verbose: bool, path: str | None = None) -> None:  # noqa: FBT001  # a flag
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


cli: Final = command_for()


def main(**extra: Any) -> None:
    cli(prog_name="tickwork", **extra)
