"""What users may do with any schedule: pause, resume, run and backfill it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from tickwork._control.schedule_view import ScheduleView
from tickwork._inspect.runs import DispatchedRunView
from tickwork._kernel.durations import parse_duration
from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act
from tickwork.dashboard.acts.pauses import Note, Until
from tickwork.dashboard.presentation import runs_are


def _read_pause(get: Callable[[str], str], now: datetime) -> dict[str, Any]:
    length = get("length")
    if not length:
        return {}
    return {"until": now + max(parse_duration(length), timedelta(seconds=1))}


@act(
    "schedule.pause",
    Role.OPERATOR,
    "POST /schedules/{name}/pause",
    form=ActForm(lambda done: f"The schedule {done.name} is paused.", read=_read_pause),
)
def pause_schedule(
    call: ActCall,
    name: fields.Named,
    *,
    tenant: fields.Tenant = "",
    note: Note = "",
    until: Until | None = None,
) -> ScheduleView:
    """Pause a schedule: it does not fire; runs that exist go on."""
    pause = call.app.schedules.pause
    return call.perform(pause, name, tenant=tenant, note=note, until=until)


@act(
    "schedule.resume",
    Role.OPERATOR,
    "POST /schedules/{name}/resume",
    form=ActForm(lambda done: f"The schedule {done.name} is resumed."),
)
def resume_schedule(
    call: ActCall, name: fields.Named, *, tenant: fields.Tenant = ""
) -> ScheduleView:
    """Resume a schedule at its next instant."""
    return call.perform(call.app.schedules.resume, name, tenant=tenant)


def _show_run(done: DispatchedRunView) -> tuple[str, str]:
    text = "No run is added: the schedule allows one run at a time."
    return "The run is added." if done.is_new else text, f"/runs/{done.run.id}"


@act(
    "schedule.run",
    Role.OPERATOR,
    "POST /schedules/{name}/run",
    status=201,
    form=ActForm(_show_run),
)
def run_schedule(
    call: ActCall, name: fields.Named, *, tenant: fields.Tenant = ""
) -> DispatchedRunView:
    """Add a run of a schedule now. Its next firing stays the same."""
    handle = call.perform(call.app.schedules.run_now, name, tenant=tenant)
    return call.app.inspect.view_dispatched(handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResponse:
    """The runs that a backfill has added."""

    runs: list[str]


def _read_backfill(get: Callable[[str], str], now: datetime) -> dict[str, Any]:
    return {"since": now - fields.DURATION.parse(get("length"), True), "until": now}


@act(
    "schedule.backfill",
    Role.OPERATOR,
    "POST /schedules/{name}/backfill",
    form=ActForm(lambda done: f"{runs_are(len(done.runs))} added.", read=_read_backfill),
)
def backfill_schedule(
    call: ActCall,
    name: fields.Named,
    *,
    tenant: fields.Tenant = "",
    since: Annotated[fields.Instant, "The first instant."],
    until: Annotated[fields.Instant, "The last instant."],
) -> BackfillResponse:
    """Add a run for each past instant without one, at most 1,000."""
    backfill = call.app.schedules.backfill
    handles = call.perform(backfill, name, since=since, until=until, tenant=tenant)
    return BackfillResponse(runs=[handle.id for handle in handles])
