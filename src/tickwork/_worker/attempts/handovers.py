"""Tracks the claims that this worker hands over to a remote engine, until they are accepted."""

from collections.abc import Sequence
from typing import Final

from tickwork import events
from tickwork._domain.runs.handover import handover_of
from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import HandoverView
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import HeldClaim, Store
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork.events.bus import EventBus

DURATIONS_MAX: Final = 8
"""Of how many finished runs one poll reads the durations: an average needs a few, not all."""


class HandoverTracker:
    """What remote engines need of a worker: see :class:`tickwork._engines.contract.Handovers`."""

    def __init__(self, *, store: Store, clock: Clock, held: HeldRuns, bus: EventBus) -> None:
        self._store = store
        self._clock = clock
        self._held = held
        self._bus = bus

    def hand_over(self, claims: Sequence[Claim], *, engine: str) -> list[Claim]:
        allowed: list[Claim] = []
        new: list[Claim] = []  # not those whose submission failed before
        for claim in claims:
            run = self._held.of(claim)
            if run is not None and not run.is_settled and not run.is_stop_requested:
                allowed.append(claim)
                if not run.is_handed_over:
                    run.is_handed_over = True
                    new.append(claim)
        self._store.hand_over([handover_of(claim) for claim in allowed])
        if self._bus.has_subscribers:
            at = self._clock.now()
            for claim in new:
                external_id = handover_of(claim).external_id
                self._bus.emit(
                    events.RunSubmitted(
                        at=at,
                        run_id=claim.run_id,
                        job=claim.job,
                        tenant=claim.tenant,
                        engine=engine,
                        external_id=external_id,
                    )
                )
        return allowed

    def poll(self, claims: Sequence[Claim]) -> HandoverView:
        check = self._store.check_claims([HeldClaim(one.run_id, one.token) for one in claims])
        for run_id in check.cancel_requested:
            self._held.cancel(run_id)
        gone = set(check.gone)
        view = HandoverView([claim for claim in claims if claim.run_id in gone], [])
        for run in self._store.get_runs(check.gone[:DURATIONS_MAX]) if gone else ():
            if run.started_at and run.ended_at:
                seconds = (run.ended_at - run.started_at).total_seconds()
                view.durations.append((run.job, seconds))
        return view

    def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            run = self._held.of(claim)
            if run is not None:
                run.try_settle()  # its outcome is written elsewhere
        self._held.drop_all(claims)
        if self._bus.has_subscribers:
            at = self._clock.now()
            for claim in claims:
                self._bus.emit(
                    events.RunAccepted(
                        at=at,
                        run_id=claim.run_id,
                        job=claim.job,
                        tenant=claim.tenant,
                        external_id=handover_of(claim).external_id,
                    )
                )
