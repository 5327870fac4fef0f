"""Adds runs to the store: once, also when the answer of the database is lost."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tickwork._domain.run import NewRun
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.events import RunDispatched
from tickwork.events.bus import EventBus
from tickwork.stores.contract import Enqueued, RunStore

PAUSES: Final = (0.01, 0.1, 0.5)
"""Seconds before each retry of an insert whose answer was lost. Then the caller gets the error."""

_NAMED_MAX: Final = 3


class RunInserter:
    """Adds runs in a transaction of its own.

    ``on_added`` is called after each insert, in the thread of the caller.
    """

    def __init__(self, *, store: RunStore, bus: EventBus) -> None:
        self._store = store
        self._bus = bus
        self.on_added: Callable[[Sequence[NewRun]], None] | None = None

    def add(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
        """Add all of these runs or none; return one answer for each, in order.

        With ``is_repeat``, runs of these ids may exist already, unfinished or finished.
        """
        answers = self._insert(runs, is_repeat=is_repeat)
        if self._bus.has_subscribers or self.on_added is not None:
            self._report([run for run, answer in zip(runs, answers, strict=True) if answer.is_new])
        return answers

    def _report(self, new: Sequence[NewRun]) -> None:
        for run in new:
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

    def _insert(self, runs: Sequence[NewRun], *, is_repeat: bool) -> list[Enqueued]:
        try:
            return self._store.enqueue(runs, is_repeat=is_repeat)
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
        # was added by the first try: for the caller it is new.
        return [
            answer._replace(is_new=answer.run_id == run.id)
            for run, answer in zip(runs, self._store.enqueue(runs, is_repeat=True), strict=True)
        ]
