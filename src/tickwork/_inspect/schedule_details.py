"""The definition of a stored schedule, as people can read it and write it again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tickwork._client.schedule_view import describe_rule
from tickwork._define.rule_text import write_rule_text
from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin, ScheduleRow
from tickwork._inspect.runs import read_args
from tickwork._kernel.durations import format_duration
from tickwork._kernel.json_form import as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDetails:
    """The definition of a schedule. Durations are texts such as ``1h30m``; secrets are masked."""

    name: str
    tenant: str
    job: str
    rule: str  # as one would type it; JSON, if there is no shorter form
    description: str  # the rule in plain English
    timezone: str
    args: dict[str, Any]
    queue: str | None  # null: that of the job
    priority: int | None
    expires: str | None
    overlap: Overlap
    misfire: Misfire
    grace: str
    jitter: str
    expect_within: str | None
    until: datetime | None
    target: str | None
    tags: tuple[str, ...]
    origin: ScheduleOrigin
    is_retired: bool  # it comes from code, and no running program defines it any more
    revision: int  # 1, and one more for each change


def view_details(
    row: ScheduleRow, *, secrets: frozenset[str], seen_after: datetime
) -> ScheduleDetails:
    spec = row.spec
    copied = (
        *("name", "tenant", "job", "queue", "priority", "overlap", "misfire"),
        *("until", "target", "tags", "origin"),
    )
    lengths = ("expires", "grace", "jitter", "expect_within")
    return ScheduleDetails(
        **{name: getattr(spec, name) for name in copied},
        **{name: show_option(getattr(spec, name)) for name in lengths},
        rule=write_rule_text(spec.rule),
        description=describe_rule(row),
        timezone=spec.zone,
        args=read_args(spec.args, secrets=secrets),
        is_retired=row.is_retired(seen_after=seen_after),
        revision=row.revision,
    )


def show_option(value: Any) -> Any:
    """An option as JSON: a duration as text that can be read again."""
    return format_duration(value) if isinstance(value, timedelta) else as_json(value)
