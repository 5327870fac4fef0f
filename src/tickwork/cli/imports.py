"""The command that converts schedules of other schedulers: ``import``."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from tickwork._kernel.clock import SystemClock
from tickwork._kernel.plain_text import count_of, escape_lines
from tickwork._masks.url import mask_reason, mask_url
from tickwork._migration.definitions import ImportedSchedules
from tickwork.cli.app_loader import import_program
from tickwork.cli.commands import EXIT_FAILURE, CommandContext, command

CRONTAB_MAX: Final = 1_000_000
"""The largest crontab that is read, in bytes."""

LOCALTIME: Final = Path("/etc/localtime")
JOB_DEFAULTS: Final = {"misfire_grace_time": 1, "coalesce": True, "max_instances": 1}
"""The defaults of APScheduler, for jobs that were not added to a job store yet."""


@command(
    result_type=ImportedSchedules,
    examples="""
tickwork import crontab /etc/crontab --user-column > jobs.py
crontab -l | tickwork import crontab - --timezone Europe/Berlin
tickwork import celery shop.celery:app > jobs.py
tickwork import apscheduler sqlite:///jobs.sqlite --table apscheduler_jobs
tickwork import apscheduler shop.clock:scheduler --json
""",
    exit_codes={EXIT_FAILURE: "an entry was not converted; the code has a comment with the reason"},
)
@click.argument("kind", type=click.Choice(["celery", "apscheduler", "crontab"]))
@click.argument("source")
@click.option("--user-column", is_flag=True, help="crontab: the sixth field is a user.")
@click.option("--timezone", "zone", help="Time zone, if the source names none. Default: local.")
@click.option(
    "--table", default="apscheduler_jobs", show_default=True, help="apscheduler: table of the jobs."
)
@click.option(
    "--trust",
    is_flag=True,
    help="apscheduler: read every pickle of the job store. A pickle can execute code.",
)
def import_command(  # noqa: PLR0917  # click passes them by name
    ctx: CommandContext,
    kind: str,
    source: str,
    user_column: bool,  # noqa: FBT001  # a flag
    zone: str | None,
    table: str,
    trust: bool,  # noqa: FBT001  # a flag
) -> None:
    """Print the schedules of another scheduler as Python code.

    SOURCE is a crontab (- is standard input), a Celery application as MODULE:NAME, or for
    APScheduler 3 the URL of a job store or a scheduler as MODULE:NAME. The code defines equal
    firings. An entry without an equal rule becomes a comment with the reason.
    """
    if kind == "crontab":
        imported = _import_crontab(source, zone=zone, has_user_column=user_column)
    elif kind == "celery":
        imported = _import_celery(source, zone=zone)
    elif "://" in source:
        imported = _import_job_store(source, table=table, is_trusted=trust)
    else:
        imported = _import_scheduler(source)
    if ctx.out.is_json:
        ctx.out.show(imported, tuple)
    else:
        click.echo(escape_lines(imported.code), nl=False)
    total = len(imported.converted) + len(imported.unconverted)
    if imported.unconverted:
        ctx.out.note(
            f"{len(imported.unconverted)} of {count_of(total, 'entry', 'entries')} not converted. "
            "See the comments in the code.",
            "yellow",
        )
        sys.exit(EXIT_FAILURE)


def _import_crontab(source: str, *, zone: str | None, has_user_column: bool) -> ImportedSchedules:
    from tickwork._migration.crontab_file import read_crontab  # noqa: PLC0415  # loaded on demand

    try:
        with click.open_file(source, "rb") as file:
            content = file.read(CRONTAB_MAX + 1)
    except OSError as error:
        raise click.UsageError(f"{source} cannot be read: {error.strerror}.") from None
    if len(content) > CRONTAB_MAX:
        raise click.UsageError(f"A crontab must have at most {CRONTAB_MAX:,} bytes.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{source} is not text in UTF-8: byte {error.start} is {content[error.start]:#04x}."
        ) from None
    return read_crontab(
        text,
        source=source,
        zone=zone or _local_zone(),
        now=SystemClock().now(),
        has_user_column=has_user_column,
    )


def _local_zone() -> str:
    """The name of this machine's time zone; UTC if it has none."""
    _, mark, name = str(LOCALTIME.resolve()).partition("/zoneinfo/")
    return name if mark else "UTC"


def _import_celery(source: str, *, zone: str | None) -> ImportedSchedules:
    _require("celery", "Celery")
    from tickwork._migration.celery_beat import read_beat_schedule  # noqa: PLC0415  # on demand

    module, attribute, celery_app = _load(source, "app", lambda value: hasattr(value, "send_task"))
    return read_beat_schedule(
        celery_app, module=module, attribute=attribute, zone=zone, now=SystemClock().now()
    )


def _import_scheduler(source: str) -> ImportedSchedules:
    _require("apscheduler", "APScheduler")
    from tickwork._migration.apscheduler_jobs import read_scheduler  # noqa: PLC0415  # on demand

    _, _, scheduler = _load(source, "scheduler", lambda value: hasattr(value, "get_jobs"))
    defaults = {**JOB_DEFAULTS, **getattr(scheduler, "_job_defaults", {})}
    return read_scheduler(scheduler, source=source, defaults=defaults, now=SystemClock().now())


def _import_job_store(url: str, *, table: str, is_trusted: bool) -> ImportedSchedules:
    _require("apscheduler", "APScheduler")
    _require("sqlalchemy", "SQLAlchemy")
    import sqlalchemy as sa  # noqa: PLC0415  # loaded on demand

    from tickwork._migration.apscheduler_jobs import read_job_store  # noqa: PLC0415

    try:
        parts = sa.make_url(url)
        if parts.get_backend_name() == "sqlite" and not Path(parts.database or "").is_file():
            raise click.UsageError(f"There is no file {parts.database!r}.")
        engine = sa.create_engine(parts)
        jobs = sa.table(table, sa.column("id"), sa.column("job_state"))
        with engine.connect() as connection:
            query = sa.select(jobs.c.id, jobs.c.job_state).order_by(jobs.c.id)
            rows = [(str(job_id), bytes(state)) for job_id, state in connection.execute(query)]
        engine.dispose()
    except (sa.exc.SQLAlchemyError, ModuleNotFoundError) as error:
        reason = mask_reason(str(getattr(error, "orig", None) or error), url).splitlines()[0]
        raise click.UsageError(
            f"The job store {mask_url(url)} cannot be read: {reason}\n"
            "SOURCE is the URL of a database as SQLAlchemyJobStore takes it, and --table is the "
            "table of the jobs. For other job stores, pass the scheduler as MODULE:NAME."
        ) from None
    return read_job_store(
        rows, source=mask_url(url), is_trusted=is_trusted, now=SystemClock().now()
    )


def _require(module: str, name: str) -> None:
    if find_spec(module) is None:
        raise click.UsageError(
            f"{name} is not installed here. Run the command in the environment of the program "
            f"that uses it: pip install tickwork there."
        )


def _load(source: str, default: str, is_wanted: Any) -> tuple[str, str, Any]:
    """Import the object that a source names."""
    module_name, _, attribute = source.partition(":")
    attribute = attribute or default
    target: Any = import_program(module_name, f"SOURCE {source}")
    for part in attribute.split("."):
        target = getattr(target, part, None)
    if target is None or not is_wanted(target):
        raise click.UsageError(f"{module_name} has no {default} named {attribute!r}.")
    return module_name, attribute, target
