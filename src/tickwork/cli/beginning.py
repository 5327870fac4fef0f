"""Commands to begin with: ``init``, ``install`` and ``upgrade``, ``settings``."""

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from tickwork._kernel.durations import human_duration
from tickwork.cli.commands import EXIT_NO, Call, verb
from tickwork.cli.loading import APP_VARIABLE
from tickwork.cli.render import BOLD, DIM, GOOD, Cell, Column, Line, Table
from tickwork.errors import mask_url
from tickwork.settings import VARIABLES

JOBS: Final = '''"""Your jobs. `tickwork work` runs them."""

from datetime import datetime

from tickwork import Tickwork

# The database is a file here; postgresql://… and mysql://… work the same.
app = Tickwork("sqlite:///jobs.db")


# A schedule runs by itself. Other words: .hourly(), .daily_at("13:00"), .weekdays(), .cron("…").
def tick() -> None:
    print(f"tick at {datetime.now():%H:%M:%S}", flush=True)


app.schedule("tick", tick).every_five_seconds()


# A job runs when it is dispatched: greet.dispatch(name="Ann") in a program, or
# `tickwork dispatch greet name=Ann` in a terminal. If it fails, it is tried again.
@app.job(retries=3)
def greet(name: str) -> str:
    print(f"Hello {name}", flush=True)
    return f"Hello {name}"
'''

CONFIG: Final = """# Where `tickwork` finds your application, when nobody says -a.
[tickwork]
app = "jobs:app"
"""

FILES: Final = {"jobs.py": JOBS, "tickwork.toml": CONFIG}

NEXT: Final = (
    ("tickwork work", "run what is due, until Ctrl-C"),
    ("tickwork dispatch greet name=Ann", "ask for a run, from another terminal"),
    ("tickwork status", "see jobs, runs and workers"),
    ("tickwork runs --follow", "watch what happens"),
)


@dataclass(frozen=True, slots=True)
class Made:
    """The files that were written, and the commands to go on with."""

    files: list[str]
    next: list[str]


@verb(
    name="init",
    answer=Made,
    examples="""
tickwork init && tickwork work
tickwork init shop
""",
    exits={EXIT_NO: "a file is there already, and --force was not given"},
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def init_command(call: Call, folder: Path, force: bool) -> None:  # noqa: FBT001  # a flag
    """Write a small application: jobs.py and tickwork.toml."""
    there = [name for name in FILES if (folder / name).exists()]
    if there and not force:
        raise click.ClickException(
            f"{' and '.join(there)} {'is' if len(there) == 1 else 'are'} there already.\n"
            "Choose another folder (tickwork init shop), or write over them with --force."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    inside = [] if folder == Path() else [(f"cd {folder}", "")]
    steps = [*inside, *NEXT]
    made = Made([str(folder / name) for name in FILES], [step for step, _ in steps])
    call.out.show(
        made,
        lambda: [
            Line(f"Written: {', '.join(made.files)}", GOOD),
            Table(
                [Column("next"), Column("")],
                [(Cell(step, BOLD), Cell(text, DIM)) for step, text in steps],
            ),
        ],
    )


# ---------------------------------------------------------------- install


@dataclass(frozen=True, slots=True)
class Installed:
    """The version of the tables, before and after."""

    url: str
    before: int
    version: int


def _install(call: Call) -> None:
    app = call.app
    before = app.schema_version()
    with call.out.progress("Tables"):
        version = app.install()
    done = Installed(mask_url(app.settings.url), before, version)
    if before == version:
        said = f"The tables are at version {version} already."
    elif before == 0:
        said = f"The tables were created, at version {version}."
    else:
        said = f"The tables were upgraded from version {before} to {version}."
    call.out.show(done, lambda: [Line(said, GOOD), Line(done.url, DIM)])


@verb(
    name="install",
    answer=Installed,
    examples="""
tickwork install
tickwork -a shop.jobs:app install --json
""",
)
def install_command(call: Call) -> None:
    """Create or upgrade the tables. Safe to run many at once, and again.

    An SQLite file installs itself; a server waits for this command.
    """
    _install(call)


@verb(
    name="upgrade",
    answer=Installed,
    examples="""
tickwork upgrade
""",
)
def upgrade_command(call: Call) -> None:
    """Upgrade the tables: the same as install.

    It has the name that a deploy looks for. Workers of the previous release keep working meanwhile.
    """
    _install(call)


# ---------------------------------------------------------------- settings


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, where it came from, and the variable that would set it."""

    name: str
    value: Any
    source: str
    variable: str


@dataclass(frozen=True, slots=True)
class AllSettings:
    """Every setting of the application."""

    settings: list[Setting]


@verb(
    name="settings",
    answer=AllSettings,
    examples="""
tickwork settings
TICKWORK_TIMEZONE=Europe/Berlin tickwork settings
""",
)
def settings_command(call: Call) -> None:
    """Show each setting, and where its value came from.

    What a program says beats the environment, which beats a file, which beats defaults.
    """
    app = call.app
    settings = app.settings
    found = [Setting("app", app.path or "-", _app_source(call), APP_VARIABLE)]
    for name, variable in VARIABLES.items():
        value = getattr(settings, "is_installing" if name == "install" else name)
        shown = mask_url(value) if name == "url" else value
        source = settings.sources.get(name, "default")
        found.append(Setting(name, shown, source, variable))
    call.out.show(
        AllSettings(found),
        lambda: [
            Table(
                [
                    Column("setting"),
                    Column("value", is_flexible=True),
                    Column("from"),
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


def _app_source(call: Call) -> str:
    if call.is_mounted:
        return "the program"
    if call.path:
        return "-a"
    return APP_VARIABLE if os.environ.get(APP_VARIABLE) else "tickwork.toml"


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return human_duration(value) if isinstance(value, timedelta) else str(value)
