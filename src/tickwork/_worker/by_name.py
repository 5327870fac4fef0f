"""One run, asked for by its id: claimed and executed here and now, or a word on why not."""

from collections.abc import Iterable
from datetime import datetime

from tickwork._domain.identity import RunId
from tickwork._domain.rates import is_rate
from tickwork._domain.run import Run
from tickwork._domain.status import RunStatus
from tickwork._kernel.clock import Clock
from tickwork._worker.known import KnownJobs
from tickwork._worker.once import OnePass
from tickwork.errors import InvalidTransition, RunError, RunNotFound
from tickwork.stores.contract import Pause, PauseKind, Store


def execute(run_id: RunId, *, store: Store, clock: Clock, known: KnownJobs, once: OnePass) -> None:
    """Claim exactly this run, due or not, and make an attempt at it.

    Raises:
        RunNotFound: There is no such run.
        InvalidTransition: It is claimed, or has finished.
        RunError: It is paused, or a limit that it needs is full.
        JobNotFound: This process does not know its job.
    """
    run = _startable(store, run_id)
    known.learn(run.job)
    if not once.run_one(run_id, job=run.job):
        # It was there a moment ago: has somebody been quicker, or what is in its way?
        raise _refusal(_startable(store, run_id), store.list_pauses(), now=clock.now())


def _startable(store: Store, run_id: RunId) -> Run:
    run = store.get_run(run_id)
    if run is None:
        raise RunNotFound(run_id)
    if not run.status.can_execute:
        raise InvalidTransition(run_id, source=run.status, target=RunStatus.RUNNING)
    return run


def _refusal(run: Run, pauses: Iterable[Pause], *, now: datetime) -> RunError:
    what = f"The run {run.id} cannot start now."
    for pause in pauses:
        is_over = pause.until is not None and pause.until <= now
        name = run.queue if pause.kind is PauseKind.QUEUE else run.job
        if pause.name == name and not is_over:
            return RunError(
                run.id,
                what,
                why=f"The {pause.kind} {pause.name!r} is paused.",
                fix=f"Let it go on: app.resume({pause.kind}={pause.name!r}).",
            )
    if any(map(is_rate, run.limit_keys)):
        return RunError(
            run.id,
            what,
            why=f"A limit that it needs is full, or its turn has not come: "
            f"{' or '.join(run.limit_keys)}.",
            fix="Wait until one that holds the limit has finished, or for its turn.",
        )
    return RunError(
        run.id,
        what,
        why=f"A limit that it needs is full: {' or '.join(run.limit_keys)}.",
        fix="Wait until a run that holds it has finished.",
    )
