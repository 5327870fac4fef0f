"""Outcomes on their way into the database: in batches, once, whatever happens to the way."""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import Clock
from tickwork._worker.held import HeldRuns
from tickwork._worker.keeping import LINES_MAX, LogKeeper
from tickwork._worker.reporting import Reporter
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from tickwork.stores.contract import Store

_log: Final = logging.getLogger("tickwork.worker")


class Writer:
    """Writes finished transitions. What cannot be written waits, in order, and is not lost."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        held: HeldRuns,
        reporter: Reporter,
        keeper: LogKeeper,
        batch: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._held = held
        self._reporter = reporter
        self._keeper = keeper
        self._batch = batch
        self.done: deque[Transition] = deque()
        self._unsure: deque[tuple[Transition, ...]] = deque()  # sent, and the answer was lost

    def __len__(self) -> int:
        return len(self.done) + sum(map(len, self._unsure))

    def write(self) -> int:
        """Write one batch; return how many that were.

        Raises:
            StoreUnavailable: The database is away. Everything is kept for the next try.
        """
        if self._unsure:
            steps: Sequence[Transition] = self._unsure.popleft()
            is_repeat = True
        else:
            steps = self._taken()
            is_repeat = False
        if not steps:
            return 0
        self._keep_log()
        try:
            lost = self._recorded(steps, is_repeat=is_repeat)
        except OutcomeUnknown:
            self._unsure.append(tuple(steps))
            raise
        except (StoreUnavailable, StoreBusy):
            if is_repeat:
                self._unsure.appendleft(tuple(steps))
            else:
                self.done.extendleft(reversed(steps))
            raise
        for step in steps:
            self._held.drop(step.claim.run_id)
        self._reporter.recorded(steps, lost=lost, at=self._clock.now())
        return len(steps)

    def _taken(self) -> list[Transition]:
        done = self.done
        count = min(len(done), self._batch)
        steps: list[Transition] = []
        with suppress(IndexError):  # another pump was quicker
            steps.extend(done.popleft() for _ in range(count))
        return steps

    def _recorded(self, steps: Sequence[Transition], *, is_repeat: bool) -> list[RunId]:
        """Record a batch; one that fails as a whole is halved, until the bad one is alone."""
        try:
            return self._store.record(steps, is_repeat=is_repeat)
        except (StoreUnavailable, StoreBusy):
            raise
        except StoreError as fault:
            if len(steps) == 1:
                return self._set_aside(steps[0], fault)
            half = len(steps) // 2
            return [
                *self._recorded(steps[:half], is_repeat=True),
                *self._recorded(steps[half:], is_repeat=True),
            ]

    def _set_aside(self, step: Transition, fault: StoreError) -> list[RunId]:
        _log.error("%s: the outcome of run %s cannot be written: %s", *step.claim[1::-1], fault)
        plain = Transition(
            step.claim,
            RunStatus.FAILED_PERMANENT,
            OutcomeKind.FAILED,
            step.ended_at,
            reason="Its outcome could not be written.",
        )
        return self._store.record([plain], is_repeat=True)

    def _keep_log(self) -> None:
        lines = self._keeper.take()
        if lines:
            self._store.append_logs(lines, lines_max=LINES_MAX)
