"""One thread's work: write outcomes, and claim as many runs as can start soon."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import Final

from tickwork._domain.runs.lease import LEASE_MIN, Lease
from tickwork._domain.runs.outcome import Interrupted
from tickwork._domain.runs.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import ClaimRequest
from tickwork._worker.attempts.known_jobs import KnownJobs
from tickwork._worker.attempts.writer import Writer, WriteResult
from tickwork._worker.services.claim_capacity import EngineSlots
from tickwork._worker.services.claimer import CancelAttempt, Claimer
from tickwork._worker.wakeup import Wakeup

TURN_SECONDS: Final = 0.05
"""Seconds for which a pump leaves the work to another before it continues anyway.

A record takes about 11 ms on MariaDB. A pump whose connection does not answer must not block
the others (ADR 16).
"""


class PumpSerializer:
    """Lets pumps work concurrently, or one at a time while most runs have limits.

    Pumps that claim runs with the same limit wait for each other in the database, because both
    lock the row of that limit. One pump alone gets twice as much done.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._since = 0.0
        self.is_serial = False

    @contextmanager
    def turn(self, *, now: float, is_urgent: bool) -> Iterator[bool]:
        """Wrap one step of a pump; False while it is another pump's turn.

        That pump checks for notifications again before its turn ends. A pump does not
        wait when the other takes too long, or when its own work is urgent and only it can do it.
        """
        if is_urgent or not self.is_serial:
            yield True
            return
        is_ours = self._lock.acquire(blocking=False)
        if is_ours:
            self._since = now
        try:
            yield is_ours or now - self._since > TURN_SECONDS
        finally:
            if is_ours:
                self._lock.release()


LATE_SECONDS_MIN: Final = Lease(LEASE_MIN).stop_after.total_seconds()
"""No claim that took less time than this is late, even with the shortest lease."""

CLAIMED_TOO_LATE: Final = Interrupted("Claiming the run took longer than its lease.")
NOT_STARTED: Final = Interrupted("The worker stopped before the attempt started.")
NOT_SUBMITTED: Final = Interrupted("Its engine did not accept the run.")


class Pump:
    def __init__(
        self,
        *,
        clock: Clock,
        claimer: Claimer,
        queues: tuple[str, ...] | None,
        slots: Sequence[EngineSlots],
        writer: Writer,
        serializer: PumpSerializer,
        known: KnownJobs,
        wakeup: Wakeup,
        batch: int,
        ahead: timedelta,
        poll: timedelta,
        unwritten_max: int,
        give_back: Callable[[Claim, Interrupted], None],
    ) -> None:
        self._clock = clock
        self._claimer = claimer
        self._queues = queues
        self._slots = slots
        self._writer = writer
        self._serializer = serializer
        self._known = known
        self._wakeup = wakeup
        self._batch = batch
        self._ahead = ahead.total_seconds()
        self._poll = poll.total_seconds()
        self._unwritten_max = unwritten_max
        self._give_back = give_back
        self._written_jobs: frozenset[str] = frozenset()  # of the last batch
        self._is_underfilled = True  # whether every engine got fewer runs than it has room for
        self.is_deferred = False  # because it is another pump's turn

    def step(self, *, may_claim: bool, is_polling: bool = False) -> bool:
        """Write one batch and claim one; True when there may be more to do at once.

        ``is_polling`` means that the last wait ended without a notification: claim anyway.

        Raises:
            StoreError: The database is unreachable or ill. Nothing is lost: outcomes wait in
                memory, and the heartbeat keeps the leases.
        """
        now, is_urgent = self._clock.monotonic(), self._claimer.has_lost_claims
        with self._serializer.turn(now=now, is_urgent=is_urgent) as may_go:
            self.is_deferred = not may_go
            if not may_go:
                return False
            if is_polling:
                self._poll_again(at_once=True)
            written, claimed = self._write_and_claim(may_claim=may_claim)
        # After a claim that got fewer runs than it could, wait for a notification. Meanwhile the
        # interpreter is free for the attempts.
        return bool(written.size or (claimed and not self._is_underfilled))

    def _write_and_claim(self, *, may_claim: bool) -> tuple[WriteResult, int]:
        written = self._writer.write()
        self._written_jobs = written.jobs
        self._is_underfilled = True
        if written.size:
            self._serializer.is_serial = written.is_limited
        if written.may_unblock:
            self._poll_again(at_once=False)
        claimed = self._recover_claims(may_claim=may_claim)
        # Each claim becomes an outcome. While outcomes cannot be written, they must not pile up.
        if may_claim and len(self._writer) < self._unwritten_max:
            claimed += sum(map(self._claim_for, self._slots))
        return written, claimed

    @property
    def is_backing_off(self) -> bool:
        """Whether a notification came, and an engine's claims have to back off."""
        count, now = self._wakeup.new_work_count, self._clock.monotonic()
        return any(slots.is_backing_off(count, now=now) for slots in self._slots)

    def _poll_again(self, *, at_once: bool) -> None:
        for slots in self._slots:
            slots.poll_again(at_once=at_once or not self._are_others_busy(slots))

    def _claim_for(self, slots: EngineSlots) -> int:
        jobs = slots.jobs()
        count, sent_at = self._wakeup.new_work_count, self._clock.monotonic()
        if not jobs or slots.is_idle(
            count, now=sent_at, are_others_busy=self._are_others_busy(slots)
        ):
            return 0
        capacity = slots.reserve(self._ahead, batch=self._batch, now=sent_at)
        if not any(capacity):
            return 0
        # After an empty claim, start the first runs that are found. A complete claim follows.
        may_stop_early = slots.was_empty
        wanted = ClaimRequest(
            capacity.free,
            self._queues,
            jobs,
            capacity.ahead,
            is_starting=not slots.is_remote,
            hold=capacity.hold,
            may_wait=slots.engine.durations.similar_jobs(sent_at),
            may_stop_early=may_stop_early,
        )
        try:
            claims = self._claimer.claim(wanted, slots.engine.cancel)
            self._submit(slots, claims, sent_at)
        finally:
            slots.release(sum(capacity))
        now = self._clock.monotonic()
        slots.on_claimed(len(claims), capacity, took=now - sent_at, now=now)
        slots.was_empty = not claims
        is_complete = not (may_stop_early and claims)
        is_underfilled = is_complete and len(claims) < sum(capacity)
        self._is_underfilled = self._is_underfilled and is_underfilled
        # A claim that got only a few is not an empty poll: other workers may have locked the rest.
        if not claims:
            slots.on_empty(count, sent_at=sent_at, answered_at=now, poll=self._poll)
        return len(claims)

    def _are_others_busy(self, slots: EngineSlots) -> bool:
        """Whether other engines have work at the moment."""
        if self._written_jobs and self._written_jobs.isdisjoint(slots.jobs()):
            return True
        return any(other.engine.waiting for other in self._slots if other is not slots)

    def _submit(self, slots: EngineSlots, claims: Sequence[Claim], sent_at: float) -> None:
        if not claims:
            return
        waited = self._clock.monotonic() - sent_at
        if waited >= LATE_SECONDS_MIN:
            late = [claim for claim in claims if self._is_late(claim, waited)]
            for claim in late:
                self._give_back(claim, CLAIMED_TOO_LATE)
            claims = [claim for claim in claims if claim not in late]
        try:
            slots.engine.submit(claims)
        except BaseException:
            # An engine accepts all or none. Another worker may be able to start them.
            for claim in claims:
                self._give_back(claim, NOT_SUBMITTED)
            raise

    def _is_late(self, claim: Claim, waited: float) -> bool:
        """Whether its lease has nearly expired, because the claim itself took so long."""
        lease = Lease(self._known.lease_of(claim.job))
        return lease.must_stop(extended_at=0.0, monotonic=waited)

    def _recover_claims(self, *, may_claim: bool) -> int:
        """Submit claims whose answer was lost: no other worker can claim those runs."""
        total = 0
        while self._claimer.has_lost_claims:  # ends: each round finds one lost answer, or raises
            sent_at = self._clock.monotonic()
            claims = self._claimer.find_lost(self._cancel_attempt_of)
            total += len(claims)
            left = {claim.run_id for claim in claims}
            try:
                for slots in self._slots if may_claim else ():
                    jobs = set(slots.jobs())
                    own = [claim for claim in claims if claim.job in jobs and claim.run_id in left]
                    left.difference_update(claim.run_id for claim in own)
                    self._submit(slots, own, sent_at)
            finally:
                for claim in claims:
                    if claim.run_id in left:
                        # No engine starts it: the worker stops, or no longer knows the job.
                        self._give_back(claim, NOT_STARTED)
        return total

    def _cancel_attempt_of(self, job: str) -> CancelAttempt | None:
        engines = (slots.engine for slots in self._slots if job in slots.jobs())
        return next((engine.cancel for engine in engines), None)
