"""What users may do with runs: dispatch, retry, cancel, reschedule and delete them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, TypeAlias, TypedDict, Unpack

from tickwork._dispatch.dispatch_options import apply_dispatch_options
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.identity import RunId
from tickwork._inspect.runs import DispatchedRunView, RunView
from tickwork._kernel.json_form import as_json
from tickwork._masks.secret_mask import contains_mask
from tickwork._masks.text import MASK
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act
from tickwork.dashboard.acts.events import read_data
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import RunNotFound

RunKey: TypeAlias = Annotated[RunId, fields.RUN_ID, "The id of the run."]


class DispatchFields(TypedDict, total=False):
    """The options of a dispatch."""

    args: Annotated[dict[str, Any], fields.OBJECT, "The arguments of the handler, by name."]
    delay: Annotated[fields.Duration, "Run after this delay."]
    at: Annotated[fields.Instant, "Run at this time."]
    queue: Annotated[fields.Name, "Queue, instead of the job's."]
    priority: Annotated[int, fields.PRIORITY, "Priority: lower numbers run first."]
    unique: Annotated[fields.Name, "Add no run if an unfinished one has this key."]
    debounce: Annotated[fields.Duration, "Run once, this long after the last equal dispatch."]
    expires: Annotated[fields.Duration, "Skip the run if it starts later than this."]
    tags: Annotated[list[str], fields.TAGS, "Tags, besides those of the job."]
    tenant: Annotated[fields.Text, "The tenant of the run."]
    target: Annotated[fields.Name, "The object in your application that the run is about."]


@act(
    "run.dispatch",
    Role.OPERATOR,
    "POST /runs",
    subject="job",
    status=201,
    either=("delay", "at"),
)
def dispatch_run(
    call: ActCall,
    job: Annotated[fields.Name, "The name of the job."],
    *,
    key: fields.Key = "",
    **options: Unpack[DispatchFields],
) -> DispatchedRunView:
    """Dispatch a run. With an idempotency key, a repeated request adds no second run."""
    if "delay" in options and "at" in options:
        raise ProblemError(422, "Give delay or at, not both.", field="at")
    values = options.get("args", {})
    definition = call.app.registry.get(job)
    refuse_masks(call.app, job, values)
    args = definition.payload.rebuild(values)
    # Values of arguments may be secret: the audit log has their names.
    detail = {**options, "args": sorted(values), "key": key}

    def dispatch() -> RunHandle[Any]:
        draft = apply_dispatch_options(call.app.draft, options)
        if not key:
            handle: RunHandle[Any] = draft.args(**args).dispatch(job)
            return handle
        text = json.dumps(as_json({"job": job, **options}), sort_keys=True)
        digest = blake2b(text.encode(), digest_size=16).hexdigest()
        own = f"{call.caller.user.name}/{key}"
        return call.app.idempotent.dispatch(draft, job, args, key=own, digest=digest)

    return call.app.inspect.view_dispatched(call.with_detail(**detail).perform(dispatch))


def refuse_masks(app: Tickwork, job: str, args: Mapping[str, Any]) -> None:
    """Refuse arguments that were copied from a page, where secrets are masked.

    Raises:
        ProblemError: A value is the mask, or contains it and the job has secret arguments.
    """
    if contains_mask(args, in_texts=bool(app.inspect.secrets_of(job))):
        raise ProblemError(422, f"{MASK} stands for a secret, and is not a value.", field="args")


@act(
    "run.retry",
    Role.OPERATOR,
    "POST /runs/{id}/retry",
    status=201,
    form=ActForm(lambda done: ("This run repeats the finished one.", f"/runs/{done.run.id}")),
)
def retry_run(call: ActCall, run_id: RunKey) -> DispatchedRunView:
    """Run a finished run again, as a new run."""
    return call.app.inspect.view_dispatched(call.perform(call.app.runs.retry, run_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResponse:
    """The result of a cancel."""

    run: str
    is_canceled: bool  # false: the run had finished


@act(
    "run.cancel",
    Role.OPERATOR,
    "POST /runs/{id}/cancel",
    form=ActForm(
        lambda done: "The run is canceled." if done.is_canceled else "The run had finished."
    ),
)
def cancel_run(
    call: ActCall,
    run_id: RunKey,
    *,
    reason: Annotated[fields.Text, "The reason, stored with the run."] = "",
) -> CancelResponse:
    """Cancel a waiting run, or request that its worker stops it."""
    done = call.perform(call.app.runs.cancel, run_id, reason=reason)
    return CancelResponse(run=run_id, is_canceled=done)


@act(
    "run.reschedule",
    Role.OPERATOR,
    "POST /runs/{id}/reschedule",
    form=ActForm(lambda _: "The run is rescheduled.", "/runs/{id}/snooze"),
    either=("at", "delay"),
    is_either_required=True,
)
def reschedule_run(
    call: ActCall,
    run_id: RunKey,
    *,
    at: Annotated[fields.Instant | None, "The new time."] = None,
    delay: Annotated[fields.Duration | None, "Or a length of time from now."] = None,
) -> RunView:
    """Change when a run is due, if no worker has claimed it."""
    due_at = at if delay is None else delay
    if due_at is None or (at is not None and delay is not None):
        raise ProblemError(422, "Give at or delay.", field="at")
    call.with_detail(due=due_at).perform(call.app.runs.reschedule, run_id, due_at)
    return call.app.inspect.view(call.app.runs.read(run_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalResponse:
    """The result of an event."""

    run: str
    is_new: bool  # false: the run had got one of this name, which stays


@act(
    "run.signal",
    Role.OPERATOR,
    "POST /runs/{id}/signal",
    form=ActForm(
        lambda done: "The event is stored." if done.is_new else "The run had got this event.",
        read=read_data,
    ),
)
def signal_run(
    call: ActCall,
    run_id: RunKey,
    *,
    event: Annotated[fields.Text, "The name of the event, as in ctx.wait_for."],
    data: Annotated[dict[str, Any] | None, fields.OBJECT, "Its data."] = None,
) -> SignalResponse:
    """Send an event to a run that waits for it, or will."""
    # The data may be secret: the audit log has the name of the event.
    named = call.with_detail(event=event)
    is_new = named.perform(call.app.runs.signal, run_id, event, data)
    return SignalResponse(run=run_id, is_new=is_new)


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeResponse:
    """The result of ending a sleep."""

    run: str
    was_asleep: bool  # false: it did not sleep


@act(
    "run.wake",
    Role.OPERATOR,
    "POST /runs/{id}/wake",
    form=ActForm(
        lambda done: "The run continues." if done.was_asleep else "The run does not sleep."
    ),
)
def wake_run(call: ActCall, run_id: RunKey) -> WakeResponse:
    """End the sleep of a run: it continues now."""
    return WakeResponse(run=run_id, was_asleep=call.perform(call.app.runs.wake, run_id))


@act(
    "run.delete",
    Role.ADMIN,
    "DELETE /runs/{id}",
    status=204,
    form=ActForm(lambda _: ("The run is deleted.", "/runs"), "/runs/{id}/delete"),
)
def delete_run(call: ActCall, run_id: RunKey) -> None:
    """Delete a finished run with its attempts and its log."""

    def delete() -> None:
        if not call.app.runs.read(run_id).is_finished:
            raise ProblemError(409, f"The run {run_id} has not finished.", fix="Cancel it first.")
        if not call.app.runs.delete([run_id]):
            raise RunNotFound(run_id)

    call.perform(delete)
