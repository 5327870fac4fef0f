"""Adds runs to the store: once, also when the answer of the database is lost."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, Protocol

from tickwork._domain.run import NewRun
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.events import RunDispatched
from tickwork.events.bus import EventBus
from tickwork.stores.contract import Enqueued, ReadStore, RunStore

PAUSES: Final = (0.01, 0.1, 0.5)
"""Seconds before each retry of an insert whose answer was lost. Then the caller gets the error."""

_NAMED_MAX: Final = 3


class InsertStore(RunStore, ReadStore, Protocol):
    """Adds and reads runs."""


class DispatchTracer(Protocol):
    """Follows runs from their dispatch to their attempts."""

    def dispatching(self, runs: Sequence[NewRun]) -> AbstractContextManager[Sequence[NewRun]]:
        """Wrap the insert of these runs; return them with ``trace``, which their attempts get."""
        ...


class TracedApp(Protocol):
    """An application that may have a tracer."""

    tracer: DispatchTracer | None


class RunInserter:
    """Adds runs in a transaction of its own, or in that of the calling thread.

    ``on_added`` is called after each insert, in the thread of the caller. Runs that are added in
    a transaction of the caller emit no event: it may still roll back.
    """

    def __init__(
        self,
        *,
        store: InsertStore,
        bus: EventBus,
        app: TracedApp,
    ) -> None:
        self._store = store
        self._bus = bus
        self._app = app
        self.on_added: Callable[[Sequence[NewRun]], None] | None = None

    def add(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[Enqueued]:
        """Add all of these runs or none; return one answer for each, in order.

        With ``may_be_stored``, runs of these ids may exist already, unfinished or finished.
        """
        tracer = self._app.tracer
        if tracer is None:
            answers = self._insert(runs, may_be_stored=may_be_stored)
        else:
            with tracer.dispatching(runs) as traced:
                answers = self._insert(traced, may_be_stored=may_be_stored)
        if self._bus.has_subscribers or self.on_added is not None:
            self._report([run for run, answer in zip(runs, answers, strict=True) if answer.is_new])
        return answers

    def report_follow_ups(self, runs: Sequence[NewRun]) -> None:
        """Report runs that were added with the success of an attempt."""
        if not self._bus.has_subscribers and self.on_added is None:
            return
        # A run whose key was taken was not added.
        keyed = [run.id for run in runs if run.unique is not None]
        added = {run.id for run in self._store.get_runs(keyed)} if keyed else set()
        self._report([run for run in runs if run.unique is None or run.id in added])

    def _report(self, new: Sequence[NewRun]) -> None:
        is_committed = self._store.caller_transaction is None
        for run in new if is_committed else ():
            self._bus.emit(
                RunDispatched(
                    at=run.created_at,
                    run_id=run.id,
                    job=run.job,
                    tenant=run.tenant,
                    queue=run.queue,
                    due_at=run.due_at,
                )
            )
        if new and self.on_added is not None:
            self.on_added(new)

    def _insert(self, runs: Sequence[NewRun], *, may_be_stored: bool) -> list[Enqueued]:
        try:
            return self._store.enqueue(runs, may_be_stored=may_be_stored)
        except OutcomeUnknown as error:
            lost = error
        for pause in PAUSES:
            time.sleep(pause)
            # The store may have added them, even if it cannot be reached now.
            with suppress(StoreUnavailable):
                return self._repeat(runs)
        names = ", ".join(run.id for run in runs[:_NAMED_MAX])
        more = f" and {len(runs) - _NAMED_MAX} more" if len(runs) > _NAMED_MAX else ""
        lost.add_note(f"If it was added, app.get_run() finds it later: {names}{more}.")
        raise lost

    def _repeat(self, runs: Sequence[NewRun]) -> list[Enqueued]:
        # The ids were chosen here, so a retry cannot add a run twice. A run that exists already
        # was added by the first call: for the caller it is new.
        return [
            answer._replace(is_new=answer.run_id == run.id)
            for run, answer in zip(runs, self._store.enqueue(runs, may_be_stored=True), strict=True)
        ]
