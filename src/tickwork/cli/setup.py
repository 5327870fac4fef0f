"""Commands to set up an application: ``init``, ``install``, ``upgrade``, ``settings``."""

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from tickwork._kernel.durations import human_duration
from tickwork.cli.app_loader import APP_VARIABLE
from tickwork.cli.commands import EXIT_FAILURE, CommandContext, command
from tickwork.cli.render import BOLD, DIM, GOOD, Cell, Column, TextLine, TextTable
from tickwork.errors import mask_url
from tickwork.settings import VARIABLES

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
@app.job(retries=3)
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


def _install(ctx: CommandContext) -> None:
    app = ctx.app
    before = app.schema_version()
    with ctx.out.progress("Tables"):
        version = app.install()
    done = InstallResult(mask_url(app.settings.url), before, version)
    if before == version:
        text = f"The tables are already at version {version}."
    elif before == 0:
        text = f"Created the tables, version {version}."
    else:
        text = f"Upgraded the tables from version {before} to {version}."
    ctx.out.show(done, lambda: [TextLine(text, GOOD), TextLine(done.url, DIM)])


@command(
    result_type=InstallResult,
    examples="""
tickwork install
tickwork -a shop.jobs:app install --json
""",
)
def install_command(ctx: CommandContext) -> None:
    """Create or upgrade the tables.

    It is safe to run again, and from several processes at once. In an SQLite file,
    the tables are created on first use; for a server, run this command.
    """
    _install(ctx)


@command(
    result_type=InstallResult,
    examples="""
tickwork upgrade
""",
)
def upgrade_command(ctx: CommandContext) -> None:
    """Upgrade the tables. Same as install.

    Workers of the previous release can keep running during the upgrade.
    """
    _install(ctx)


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
    app = ctx.app
    settings = app.settings
    found = [Setting("app", app.path or "-", _app_source(ctx), APP_VARIABLE)]
    for name, variable in VARIABLES.items():
        value = getattr(settings, "is_installing" if name == "install" else name)
        masked = mask_url(value) if name == "url" else value
        found.append(Setting(name, masked, settings.sources.get(name, "default"), variable))
    ctx.out.show(
        SettingList(found),
        lambda: [
            TextTable(
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
                    for each in found
                ],
            )
        ],
    )


def _app_source(ctx: CommandContext) -> str:
    if ctx.is_mounted:
        return "the program"
    if ctx.path:
        return "-a"
    return APP_VARIABLE if os.environ.get(APP_VARIABLE) else "tickwork.toml"


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return human_duration(value) if isinstance(value, timedelta) else str(value)
