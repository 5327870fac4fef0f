"""Claims runs, and finds claims whose answer was lost on the way back from the database."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.lease import LEASE_DEFAULT
from tickwork._domain.runs.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import ClaimRequest, Store
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.known_jobs import KnownJobs
from tickwork.errors import OutcomeUnknown, StoreError

CancelAttempt = Callable[[Claim], None]


class Claimer:
    """Sends claims. Each has a tag, so that a claim without an answer can be found again."""

    def __init__(
        self,
        *,
        name: str,
        store: Store,
        clock: Clock,
        worker: WorkerId,
        known: KnownJobs,
        held: HeldRuns,
        on_claimed: Callable[[int, datetime], None] | None = None,
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._worker = worker
        self._known = known
        self._held = held
        self._on_claimed = on_claimed
        self._numbers = count(1)
        self._lost_tags: list[str] = []

    @property
    def has_lost_claims(self) -> bool:
        return bool(self._lost_tags)

    def claim(self, wanted: ClaimRequest, cancel_attempt: CancelAttempt) -> Sequence[Claim]:
        """Claim runs and hold them.

        Raises:
            OutcomeUnknown: The answer was lost. :meth:`find_lost` finds the claims.
        """
        tag, sent_at = f"{self._name}-{next(self._numbers)}", self._clock.monotonic()
        now = self._clock.now()
        claims: Sequence[Claim] = ()
        try:
            claims = self._store.claim(
                wanted,
                worker=self._worker,
                tag=tag,
                now=now,
                lease=LEASE_DEFAULT.length,
                lease_by_job=self._known.lease_by_job(),
            )
            if claims:
                # Before anything else: from here on the heartbeat extends their leases.
                self._held.add(claims, extended_at=sent_at, cancel_attempt=cancel_attempt)
        except BaseException as error:
            # The claims may be in the database though this process does not hold them: the
            # answer was lost, or there was no memory for it.
            if isinstance(error, OutcomeUnknown) or not isinstance(error, StoreError):
                self._held.drop_all(claims)  # they are held again when they are found
                self._lost_tags.append(tag)
            raise
        if claims and self._on_claimed is not None:
            self._on_claimed(len(claims), now)
        return claims

    def claim_run(self, run_id: RunId, *, job: str, cancel_attempt: CancelAttempt) -> Claim | None:
        """Claim exactly this run and hold it; None when it cannot start."""
        tag, sent_at = f"{self._name}-{next(self._numbers)}", self._clock.monotonic()
        try:
            claim = self._store.claim_run(
                run_id,
                worker=self._worker,
                tag=tag,
                now=self._clock.now(),
                lease=self._known.lease_of(job),
            )
        except OutcomeUnknown:
            claim = next(iter(self._store.find_claims(worker=self._worker, tag=tag)), None)
        if claim is not None:
            self._held.add([claim], extended_at=sent_at, cancel_attempt=cancel_attempt)
        return claim

    def find_lost(self, cancel_attempt_of: Callable[[str], CancelAttempt | None]) -> list[Claim]:
        """Find the claims of one lost answer, hold them, and return them.

        The tag belongs to this call: it is taken before the query, and put back if that fails. A
        claim that is held already is not returned: its attempt has been submitted.
        """
        try:
            tag = self._lost_tags.pop()
        except IndexError:
            return []
        added: list[Claim] = []
        try:
            sent_at = self._clock.monotonic()
            for claim in self._store.find_claims(worker=self._worker, tag=tag):
                added += self._held.add(
                    [claim], extended_at=sent_at, cancel_attempt=cancel_attempt_of(claim.job)
                )
        except BaseException:
            self._held.drop_all(added)
            self._lost_tags.append(tag)
            raise
        return added
