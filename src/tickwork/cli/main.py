"""The command ``tickwork``: which commands there are, and where each of them is."""

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import click

from tickwork.app import Tickwork
from tickwork.cli.commands import Call

HOMES: Final[Mapping[str, str]] = {
    "init": "beginning",
    "install": "beginning",
    "upgrade": "beginning",
    "settings": "beginning",
    "work": "working",
    "collect": "working",
    "unlock": "working",
    "status": "looking",
    "runs": "looking",
    "inspect": "looking",
    "next": "timing",
    "preview": "timing",
    "simulate": "timing",
    "show": "timing",
    "dispatch": "acting",
    "retry": "acting",
    "cancel": "acting",
    "pause": "acting",
    "resume": "acting",
    "prune": "acting",
    "explain": "asking",
    "doctor": "asking",
}
"""The module of each command, in the order in which they are listed."""


SECTIONS: Final[Mapping[str, str]] = {
    "beginning": "To begin",
    "working": "To work",
    "looking": "To look",
    "timing": "To see what comes",
    "acting": "To act",
    "asking": "To ask why",
}


class Commands(click.Group):
    """Commands that are loaded when they are called: a worker need not load the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's
        """All of them, in the order of a day's work."""
        return list(HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        """The command of this name."""
        home = HOMES.get(cmd_name)
        if home is None:
            return None
        module = import_module(f"tickwork.cli.{home}")
        found = getattr(module, f"{cmd_name}_command")
        assert isinstance(found, click.Command), cmd_name
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, by what they are for."""
        longest = max(map(len, HOMES))
        room = formatter.width - 6 - longest
        for home, title in SECTIONS.items():
            with formatter.section(title):
                rows = [
                    (name.ljust(longest), command.get_short_help_str(room))
                    for name, found in HOMES.items()
                    if found == home and (command := self.get_command(ctx, name)) is not None
                ]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion for what was mistyped."""
        if args and args[0] not in HOMES and not args[0].startswith("-"):
            close = get_close_matches(args[0], HOMES, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "`tickwork --help` lists them."
            ctx.fail(f"There is no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def command_for(app: Tickwork | None = None) -> click.Group:
    """The command, for any application, or for this one: to mount in a program's own."""

    @click.pass_context
    def cli(ctx: click.Context, verbose: bool, path: str | None = None) -> None:  # noqa: FBT001  # a flag
        if app is None or verbose:
            logging.basicConfig(
                level=logging.INFO if verbose else logging.WARNING,
                format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            )
        ctx.obj = Call(path=path, app=app)

    params: list[click.Parameter] = [
        click.Option(
            ["-v", "--verbose"], is_flag=True, help="Log what happens, not only what goes wrong."
        )
    ]
    if app is None:
        params.insert(
            0,
            click.Option(
                ["-a", "--app", "path"],
                metavar="MODULE:NAME",
                help="The application; otherwise TICKWORK_APP, or what tickwork.toml says.",
            ),
        )
    group = Commands(
        "tickwork",
        callback=cli,
        params=params,
        context_settings=CONTEXT,
        help="Jobs, schedules and runs on the database you have.",
        epilog="Begin with `tickwork init` in an empty folder, then `tickwork work`. "
        "Each command has examples: `tickwork COMMAND --help`.",
    )
    if app is None:
        group = click.version_option(package_name="tickwork")(group)
    return group


cli: Final = command_for()


def main(**extra: Any) -> None:
    """Run the command."""
    cli(prog_name="tickwork", **extra)
