"""Every change that the dashboard and the API can make: checked, audited, then done."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final, TypeVar

from tickwork._client.runs import RunHandle
from tickwork._client.schedule_view import ScheduleView
from tickwork._domain.identity import RunId
from tickwork._inspect.runs import RunView
from tickwork._kernel.json_form import as_json
from tickwork.app import Tickwork
from tickwork.dashboard.access import Caller, Role, User
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import RunNotFound, TickworkError
from tickwork.stores.contract import LimitRow, Pause, WorkerRow

T = TypeVar("T")

log: Final = logging.getLogger("tickwork.dashboard")

ROLES: Final[Mapping[str, Role]] = {
    "run.dispatch": Role.OPERATOR,
    "run.retry": Role.OPERATOR,
    "run.cancel": Role.OPERATOR,
    "run.reschedule": Role.OPERATOR,
    "run.delete": Role.ADMIN,
    "queue.pause": Role.OPERATOR,
    "queue.resume": Role.OPERATOR,
    "job.pause": Role.OPERATOR,
    "job.resume": Role.OPERATOR,
    "schedule.pause": Role.OPERATOR,
    "schedule.resume": Role.OPERATOR,
    "schedule.run": Role.OPERATOR,
    "schedule.backfill": Role.OPERATOR,
    "schedule.create": Role.ADMIN,
    "schedule.change": Role.ADMIN,
    "schedule.remove": Role.ADMIN,
    "worker.drain": Role.OPERATOR,
    "limit.change": Role.ADMIN,
    "limit.reset": Role.ADMIN,
}
"""The role that each action needs."""

DISPATCH_OPTIONS: Final = (
    *("delay", "at", "queue", "priority", "unique", "expires", "tenant", "target"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchedRunView:
    """A run that was dispatched or retried."""

    is_new: bool  # false: an earlier request, or a unique key, led to an existing run
    run: RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResponse:
    """The result of a cancel."""

    run: str
    is_canceled: bool  # false: the run had finished


class Actions:
    """Carries out the actions of users."""

    def __init__(self, app: Tickwork, *, is_read_only: bool) -> None:
        self.app = app
        self.is_read_only = is_read_only

    def may(self, user: User, action: str) -> bool:
        """Whether a user may take an action here."""
        return not self.is_read_only and user.may(ROLES[action])

    def act(
        self,
        caller: Caller,
        action: str,
        subject: str,
        do: Callable[[], T],
        detail: Mapping[str, Any] | None = None,
    ) -> T:
        """Audit an action, and then take it: so no action is missing in the log.

        An action that fails gets a second entry with its error.
        """
        self.check(caller, action)
        given = {
            name: value
            for name, value in (detail or {}).items()
            if value is not None and value != ""
        }
        facts = as_json(given)
        audit = self.app.audit
        audit.record(action, subject, actor=caller.user.name, source=caller.address, detail=facts)
        try:
            return do()
        except TickworkError as error:
            audit.record(
                f"{action}.failed",
                subject,
                actor=caller.user.name,
                source=caller.address,
                detail={"error": error.code},
            )
            raise

    def check(self, caller: Caller, action: str) -> None:
        """Check that the caller may take an action.

        Raises:
            ProblemError: The role of the user does not suffice, or the dashboard is read-only.
        """
        if self.is_read_only:
            raise ProblemError(403, "This dashboard is read-only.", code="read-only")
        if not caller.user.may(ROLES[action]):
            needed = ROLES[action].name.lower()
            log.warning("%s may not do %s: it needs %s.", caller.user.name, action, needed)
            raise ProblemError(
                403,
                f"{action} needs the role {needed}; you are {caller.user.role.name.lower()}.",
                code="role",
            )

    # ------------------------------------------------------------ runs

    def dispatch(self, caller: Caller, given: Mapping[str, Any], *, key: str) -> DispatchedRunView:
        """Add a run; with an idempotency key, at most one for each key and user."""
        self.check(caller, "run.dispatch")
        job, values = given["job"], given.get("args", {})
        definition = self.app.registry.get(job)
        args = definition.payload.rebuild(values)

        def dispatch() -> RunHandle[Any]:
            draft: Any = self.app.draft
            for name in DISPATCH_OPTIONS:
                if name in given:
                    draft = getattr(draft, name)(given[name])
            if given.get("tags"):
                draft = draft.tags(*given["tags"])
            if not key:
                handle: RunHandle[Any] = draft.args(**args).dispatch(job)
                return handle
            text = json.dumps(as_json(given), sort_keys=True)
            digest = blake2b(text.encode(), digest_size=16).hexdigest()
            own = f"{caller.user.name}/{key}"
            return self.app.idempotent.dispatch(draft, job, args, key=own, digest=digest)

        # Values of arguments may be secret: the audit log has their names.
        detail = {**given, "args": sorted(values), "key": key}
        del detail["job"]
        handle = self.act(caller, "run.dispatch", f"job/{job}", dispatch, detail)
        return self._dispatched(handle)

    def retry(self, caller: Caller, run_id: RunId) -> DispatchedRunView:
        handle = self.act(caller, "run.retry", f"run/{run_id}", lambda: self.app.runs.retry(run_id))
        return self._dispatched(handle)

    def cancel(self, caller: Caller, run_id: RunId, *, reason: str = "") -> CancelResponse:
        done = self.act(
            caller,
            "run.cancel",
            f"run/{run_id}",
            lambda: self.app.runs.cancel(run_id, reason=reason),
            {"reason": reason},
        )
        return CancelResponse(run=run_id, is_canceled=done)

    def reschedule(self, caller: Caller, run_id: RunId, due_at: datetime | timedelta) -> RunView:
        self.act(
            caller,
            "run.reschedule",
            f"run/{run_id}",
            lambda: self.app.runs.reschedule(run_id, due_at),
            {"due": due_at},
        )
        return self.app.inspect.view(self.app.runs.read(run_id))

    def delete(self, caller: Caller, run_id: RunId) -> None:
        def delete() -> None:
            if not self.app.runs.read(run_id).is_finished:
                raise ProblemError(
                    409, f"The run {run_id} has not finished.", fix="Cancel it first."
                )
            if not self.app.runs.delete([run_id]):
                raise RunNotFound(run_id)

        self.act(caller, "run.delete", f"run/{run_id}", delete)

    def _dispatched(self, handle: RunHandle[Any]) -> DispatchedRunView:
        return DispatchedRunView(is_new=handle.is_new, run=self.app.inspect.view(handle.read()))

    # ------------------------------------------------------------ queues, jobs, limits

    def pause(
        self, caller: Caller, kind: str, name: str, *, note: str = "", until: datetime | None = None
    ) -> Pause:
        return self.act(
            caller,
            f"{kind}.pause",
            f"{kind}/{name}",
            lambda: self.app.pause(**{kind: name}, note=note, until=until),
            {"note": note, "until": until},
        )

    def resume(self, caller: Caller, kind: str, name: str) -> bool:
        return self.act(
            caller,
            f"{kind}.resume",
            f"{kind}/{name}",
            lambda: self.app.resume(**{kind: name}),
        )

    def change_limit(self, caller: Caller, name: str, slots: int) -> LimitRow:
        return self.act(
            caller,
            "limit.change",
            f"limit/{name}",
            lambda: self.app.limits.change(name, slots),
            {"slots": slots},
        )

    def reset_limit(self, caller: Caller, name: str) -> LimitRow:
        return self.act(caller, "limit.reset", f"limit/{name}", lambda: self.app.limits.reset(name))

    def drain(self, caller: Caller, worker: str) -> WorkerRow:
        return self.act(
            caller, "worker.drain", f"worker/{worker}", lambda: self.app.drain_worker(worker)
        )

    # ------------------------------------------------------------ schedules

    def pause_schedule(
        self,
        caller: Caller,
        name: str,
        *,
        tenant: str = "",
        note: str = "",
        until: datetime | None = None,
    ) -> ScheduleView:
        return self.act(
            caller,
            "schedule.pause",
            f"schedule/{name}",
            lambda: self.app.schedules.pause(name, tenant=tenant, note=note, until=until),
            {"tenant": tenant, "note": note, "until": until},
        )

    def resume_schedule(self, caller: Caller, name: str, *, tenant: str = "") -> ScheduleView:
        return self.act(
            caller,
            "schedule.resume",
            f"schedule/{name}",
            lambda: self.app.schedules.resume(name, tenant=tenant),
            {"tenant": tenant},
        )

    def run_schedule(self, caller: Caller, name: str, *, tenant: str = "") -> DispatchedRunView:
        handle = self.act(
            caller,
            "schedule.run",
            f"schedule/{name}",
            lambda: self.app.schedules.run_now(name, tenant=tenant),
            {"tenant": tenant},
        )
        return self._dispatched(handle)

    def backfill(
        self, caller: Caller, name: str, *, since: datetime, until: datetime, tenant: str = ""
    ) -> list[str]:
        handles = self.act(
            caller,
            "schedule.backfill",
            f"schedule/{name}",
            lambda: self.app.schedules.backfill(name, since=since, until=until, tenant=tenant),
            {"tenant": tenant, "since": since, "until": until},
        )
        return [handle.id for handle in handles]
