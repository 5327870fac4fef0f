"""Outcomes on their way into the database: in batches, once, whatever happens to the way."""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import Clock
from tickwork._worker.completing import look_after
from tickwork._worker.held import HeldRun, HeldRuns
from tickwork._worker.keeping import LINES_MAX, LogKeeper
from tickwork._worker.reporting import Reporter
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from tickwork.stores.contract import Store

REFUSED_AFTER: Final = 10.0
"""Seconds after which an outcome that the database has refused is tried once more."""

UNWRITABLE: Final = "Its outcome could not be written."

_log: Final = logging.getLogger("tickwork.worker")


class Refused(NamedTuple):
    """A step that the database does not take, and when it is tried again."""

    retry_at: float
    step: Transition


class Wrote(NamedTuple):
    """What became of a batch: how many steps it had, and whether others may have waited for it.

    ``is_limited`` says that most of them were of runs with limits.
    """

    steps: int
    may_free: bool = False
    is_limited: bool = False
    jobs: frozenset[str] = frozenset()


NOTHING: Final = Wrote(0)


class Writer:
    """Writes finished transitions. What cannot be written waits, and is not lost.

    Several pumps share it. ``done`` is where engines put steps; a batch whose answer was
    lost, or a part of one that was refused as a whole, is written again as a repeat.
    """

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
        self._again: deque[Sequence[Transition]] = deque()
        self._refused: deque[Refused] = deque()

    def __len__(self) -> int:
        """How many steps wait in memory; those that are being written now do not count."""
        return self.pending + len(self._refused)

    @property
    def pending(self) -> int:
        """The same without those that the database has refused."""
        return len(self.done) + sum(map(len, list(self._again)))

    def put(self, run: HeldRun, step: Transition) -> None:
        """Take the step of a run, unless somebody has said what came of it before."""
        if run.has_the_word():
            self.done.append(step)

    def write(self) -> Wrote:
        """Write one batch.

        Raises:
            StoreUnavailable: The database is away. Everything is kept for the next try.
            StoreBusy: The same.
        """
        self._retry_refused()
        steps, is_repeat = self._taken()
        if not steps:
            return NOTHING
        try:
            self.keep_log()
            looked = look_after(self._store, steps)
            lost = self._store.record(looked.unwritten, is_repeat=is_repeat)
        except OutcomeUnknown:
            self._again.append(steps)
            raise
        except (StoreUnavailable, StoreBusy):
            if is_repeat:
                self._again.appendleft(steps)
            else:
                self.done.extendleft(reversed(steps))
            raise
        except Exception as fault:  # noqa: BLE001  # one bad step must not hold the others
            self._part(steps, fault)
            return Wrote(len(steps))
        self._held.drop_all([step.claim for step in steps])
        written = [*looked.landed, *looked.unwritten] if looked.landed else looked.unwritten
        self._reporter.recorded(written, lost=lost, at=self._clock.now())
        limited = len([step for step in steps if step.claim.limit_keys])
        return Wrote(
            len(steps),
            may_free=any(map(_may_free, steps)),
            is_limited=2 * limited > len(steps),
            jobs=frozenset([step.claim.job for step in steps]),
        )

    def keep_log(self) -> None:
        """Write what handlers have logged.

        Raises:
            StoreUnavailable: The database is away. The lines are kept.
        """
        lines = self._keeper.take()
        # What a run that was lost still logs here is not what became of it.
        lines = {run_id: logged for run_id, logged in lines.items() if not self._is_lost(run_id)}
        if not lines:
            return
        try:
            self._store.append_logs(lines, lines_max=LINES_MAX)
        except (StoreUnavailable, StoreBusy):
            self._keeper.put_back(lines)
            raise
        except Exception:  # noqa: BLE001  # outcomes matter more than what was logged
            _log.exception("Log lines of %d runs could not be kept.", len(lines))

    def _taken(self) -> tuple[Sequence[Transition], bool]:
        with suppress(IndexError):  # there is none, or another pump was quicker
            return self._again.popleft(), True
        steps: list[Transition] = []
        with suppress(IndexError):
            for _ in range(self._batch):
                steps.append(self.done.popleft())  # noqa: PERF401  # what was taken is kept
        return steps, False

    def _part(self, steps: Sequence[Transition], fault: Exception) -> None:
        """Halve a batch that was refused as a whole, until the bad one is alone."""
        if len(steps) > 1:
            half = len(steps) // 2
            self._again.extendleft([steps[half:], steps[:half]])
            return
        step = steps[0]
        claim = step.claim
        _log.error("%s: the outcome of run %s was refused: %s", claim.job, claim.run_id, fault)
        if step.reason != UNWRITABLE:
            # What is in it may be at fault: say as little as possible.
            step = Transition(
                claim,
                RunStatus.FAILED_PERMANENT,
                OutcomeKind.FAILED,
                step.ended_at,
                step.started_at,
                reason=UNWRITABLE,
            )
            self._again.appendleft([step])
            return
        self._refused.append(Refused(self._clock.monotonic() + REFUSED_AFTER, step))

    def _retry_refused(self) -> None:
        with suppress(IndexError):
            if self._refused and self._refused[0].retry_at <= self._clock.monotonic():
                self._again.append([self._refused.popleft().step])

    def _is_lost(self, run_id: RunId) -> bool:
        run = self._held.get(run_id)
        return run is not None and run.is_lost


def _may_free(step: Transition) -> bool:
    """Whether it can make a run ready: another that waited for it, or itself."""
    claim = step.claim
    return (
        bool(claim.limit_keys)
        or claim.schedule is not None
        or step.outcome is not OutcomeKind.SUCCEEDED
    )
