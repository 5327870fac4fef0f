"""What an attempt may ask of the worker while it runs."""

from typing import Any

from tickwork._domain.run import Claim
from tickwork._domain.status import RunStatus
from tickwork._kernel.clock import Clock
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork.stores.contract import Store


class StoreDesk:
    """Carries a handler's words to the store."""

    def __init__(self, *, store: Store, clock: Clock, heartbeat: Heartbeat | None = None) -> None:
        self._store = store
        self._clock = clock
        self._heartbeat = heartbeat

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Keep it with the run; False when the claim was lost."""
        return self._store.save_progress(claim, progress=progress, checkpoint=checkpoint)

    def complete(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """Finish the run inside the transaction of this connection; False when it was lost."""
        borrowed = self._store.using(connection)
        return borrowed.complete(claim, now=self._clock.now(), result=result)

    async def complete_async(self, claim: Claim, connection: Any, *, result: str | None) -> bool:
        """The same for an async connection."""
        borrowed = self._store.using_async(connection)
        return await borrowed.complete(claim, now=self._clock.now(), result=result)

    def has_landed(self, claim: Claim) -> bool:
        """Whether the run was completed under this claim, for everybody to see."""
        run = self._store.get_run(claim.run_id)
        if run is None:
            return False
        return run.status is RunStatus.COMPLETED and run.token == claim.token

    def shall_stop(self, claim: Claim) -> bool:
        """Whether somebody asked that this run be stopped, or it is no longer ours."""
        run = self._store.get_run(claim.run_id)
        if self._heartbeat is not None and self._heartbeat.is_lost(claim.run_id, found=run):
            return True
        return run is not None and run.cancel_requested_at is not None

    def is_canceled(self, claim: Claim) -> bool:
        """Whether somebody asked that this run be stopped: it gets no other attempt."""
        run = self._store.get_run(claim.run_id)
        return run is not None and run.cancel_requested_at is not None


class HeldDesk(StoreDesk):
    """The same for a worker that holds many: what a heartbeat has learned is enough."""

    def __init__(self, *, store: Store, clock: Clock, held: HeldRuns) -> None:
        super().__init__(store=store, clock=clock)
        self._held = held

    def shall_stop(self, claim: Claim) -> bool:
        """Whether its attempt shall stop: canceled, lost, too late, or the worker leaves."""
        run = self._held.of(claim)
        return run is None or run.is_told

    def is_canceled(self, claim: Claim) -> bool:
        """Whether somebody asked that this run be stopped: it gets no other attempt."""
        run = self._held.of(claim)
        return run is not None and run.is_canceled
