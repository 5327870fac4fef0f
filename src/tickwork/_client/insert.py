"""The way in for runs: added once even when the answer is lost, and told to who listens."""

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
"""Seconds before each repeat of an insert whose answer was lost; then the caller is told."""

_NAMED_MAX: Final = 3


class RunInserter:
    """Adds runs in a transaction of its own.

    ``on_added`` is called after each one, in the thread that added them: whoever sleeps
    until something is due wants to know.
    """

    def __init__(self, *, store: RunStore, bus: EventBus) -> None:
        self._store = store
        self._bus = bus
        self.on_added: Callable[[Sequence[NewRun]], None] | None = None

    def add(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
        """Add these, all or none; answer for each, in order.

        ``is_repeat`` says that they may be here already, unfinished or finished: their ids
        were derived.
        """
        answers = self._added(runs, is_repeat=is_repeat)
        new = [run for run, answer in zip(runs, answers, strict=True) if answer.is_new]
        if new and self._bus.has_subscribers:
            for run in new:
                self._bus.emit(_dispatched(run))
        if new and self.on_added is not None:
            self.on_added(new)
        return answers

    def _added(self, runs: Sequence[NewRun], *, is_repeat: bool) -> list[Enqueued]:
        try:
            return self._store.enqueue(runs, is_repeat=is_repeat)
        except OutcomeUnknown as error:
            lost = error
        for pause in PAUSES:
            time.sleep(pause)
            # A store that cannot be reached now may have taken them before all the same.
            with suppress(StoreUnavailable):
                return self._repeated(runs)
        names = ", ".join(run.id for run in runs[:_NAMED_MAX])
        more = f" and {len(runs) - _NAMED_MAX} more" if len(runs) > _NAMED_MAX else ""
        lost.add_note(f"If it has landed, app.get_run() finds it later: {names}{more}.")
        raise lost

    def _repeated(self, runs: Sequence[NewRun]) -> list[Enqueued]:
        # The ids are ours, so that repeating it cannot add a run twice. One that is found to be
        # there was added by the first try: for the caller it is as new as the others.
        return [
            answer._replace(is_new=answer.run_id == run.id)
            for run, answer in zip(runs, self._store.enqueue(runs, is_repeat=True), strict=True)
        ]


def _dispatched(run: NewRun) -> RunDispatched:
    return RunDispatched(
        at=run.created_at,
        run_id=run.id,
        job=run.job,
        tenant=run.tenant,
        queue=run.queue,
        due_at=run.due_at,
    )
