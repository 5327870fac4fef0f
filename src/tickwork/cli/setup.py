"""Commands to set up an application: ``init``, ``install``, ``settings`` and others."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from tickwork._config.settings import VARIABLES, mask_setting
from tickwork._dialects import DIALECT_BY_NAME
from tickwork._kernel.durations import human_duration
from tickwork._masks.url import mask_url
from tickwork._stores import dialect_of
from tickwork._stores._sql import script
from tickwork._stores._sql.queries import TABLE_PREFIX, check_prefix
from tickwork._stores._sql.script import SchemaStep
from tickwork.cli.app_loader import APP_VARIABLE, AppNotLoaded
from tickwork.cli.commands import EXIT_FAILURE, CommandContext, command
from tickwork.cli.render import BOLD, DIM, GOOD, WARN, Cell, Column, TextLine, TextTable
from tickwork.errors import InvalidOption

JOBS: Final = '''"""Your jobs. `tickwork work` runs them."""

from datetime import datetime

from tickwork import Tickwork

# The database is a file here; postgresql://… and mysql://… work the same way.
app = Tickwork("sqlite:///jobs.db")


# A schedule fires by itself. Other rules: .hourly(), .daily_at("13:00"), .weekdays(), .cron("…").
def tick() -> None:
    print(f"tick at {datetime.now():%H:%M:%S}", flush=True)


app.schedule("tick", tick).every_five_seconds()


# A job runs when it is dispatched: greet.dispatch(name="Ann") in a program, or
# `tickwork dispatch greet name=Ann` in a terminal. It has up to three attempts.
@app.job(attempts=3)
def greet(name: str) -> str:
    print(f"Hello {name}", flush=True)
    return f"Hello {name}"
'''

CONFIG: Final = """# The application that `tickwork` loads, unless -a or TICKWORK_APP names another.
[tickwork]
app = "jobs:app"
"""

FILES: Final = {"jobs.py": JOBS, "tickwork.toml": CONFIG}

NEXT_STEPS: Final = (
    ("tickwork work", "run jobs until Ctrl-C"),
    ("tickwork dispatch greet name=Ann", "create a run, from another terminal"),
    ("tickwork status", "show jobs, runs and workers"),
    ("tickwork runs --follow", "print runs as they change"),
)


@dataclass(frozen=True, slots=True)
class InitResult:
    """The files that were written, and the commands to run next."""

    files: list[str]
    next: list[str]  # commands


@command(
    result_type=InitResult,
    examples="""
tickwork init && tickwork work
tickwork init shop
""",
    exit_codes={EXIT_FAILURE: "a file exists, and --force was not given"},
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init_command(ctx: CommandContext, folder: Path, force: bool) -> None:  # noqa: FBT001  # a flag
    """Create a small application: jobs.py and tickwork.toml."""
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not force:
        raise click.ClickException(
            f"{' and '.join(existing)} already {'exists' if len(existing) == 1 else 'exist'}.\n"
            "Choose another folder (tickwork init shop), or overwrite with --force."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    steps = [*([] if folder == Path() else [(f"cd {folder}", "")]), *NEXT_STEPS]
    done = InitResult([str(folder / name) for name in FILES], [step for step, _ in steps])
    ctx.out.show(
        done,
        lambda: [
            TextLine(f"Created {' and '.join(done.files)}.", GOOD),
            TextTable(
                [Column("next"), Column("")],
                [(Cell(step, BOLD), Cell(text, DIM)) for step, text in steps],
            ),
        ],
    )


# ---------------------------------------------------------------- install and upgrade


@dataclass(frozen=True, slots=True)
class InstallResult:
    """The version of the tables, before and after."""

    url: str  # without its password
    before: int  # 0: there were no tables
    version: int
    steps: list[SchemaStep]  # that were executed


def _check_prefix(_ctx: click.Context, _option: click.Parameter, value: str) -> str:
    try:
        return check_prefix(value)
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None


_DIALECT: Final = click.option(
    "--dialect",
    type=click.Choice(list(DIALECT_BY_NAME)),
    help="With --sql or --grants: for this database, without an application.",
)


def _prefix_option(help: str) -> Callable[[Any], Any]:  # noqa: A002  # click's
    return click.option(
        "--prefix", default=TABLE_PREFIX, show_default=True, callback=_check_prefix, help=help
    )


def _install(ctx: CommandContext, *, has_steps: bool) -> None:
    app = ctx.app
    before = app.schema_version()
    with ctx.out.progress("Tables"):
        version = app.install()
    dialect = dialect_of(app.settings.url)
    steps = [] if dialect is None else script.schema_steps(dialect, since=before)
    done = InstallResult(mask_url(app.settings.url), before, version, steps)
    if before == version:
        text = f"The tables are already at version {version}."
    elif before == 0:
        text = f"Created the tables, version {version}."
    else:
        text = f"Upgraded the tables from version {before} to {version}."
    ctx.out.show(
        done,
        lambda: [
            TextLine(text, GOOD),
            TextLine(done.url, DIM),
            *(_step_lines(done) if has_steps and before else ()),
        ],
    )


def _step_lines(done: InstallResult) -> list[TextTable]:
    rows = [
        (Cell(str(step.version), BOLD), statement)
        for step in done.steps
        for statement in step.statements
    ]
    return [TextTable([Column("version"), Column("statement")], rows)] if rows else []


def _find_dialect(ctx: CommandContext, name_given: str | None, option: str) -> str:
    if ctx.out.is_json:
        raise click.UsageError(f"{option} prints SQL: leave out --json.")
    name = name_given or dialect_of(ctx.app.settings.url)
    if name is None:
        raise click.UsageError(f"{mask_url(ctx.app.settings.url)} has no tables: name a --dialect.")
    return name


@command(
    result_type=InstallResult,
    examples="""
tickwork install
tickwork -a shop.jobs:app install --json
tickwork install --sql --dialect postgresql | psql shop
tickwork install --grants --dialect postgresql | psql shop
""",
)
@click.option("--sql", "is_sql", is_flag=True, help="Print the SQL instead of executing it.")
@click.option(
    "--grants",
    "is_grants",
    is_flag=True,
    help="Print the SQL that creates roles with the privileges to dispatch, work, read, upgrade.",
)
@_DIALECT
@_prefix_option("With --sql or --grants: how the names of tables and roles begin.")
def install_command(
    ctx: CommandContext,
    is_sql: bool,  # noqa: FBT001  # a flag
    is_grants: bool,  # noqa: FBT001  # a flag
    dialect: str | None,
    prefix: str,
) -> None:
    """Create or upgrade the tables.

    It is safe to run again, and from several processes at once. In an SQLite file,
    the tables are created on first use; for a server, run this command.

    With --sql or --grants it only prints SQL, and does not connect to a database.
    """
    if is_sql and is_grants:
        raise click.UsageError("Use either --sql or --grants.")
    if is_sql:
        dialect_name = _find_dialect(ctx, dialect, "--sql")
        click.echo(script.schema_script(dialect_name, prefix=prefix), nl=False)
    elif is_grants:
        dialect_name = _find_dialect(ctx, dialect, "--grants")
        if not DIALECT_BY_NAME[dialect_name].roles:
            raise click.UsageError("SQLite has no roles: the permissions of the file decide.")
        click.echo(script.grant_script(dialect_name, prefix=prefix), nl=False)
    elif dialect is not None:
        raise click.UsageError("--dialect needs --sql or --grants.")
    elif prefix != TABLE_PREFIX:
        raise click.UsageError("--prefix needs --sql or --grants: the application has its own.")
    else:
        _install(ctx, has_steps=False)


@command(
    result_type=InstallResult,
    examples="""
tickwork upgrade
tickwork upgrade --sql
""",
)
@click.option(
    "--sql",
    "is_sql",
    is_flag=True,
    help="Print the missing steps as SQL instead of executing them.",
)
@_prefix_option("With --sql: how the names of tables begin.")
def upgrade_command(ctx: CommandContext, is_sql: bool, prefix: str) -> None:  # noqa: FBT001  # a flag
    """Upgrade the tables, and show the steps. Otherwise the same as install.

    Workers of the previous release can keep running during the upgrade.
    """
    if is_sql:
        dialect = _find_dialect(ctx, None, "--sql")
        since = ctx.app.schema_version()
        click.echo(script.schema_script(dialect, since=since, prefix=prefix), nl=False)
    else:
        _install(ctx, has_steps=True)


# ---------------------------------------------------------------- settings


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its value and its source."""

    name: str
    value: Any
    source: str  # the program, a variable, a file, or default
    variable: str  # the environment variable that sets it


@dataclass(frozen=True, slots=True)
class SettingList:
    """Every setting of the application."""

    settings: list[Setting]


@command(
    result_type=SettingList,
    examples="""
tickwork settings
TICKWORK_TIMEZONE=Europe/Berlin tickwork settings
""",
)
def settings_command(ctx: CommandContext) -> None:
    """Show each setting and where its value comes from.

    Order of precedence: arguments in code, environment variables, the file, defaults.
    """
    settings = _settings(ctx)
    ctx.out.show(SettingList(settings), lambda: [_settings_table(settings)])


def _settings(ctx: CommandContext) -> list[Setting]:
    app = ctx.app
    settings = app.settings
    listed = [Setting("app", app.path or "-", _app_source(ctx), APP_VARIABLE)]
    for name, variable in VARIABLES.items():
        value = getattr(settings, "should_install" if name == "install" else name)
        masked = mask_setting(name, value)
        listed.append(Setting(name, masked, settings.sources.get(name, "default"), variable))
    # Values as they were given: types of errors and lengths are shown as in code.
    defaults = {name: str(value) for name, value in app.defaults.values_set.items()}
    listed.append(Setting("defaults", defaults, "the program" if defaults else "default", "-"))
    return listed


def _settings_table(settings: list[Setting]) -> TextTable:
    return TextTable(
        [
            Column("setting"),
            Column("value", is_flexible=True),
            Column("source"),
            Column("variable"),
        ],
        [
            (
                Cell(each.name, BOLD),
                _text(each.value),
                Cell(each.source, DIM if each.source == "default" else GOOD),
                Cell(each.variable, DIM),
            )
            for each in settings
        ],
    )


# ---------------------------------------------------------------- usage


@dataclass(frozen=True, slots=True)
class CommandSummary:
    """A command, and what it does."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The commands, and the settings of the application. None: no application is named."""

    commands: list[CommandSummary]
    settings: list[Setting] | None


@command(
    result_type=Usage,
    examples="""
tickwork usage
tickwork -a shop.jobs:app usage
""",
)
def usage_command(ctx: CommandContext) -> None:
    """Show all commands, and the settings of the application."""
    root = click.get_current_context().find_root()
    group = root.command
    assert isinstance(group, click.Group), group
    commands = [
        CommandSummary(name, each.get_short_help_str(limit=100))
        for name in group.list_commands(root)
        if (each := group.get_command(root, name)) is not None
    ]
    settings, hint = None, ""
    try:
        settings = _settings(ctx)
    except AppNotLoaded as missing:
        hint = missing.message
    ctx.out.show(
        Usage(commands, settings),
        lambda: [
            *map(TextLine, root.get_help().splitlines()),
            TextLine(""),
            TextLine(hint, WARN) if settings is None else _settings_table(settings),
        ],
    )


def _app_source(ctx: CommandContext) -> str:
    if ctx.is_mounted:
        return "the program"
    if ctx.path:
        return "-a"
    return APP_VARIABLE if os.environ.get(APP_VARIABLE) else "tickwork.toml"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return human_duration(value) if isinstance(value, timedelta) else str(value)
