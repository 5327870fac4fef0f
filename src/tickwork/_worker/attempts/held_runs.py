"""The claims that this worker holds: those that wait for a slot, and those that run."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from threading import Lock

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import Outcome
from tickwork._domain.runs.run import Claim
from tickwork._handlers.context import RunContext
from tickwork._worker.attempts.reporter import log_run


class HeldRun:
    """One claim. The engine and the heartbeat both write it, each its own attributes."""

    # One is made for every run: what most attempts leave as it is stays a default of the class.
    started_at: datetime | None = None
    ctx: RunContext | None = None  # once its attempt has begun
    deadline: float | None = None  # monotonic
    is_canceled = False
    is_handed_over = False  # another process may accept it at any time
    is_lost = False
    is_stop_requested = False  # canceled, lost, late, or the worker stops

    def __init__(
        self,
        claim: Claim,
        extended_at: float,
        cancel_attempt: Callable[[Claim], None] | None = None,
    ) -> None:
        self.claim = claim
        self.extended_at = extended_at  # monotonic, before the request was sent
        self.decisions: list[Outcome] = []  # the first one is recorded
        self._cancel_attempt = cancel_attempt
        self.unsettled = [None]  # empty once its outcome is decided

    def try_settle(self) -> bool:
        """Return True to the first caller only: its outcome is recorded, later ones are not."""
        try:
            self.unsettled.pop()  # atomic, unlike a check followed by a change
        except IndexError:
            return False
        return True

    @property
    def is_settled(self) -> bool:
        return not self.unsettled

    def decide(self, outcome: Outcome) -> Outcome:
        """Return the outcome to record: this one, or the one that was decided before."""
        self.decisions.append(outcome)  # atomic: the first one counts
        return self.decisions[0]

    def request_stop(self) -> None:
        """Have ``ctx.is_canceled()`` return True, and the engine end the attempt if it can."""
        self.is_stop_requested = True
        if self._cancel_attempt is not None:
            self._cancel_attempt(self.claim)


class HeldRuns:
    """The held claims by run. Single look-ups and removals are atomic; the rest takes the lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[RunId, HeldRun] = {}
        self.get: Callable[[RunId], HeldRun | None] = self._runs.get

    def __len__(self) -> int:
        return len(self._runs)

    def add(
        self,
        claims: Iterable[Claim],
        *,
        extended_at: float,
        cancel_attempt: Callable[[Claim], None] | None = None,
    ) -> list[Claim]:
        """Hold these claims: from now on the heartbeat extends their leases.

        Returns those that are held now and were not before. A claim that is held already, or an
        older one of its run, changes nothing: its attempt may be running, or have ended.
        """
        with self._lock:
            runs = self._runs
            added = [
                claim
                for claim in claims
                if claim.run_id not in runs or runs[claim.run_id].claim.token < claim.token
            ]
            for claim in added:
                runs[claim.run_id] = HeldRun(claim, extended_at, cancel_attempt)
        return added

    def of(self, claim: Claim) -> HeldRun | None:
        """Return the held run of exactly this claim; None if only a newer claim is held."""
        run = self._runs.get(claim.run_id)
        return run if run is not None and run.claim.token == claim.token else None

    def is_held(self, claim: Claim) -> bool:
        """Whether this worker works on exactly this claim, and knows of no other that does."""
        run = self.of(claim)
        return run is not None and not run.is_lost

    def drop_all(self, claims: Iterable[Claim]) -> None:
        """Release these claims, except runs that were claimed again meanwhile."""
        runs = self._runs
        with self._lock:
            for claim in claims:
                run_id = claim.run_id
                if run_id in runs and runs[run_id].claim.token == claim.token:
                    del runs[run_id]

    def snapshot(self) -> list[HeldRun]:
        with self._lock:
            return list(self._runs.values())

    def revoke(self, run_id: RunId, *, token: int) -> None:
        """Stop the attempt: another worker has the run, or may have it.

        Only the attempt under this token. This worker may have claimed the run again meanwhile.
        """
        run = self._runs.get(run_id)
        if run is not None and run.claim.token == token and not run.is_lost:
            run.is_lost = True
            if not run.is_handed_over:
                text = "the lease of run %s was lost; its attempt is stopped."
                log_run(logging.WARNING, run.claim, text, run_id)
            run.request_stop()

    def cancel(self, run_id: RunId) -> None:
        """Stop the attempt because the cancellation of the run was requested."""
        run = self._runs.get(run_id)
        if run is not None and not run.is_canceled:
            run.is_canceled = True
            run.request_stop()
