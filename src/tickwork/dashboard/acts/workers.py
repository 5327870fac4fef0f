"""Requests to workers."""

from dataclasses import dataclass
from typing import Annotated

from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResponse:
    """The worker that will drain."""

    id: str
    host: str
    pid: int


@act(
    "worker.drain",
    Role.OPERATOR,
    "POST /workers/{id}/drain",
    form=ActForm(lambda done: f"The worker {done.host}:{done.pid} drains now."),
)
def drain_worker(
    call: ActCall, worker: Annotated[str, fields.RUN_ID, "The id of the worker."]
) -> DrainResponse:
    """Ask a worker to claim no more runs, to finish those it has, and to exit."""
    row = call.perform(call.app.drain_worker, worker)
    return DrainResponse(id=row.id, host=row.host, pid=row.pid)
