"""Executes one run by its id, or explains why it cannot start."""

from collections.abc import Iterable
from datetime import datetime

from tickwork._domain.identity import RunId
from tickwork._domain.rates import is_rate
from tickwork._domain.run import Run
from tickwork._domain.status import RunStatus
from tickwork._worker.single_pass import PassParts, SinglePass
from tickwork.errors import InvalidTransition, RunError, RunNotFound
from tickwork.stores.contract import Pause, PauseKind, Store


def execute(run_id: RunId, *, parts: PassParts, single_pass: SinglePass) -> None:
    """Claim exactly this run, due or not, and make an attempt at it.

    Raises:
        RunNotFound: There is no such run.
        InvalidTransition: It is claimed, or has finished.
        RunError: It is paused, or a limit that it needs is full.
        JobNotFound: This process does not know its job.
    """
    store = parts.store
    run = _get_startable(store, run_id)
    parts.known.learn(run.job)
    if not single_pass.run_one(run_id, job=run.job):
        # Another worker claimed it a moment ago, or something blocks it.
        run = _get_startable(store, run_id)
        raise _explain(run, store.list_pauses(), now=parts.clock.now())


def _get_startable(store: Store, run_id: RunId) -> Run:
    run = store.get_run(run_id)
    if run is None:
        raise RunNotFound(run_id)
    if not run.status.can_execute:
        raise InvalidTransition(run_id, source=run.status, target=RunStatus.RUNNING)
    return run


def _explain(run: Run, pauses: Iterable[Pause], *, now: datetime) -> RunError:
    what = f"The run {run.id} cannot start now."
    for pause in pauses:
        is_over = pause.until is not None and pause.until <= now
        name = run.queue if pause.kind is PauseKind.QUEUE else run.job
        if pause.name == name and not is_over:
            return RunError(
                run.id,
                what,
                why=f"The {pause.kind} {pause.name!r} is paused.",
                fix=f"Resume it: app.resume({pause.kind}={pause.name!r}).",
            )
    limits = " or ".join(run.limit_keys)
    if any(map(is_rate, run.limit_keys)):
        return RunError(
            run.id,
            what,
            why=f"A limit that it needs is full, or its rate does not admit it yet: {limits}.",
            fix="Wait until a run that holds the limit has finished, or until the rate admits it.",
        )
    return RunError(
        run.id,
        what,
        why=f"A limit that it needs is full: {limits}.",
        fix="Wait until a run that holds it has finished.",
    )
