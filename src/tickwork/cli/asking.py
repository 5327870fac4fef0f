"""Commands that ask why, and whether all is well: ``explain``, ``doctor``."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

from tickwork._domain.explain import Explanation
from tickwork._domain.health import Check, Level
from tickwork.cli.causes import explanation_parts
from tickwork.cli.commands import EXIT_NO, Call, complete_jobs, verb
from tickwork.cli.render import BAD, BOLD, DIM, GOOD, WARN, Cell, Column, Line, Part, Table
from tickwork.errors import mask_url

MARKS: Final = {Level.OK: ("ok", GOOD), Level.WARN: ("warn", WARN), Level.BAD: ("bad", BAD)}


@verb(
    name="explain",
    answer=Explanation,
    examples="""
tickwork explain send_email
tickwork explain nightly
tickwork explain 019b78c9-0a80 --json | jq -r '.causes[0].why'
""",
)
@click.argument("what", metavar="JOB|SCHEDULE|RUN", shell_complete=complete_jobs)
@click.option("--tenant", default="", help="The schedule's tenant.")
def explain_command(call: Call, what: str, tenant: str) -> None:
    """Say why something has not run, and what to do about it.

    A job, a schedule or a run: paused, limited and by whom, waiting for a retry, no worker
    that knows it, a worker that is down, a filter that said no, not due yet, skipped because
    another had not finished… What decides comes first.
    """
    app = call.app
    found = app.explain(what, tenant=tenant)
    now = app.clock.now()
    call.out.show(found, lambda: explanation_parts(found, now))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was looked at; ``is_well`` when nothing is bad."""

    url: str
    is_well: bool
    checks: list[Check]


@verb(
    name="doctor",
    answer=Diagnosis,
    examples="""
tickwork doctor
tickwork doctor --strict || systemctl restart shop-worker
""",
    exits={EXIT_NO: "something is bad; with --strict, also when something is doubtful"},
)
@click.option("--strict", is_flag=True, help="Doubts count as faults.")
def doctor_command(call: Call, strict: bool) -> None:  # noqa: FBT001  # a flag
    """Look whether all is well.

    Connection, tables, clock, workers, leases, backlog, schedules, failing jobs.
    """
    app = call.app
    checks = app.examine()
    worst = {Level.BAD, Level.WARN} if strict else {Level.BAD}
    is_well = not any(check.level in worst for check in checks)
    found = Diagnosis(url=mask_url(app.settings.url), is_well=is_well, checks=checks)
    call.out.show(found, lambda: _diagnosis_parts(found))
    if not is_well:
        sys.exit(EXIT_NO)


def _diagnosis_parts(found: Diagnosis) -> Iterator[Part]:
    yield Line(found.url, DIM)
    yield Table(
        [Column(""), Column("what"), Column("how it is", is_flexible=True)],
        [(Cell(*MARKS[check.level]), Cell(check.name, BOLD), check.text) for check in found.checks],
    )
    for check in found.checks:
        if check.level is not Level.OK and check.fix:
            yield Line(f"{check.name}: {check.fix}", MARKS[check.level][1])
    yield Line("All is well." if found.is_well else "Something is wrong.", BOLD)
