"""Jobs and schedules of the same name that several applications define in one database."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

REPORTED_WITHIN: Final = timedelta(days=2)
"""An application that did not report a definition for longer does not have it any more.

Programs report theirs at their start, and every hour while they run. A program that a crontab
starts once a day reports them once a day.
"""


class DefinitionKind(StrEnum):
    JOB = "job"
    SCHEDULE = "schedule"


class DefinitionRow(NamedTuple):
    """An application defines a job or a schedule of this name."""

    kind: DefinitionKind
    name: str
    application: str
    handler: str  # the path of the handler of a job
    seen_at: datetime  # when the application last reported it


class SharedJob(NamedTuple):
    """A job that several applications define with different handlers."""

    name: str
    definitions: tuple[DefinitionRow, ...]

    def __str__(self) -> str:
        """The job and its definitions: ``send (shop.jobs:send, crm.jobs:send)``."""
        handlers = ", ".join(f"{each.handler} of {each.application}" for each in self.definitions)
        return f"{self.name} ({handlers})"


def find_shared_jobs(rows: Iterable[DefinitionRow]) -> list[SharedJob]:
    """Find jobs of which a run could be executed by either of two functions.

    Two applications may share a handler, such as that of a common package.
    """
    by_name: dict[str, list[DefinitionRow]] = {}
    for row in rows:
        if row.kind is DefinitionKind.JOB:
            by_name.setdefault(row.name, []).append(row)
    return [
        SharedJob(name, tuple(sorted(found, key=lambda row: row.application)))
        for name, found in sorted(by_name.items())
        if len({row.application for row in found}) > 1 and len({row.handler for row in found}) > 1
    ]


def find_other_definers(
    rows: Iterable[DefinitionRow], *, application: str, schedules: Collection[str]
) -> Mapping[str, str]:
    """Return another application for each of these schedules that one defines."""
    return {
        row.name: row.application
        for row in rows
        if row.kind is DefinitionKind.SCHEDULE
        and row.application != application
        and row.name in schedules
    }
