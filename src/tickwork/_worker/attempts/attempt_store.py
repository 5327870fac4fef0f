"""What an attempt stores and reads while it runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeAlias

from tickwork._define.options import Duration
from tickwork._dispatch.callbacks import Callbacks
from tickwork._domain.runs.links import HAS_STEPS
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.steps import Step
from tickwork._domain.runs.stored_events import EventName
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import LogLine, Store
from tickwork._worker.attempts.heartbeat import Heartbeat
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.log_capture import LogCapture
from tickwork.errors import OutcomeUnknown

SAVES_MAX: Final = 4
"""How often a step is written before the handler gets the error: four lost answers in a row are
no accident, and the next attempt continues after the last stored step."""

PlanRun: TypeAlias = Callable[[object, tuple[Any, ...], Mapping[str, Any]], NewRun]
"""Makes a run of a job, or of a draft, without adding it."""

DecodeResult: TypeAlias = Callable[[str, str | None], Any]
"""Rebuilds what the handler of a job has returned."""


class RowAttemptStore:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        plan_run: PlanRun,
        find_callbacks: Callable[[], Callbacks],
        decode_result: DecodeResult,
        log_capture: LogCapture | None = None,
        version: str = "",
    ) -> None:
        self._store = store
        self._find_callbacks = find_callbacks
        self.decode_result = decode_result
        self.version: str = version
        self._clock = clock
        self._log_capture = log_capture
        self.plan_run = plan_run

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Save progress or a checkpoint; False when the claim was lost."""
        return self._store.save_progress(claim, progress=progress, checkpoint=checkpoint)

    def now(self) -> datetime:
        """The time of the database."""
        return self._clock.now()

    def open_flow(self, claim: Claim) -> Sequence[Step]:
        """Read the steps of earlier attempts. The first claim of a run has none."""
        may_have_steps = claim.token > 1 or claim.links & HAS_STEPS
        return self._store.load_steps(claim.run_id) if may_have_steps else ()

    def save_steps(self, claim: Claim, steps: Sequence[Step]) -> bool:
        """Store steps; False when the claim was lost. A write without an answer is repeated."""
        for _ in range(SAVES_MAX - 1):
            with suppress(OutcomeUnknown):
                return self._store.save_steps(claim, steps)
        return self._store.save_steps(claim, steps)

    def resolve_wait(self, claim: Claim, step: Step, event: EventName) -> Step | None:
        """Decide a wait, now. A write without an answer is repeated."""
        for _ in range(SAVES_MAX - 1):
            with suppress(OutcomeUnknown):
                return self._store.resolve_wait(claim, step, event, now=self._clock.now())
        return self._store.resolve_wait(claim, step, event, now=self._clock.now())

    def callback_url(
        self, claim: Claim, event: str, *, valid: Duration, answers: Sequence[str]
    ) -> str:
        """A signed link that emits an event of the run."""
        return self._find_callbacks().url_of(claim.run_id, event, valid=valid, answers=answers)

    def save_steps_using(self, claim: Claim, connection: object, steps: Sequence[Step]) -> bool:
        """Store steps in the transaction of this connection; False when the claim was lost."""
        return self._store.using(connection).save_steps(claim, steps)

    async def save_steps_using_async(
        self, claim: Claim, connection: Any, steps: Sequence[Step]
    ) -> bool:
        return await self._store.using_async(connection).save_steps(claim, steps)

    def complete(
        self,
        claim: Claim,
        connection: object,
        *,
        result: str | None,
        follow_ups: Sequence[NewRun] = (),
    ) -> bool:
        """Complete the run in the transaction of this connection; False when it was lost."""
        borrowed = self._store.using(connection)
        is_done = borrowed.complete(claim, now=self._clock.now(), result=result)
        if is_done and follow_ups:
            borrowed.add_runs(follow_ups)
        return is_done

    async def complete_async(
        self,
        claim: Claim,
        connection: Any,
        *,
        result: str | None,
        follow_ups: Sequence[NewRun] = (),
    ) -> bool:
        borrowed = self._store.using_async(connection)
        is_done = await borrowed.complete(claim, now=self._clock.now(), result=result)
        if is_done and follow_ups:
            await borrowed.add_runs(follow_ups)
        return is_done

    def is_committed(self, claim: Claim) -> bool:
        """Whether the run was completed under this claim, and that was committed."""
        run = self._store.get_run(claim.run_id)
        if run is None:
            return False
        return run.status is RunStatus.COMPLETED and run.token == claim.token

    def is_taken(self, claim: Claim) -> bool:
        """Whether the run is no longer running under this claim."""
        run = self._store.get_run(claim.run_id)
        return run is None or run.status is not RunStatus.RUNNING or run.token != claim.token

    def keep_line(self, claim: Claim, *, level: str, logger: str, message: str) -> None:
        """Keep a log line until it is written with others."""
        if self._log_capture is not None:
            line = LogLine(self._clock.now(), level, logger, message)
            self._log_capture.add(claim.run_id, line)

    def should_stop(self, claim: Claim) -> bool:
        return self.is_canceled(claim)

    def is_canceled(self, claim: Claim) -> bool:
        """Whether the cancellation of the run was requested: it gets no other attempt."""
        run = self._store.get_run(claim.run_id)
        return run is not None and run.cancel_requested_at is not None


class HeldAttemptStore(RowAttemptStore):
    """For attempts at held claims: other threads of the worker notice what happens to them."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        held: HeldRuns,
        plan_run: PlanRun,
        find_callbacks: Callable[[], Callbacks],
        decode_result: DecodeResult,
        log_capture: LogCapture | None = None,
        version: str = "",
    ) -> None:
        super().__init__(
            store=store,
            clock=clock,
            plan_run=plan_run,
            find_callbacks=find_callbacks,
            decode_result=decode_result,
            log_capture=log_capture,
            version=version,
        )
        self._held = held

    def should_stop(self, claim: Claim) -> bool:
        """Whether the attempt should stop: canceled, lost, too late, or the worker stops."""
        run = self._held.of(claim)
        if run is None or run.is_stop_requested:
            return True
        return run.deadline is not None and self._clock.monotonic() >= run.deadline

    def is_canceled(self, claim: Claim) -> bool:
        run = self._held.of(claim)
        return run is not None and run.is_canceled


class PolledAttemptStore(HeldAttemptStore):
    """For attempts of a single pass: no other thread polls, so each check reads the row."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        held: HeldRuns,
        heartbeat: Heartbeat,
        plan_run: PlanRun,
        find_callbacks: Callable[[], Callbacks],
        decode_result: DecodeResult,
        log_capture: LogCapture | None = None,
        version: str = "",
    ) -> None:
        super().__init__(
            store=store,
            clock=clock,
            held=held,
            plan_run=plan_run,
            find_callbacks=find_callbacks,
            decode_result=decode_result,
            log_capture=log_capture,
            version=version,
        )
        self._heartbeat = heartbeat

    def should_stop(self, claim: Claim) -> bool:
        row = self._store.get_run(claim.run_id)
        if self._heartbeat.is_lost(claim.run_id, row=row):
            return True
        if row is not None and row.cancel_requested_at is not None:
            return True
        return super().should_stop(claim)

    def is_canceled(self, claim: Claim) -> bool:
        return RowAttemptStore.is_canceled(self, claim)
