"""The definition of a stored schedule, as people can read it and write it again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tickwork._config.rule_text import write_rule
from tickwork._control.schedule_view import describe_rule
from tickwork._define.option_table import OF_SCHEDULES
from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin, ScheduleRow
from tickwork._inspect.runs import RunPresenter
from tickwork._kernel.durations import format_duration
from tickwork._kernel.json_form import as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDetails:
    """The definition of a schedule. Durations are texts such as ``1h30m``; secrets are masked."""

    name: str
    tenant: str
    job: str
    rule: str | dict[str, Any]  # as one would type it; an object, if there is no shorter form
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
    row: ScheduleRow, presenter: RunPresenter, *, seen_after: datetime
) -> ScheduleDetails:
    spec = row.spec
    stored = (option for option in OF_SCHEDULES if option.column and option.name != "args")
    options = {option.name: getattr(spec, option.column) for option in stored}
    return ScheduleDetails(
        **{name: getattr(spec, name) for name in ("name", "tenant", "job", "origin")},
        **{name: _show_length(value) for name, value in options.items()},
        rule=write_rule(spec.rule),
        description=describe_rule(row),
        timezone=spec.zone,
        args=presenter.read_args(spec.job, spec.args),
        is_retired=row.is_retired(seen_after=seen_after),
        revision=row.revision,
    )


def _show_length(value: Any) -> Any:
    return format_duration(value) if isinstance(value, timedelta) else value


def show_option(value: Any) -> Any:
    """An option as JSON: a duration as text that can be read again."""
    return as_json(_show_length(value))
