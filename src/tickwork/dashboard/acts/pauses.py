"""Pauses of queues and jobs. Those of schedules are in ``schedules``."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tickwork._stores.contract import Pause
from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act
from tickwork.dashboard.problems import ProblemError

Note: TypeAlias = Annotated[fields.Text, "A note for others, such as the reason."]
Until: TypeAlias = Annotated[fields.Instant, "Resume at this time. Default: never."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeResponse:
    """The result of a resume."""

    name: str
    was_paused: bool


@act(
    "queue.pause",
    Role.OPERATOR,
    "POST /queues/{name}/pause",
    form=ActForm(lambda done: f"The queue {done.name} is paused."),
)
def pause_queue(
    call: ActCall,
    name: fields.NamedShort,
    *,
    note: Note = "",
    until: Until | None = None,
    confirm: Annotated[
        bool, fields.BOOLEAN, "Pause the queue although nothing is known of it."
    ] = False,
) -> Pause:
    """Pause a queue: its runs wait; those that have started go on."""
    if not confirm and not call.app.inspect.knows_queue(name):
        raise ProblemError(
            409,
            f"Nothing is known of a queue {name!r}.",
            code="unknown-queue",
            fix="Check the name. To pause it all the same, send confirm: true.",
        )
    return call.perform(call.app.pause, queue=name, note=note, until=until)


@act(
    "queue.resume",
    Role.OPERATOR,
    "POST /queues/{name}/resume",
    form=ActForm(lambda done: f"The queue {done.name} is resumed."),
)
def resume_queue(call: ActCall, name: fields.NamedShort) -> ResumeResponse:
    """Resume a queue."""
    return ResumeResponse(name=name, was_paused=call.perform(call.app.resume, queue=name))


@act(
    "job.pause",
    Role.OPERATOR,
    "POST /jobs/{name}/pause",
    form=ActForm(lambda done: f"The job {done.name} is paused."),
)
def pause_job(
    call: ActCall, name: fields.NamedShort, *, note: Note = "", until: Until | None = None
) -> Pause:
    """Pause a job: its runs wait; those that have started go on."""
    return call.perform(call.app.pause, job=name, note=note, until=until)


@act(
    "job.resume",
    Role.OPERATOR,
    "POST /jobs/{name}/resume",
    form=ActForm(lambda done: f"The job {done.name} is resumed."),
)
def resume_job(call: ActCall, name: fields.NamedShort) -> ResumeResponse:
    """Resume a job."""
    return ResumeResponse(name=name, was_paused=call.perform(call.app.resume, job=name))
