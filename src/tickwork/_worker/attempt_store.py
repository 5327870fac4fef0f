"""What an attempt stores and reads while it runs."""

from typing import Any

from tickwork._domain.run import Claim
from tickwork._domain.status import RunStatus
from tickwork._kernel.clock import Clock
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held_runs import HeldRuns
from tickwork.stores.contract import Store


class RowAttemptStore:
    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Save progress or a checkpoint; False when the claim was lost."""
        return self._store.save_progress(claim, progress=progress, checkpoint=checkpoint)

    def complete(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """Complete the run in the transaction of this connection; False when it was lost."""
        borrowed = self._store.using(connection)
        return borrowed.complete(claim, now=self._clock.now(), result=result)

    async def complete_async(self, claim: Claim, connection: Any, *, result: str | None) -> bool:
        borrowed = self._store.using_async(connection)
        return await borrowed.complete(claim, now=self._clock.now(), result=result)

    def has_landed(self, claim: Claim) -> bool:
        """Whether the run was completed under this claim, and that was committed."""
        run = self._store.get_run(claim.run_id)
        if run is None:
            return False
        return run.status is RunStatus.COMPLETED and run.token == claim.token

    def should_stop(self, claim: Claim) -> bool:
        return self.is_canceled(claim)

    def is_canceled(self, claim: Claim) -> bool:
        """Whether the cancellation of the run was requested: it gets no other attempt."""
        run = self._store.get_run(claim.run_id)
        return run is not None and run.cancel_requested_at is not None


class HeldAttemptStore(RowAttemptStore):
    """For attempts at held claims: other threads of the worker notice what happens to them."""

    def __init__(self, *, store: Store, clock: Clock, held: HeldRuns) -> None:
        super().__init__(store=store, clock=clock)
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

    def __init__(self, *, store: Store, clock: Clock, held: HeldRuns, heartbeat: Heartbeat) -> None:
        super().__init__(store=store, clock=clock, held=held)
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
