"""Hands runs over to processes of another system: what engines for Celery, Dask and others share.

A remote engine needs a :class:`Transport`, which does little more than submit messages. The
database decides about everything else. Before a run is submitted, its claim and its external id
(``run:token``) are stored. The process that gets the message accepts the run under that token,
which gives it a new one (:class:`tickwork._worker.remote_worker.RemoteWorker`). So a message may be
lost, delayed or delivered twice: at most one process accepts the run under each token. If that
process dies, the run is claimed again.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from tickwork._domain.identity import RunId
from tickwork._domain.runs.handover import Handover, encode_message, handover_of
from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import EngineHealth, EngineSetup
from tickwork._engines.durations import DurationEstimate
from tickwork._kernel.plain_text import count_of
from tickwork.errors import EngineError, StoreError

__all__ = ["Handover", "RemoteEngine", "Transport", "encode_message"]

POLL_BUSY: Final = 0.1
POLL_IDLE: Final = 0.25
"""Seconds between two polls of submitted claims: while many slots are in use, and while few are.

A slot is free only after a poll, so a busy engine polls more often.
"""

RETRY_FIRST: Final = 0.25
RETRY_LONGEST: Final = 5.0
"""Seconds between two tries while the other system does not answer, so that logs stay readable."""

RESUBMIT_AFTER: Final = 60.0
RESUBMIT_LONGEST: Final = 960.0
"""Seconds without an acceptance after which a run is submitted again. The wait doubles each time.

A run with a shorter lease is submitted again when its first lease would have expired.
"""

RESUBMIT_MAX: Final = 100
"""How many runs are submitted again at once: a system that is slow must be able to confirm them."""

SHORT_TOTAL: Final = 0.1
"""Seconds that the runs of one message may take in all: the last one waits for all others."""

_log: Final = logging.getLogger("tickwork.worker")


class Transport(Protocol):
    """The connection to another system. Only the thread of its engine calls it."""

    name: str
    """The name of the engine."""

    runs_max: int
    """The most runs of one message. Only runs that are known to be short share a message."""

    def submit(self, messages: Sequence[Sequence[Handover]]) -> None:
        """Send messages, each about one or more runs. Return when the other system has them all.

        Raises:
            EngineError: It does not answer. Messages may have been sent: they are sent again.
        """
        ...

    def cancel(self, handover: Handover) -> None:
        """Remove a run that was not accepted, if that is possible."""
        ...

    def close(self) -> None:
        """Close the connection. The next call opens another one."""
        ...


class SubmittedRun:
    """A claim that was submitted and not accepted, as far as is known."""

    __slots__ = ("claim", "resubmit_after", "resubmit_at")

    def __init__(self, claim: Claim, *, lease: float, now: float) -> None:
        self.claim = claim
        self.resubmit_after = min(max(lease, 1.0), RESUBMIT_AFTER)
        self.resubmit_at = now + self.resubmit_after

    def postpone(self, *, now: float) -> None:
        self.resubmit_after = min(2 * self.resubmit_after, RESUBMIT_LONGEST)
        self.resubmit_at = now + self.resubmit_after


class RemoteEngine:
    """Submits claims in a thread of its own, and polls them until they are accepted.

    ``slots`` limits the claims that wait to be accepted. It is 0 while the other system does not
    answer. Claims that were not accepted when the worker stops are given back.
    """

    def __init__(self, setup: EngineSetup, transport: Transport) -> None:
        assert setup.handovers is not None, setup
        self.durations = DurationEstimate()  # empty: nothing is claimed in advance
        self._measured = DurationEstimate()
        self._host = setup.host
        self._clock = setup.clock
        self._slots = setup.slots
        self._handovers = setup.handovers
        self._transport = transport
        self._lock = threading.Lock()
        self._ready: deque[Claim] = deque()
        self._submitted: dict[RunId, SubmittedRun] = {}
        self._to_cancel: deque[Claim] = deque()
        self._changed = threading.Event()
        self._is_stopping = False
        self._is_unavailable = False
        self._retry_after = RETRY_FIRST
        self._poll_at = 0.0
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ for the worker

    def start(self) -> None:
        name = f"tickwork-{self._transport.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def slots(self) -> int:
        return 0 if self._is_unavailable else self._slots

    @property
    def waiting(self) -> int:
        return len(self._ready)

    @property
    def running(self) -> int:
        return len(self._submitted)

    def health(self) -> EngineHealth:
        """Whether its thread works. A system that does not answer is no reason to replace it."""
        thread = self._thread
        if thread is None or thread.is_alive() or self._is_stopping:
            return EngineHealth()
        reason = f"The thread of the {self._transport.name} engine has ended."
        return EngineHealth(is_alive=False, reason=reason)

    def submit(self, claims: Sequence[Claim]) -> None:
        self._ready.extend(claims)
        self._changed.set()

    def make_quick_attempts(self) -> bool:
        return False

    def rebalance(self) -> None:
        pass

    def take_back(self) -> list[Claim]:
        self._try_poll()  # to give back only what was not accepted
        with self._lock:
            taken = [*self._ready, *(run.claim for run in self._submitted.values())]
            self._ready.clear()
            self._submitted.clear()
        return taken

    def cancel(self, claim: Claim) -> None:
        """Drop a claim: its run was canceled, or another process has it."""
        self._to_cancel.append(claim)
        self._changed.set()

    def interrupt(self) -> list[Claim]:
        self._is_stopping = True
        self._changed.set()
        return []

    def unfinished(self) -> list[Claim]:
        return []

    def stop(self) -> None:
        self.interrupt()
        if self._thread is not None:
            self._thread.join(timeout=RETRY_LONGEST)
        self._transport.close()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        # It ends when the worker is stopped.
        while not self._is_stopping:
            self._changed.wait(self._seconds_to_wait())
            self._changed.clear()
            try:
                self.step()
            except (EngineError, StoreError) as error:
                self._on_unavailable(error)
            except Exception as error:  # noqa: BLE001  # the next step may succeed
                _log.exception("Handing runs over to %s failed; retrying.", self._transport.name)
                self._on_unavailable(error)

    def step(self) -> None:
        """Cancel, poll and submit claims, once.

        Raises:
            EngineError: The other system does not answer. Claims that could not be submitted wait.
            StoreError: The database does not answer. The claims wait, too.
        """
        self._cancel_all()
        now = self._clock.monotonic()
        if now >= self._poll_at:
            self._poll()
            self._resubmit_stale(now)
        self._submit_ready()
        self._retry_after = RETRY_FIRST
        if self._is_unavailable:
            self._is_unavailable = False
            _log.warning("The engine %s answers again.", self._transport.name)
            self._host.notify()

    def _seconds_to_wait(self) -> float:
        if self._is_unavailable:
            return self._retry_after
        if self._ready:
            return 0.0
        return max(self._poll_at - self._clock.monotonic(), 0.0) if self._submitted else POLL_IDLE

    def _on_unavailable(self, error: Exception) -> None:
        if not self._is_unavailable:
            self._is_unavailable = True
            _log.warning("Runs wait for the engine %s: %s", self._transport.name, error)
        with self._lock:
            # What was submitted before may be lost with the other system.
            for run in self._submitted.values():
                run.resubmit_at = 0.0
        self._retry_after = min(2 * self._retry_after, RETRY_LONGEST)

    def _submit_ready(self) -> None:
        with self._lock:
            claims = list(self._ready)
        if not claims:
            return
        allowed = self._handovers.hand_over(claims, engine=self._transport.name)
        self._transport.submit(self._messages(allowed))
        now, at = self._clock.monotonic(), self._clock.now()
        with self._lock:
            # The worker may have taken claims back meanwhile. No process accepts their messages.
            left = set(self._ready)
            for claim in claims:
                if claim in left:
                    self._ready.remove(claim)
                    lease = (claim.lease_until - at).total_seconds()
                    self._submitted[claim.run_id] = SubmittedRun(claim, lease=lease, now=now)

    def _resubmit_stale(self, now: float) -> None:
        """Submit claims again, under the same tokens, that should have been accepted long ago."""
        stale = [run for run in list(self._submitted.values()) if run.resubmit_at <= now]
        if not stale:
            return
        stale = stale[:RESUBMIT_MAX]
        count = count_of(len(stale), "run")
        text = "No process of %s has accepted %s in time. The worker submits the messages again."
        _log.info(text, self._transport.name, count)
        self._transport.submit([[handover_of(run.claim)] for run in stale])
        for run in stale:
            run.postpone(now=now)

    def _messages(self, claims: Iterable[Claim]) -> list[list[Handover]]:
        """Put short runs into one message. A run that was claimed before has one of its own."""
        messages: list[list[Handover]] = []
        open_by_job: dict[str, list[Handover]] = {}
        for claim in claims:
            runs_max = self._runs_max(claim)
            message = open_by_job.get(claim.job)
            if runs_max > 1 and message is not None and len(message) < runs_max:
                message.append(handover_of(claim))
                continue
            messages.append([handover_of(claim)])
            if runs_max > 1:
                open_by_job[claim.job] = messages[-1]
        return messages

    def _runs_max(self, claim: Claim) -> int:
        """Return how many runs of this job a message may have."""
        if claim.token > 1:
            return 1  # it may have killed its process
        seconds = self._measured.mean_of(claim.job)
        if seconds is None:
            return 1
        count = int(SHORT_TOTAL / max(seconds, 1e-6))  # a clock may return 0 s for an attempt
        return max(1, min(self._transport.runs_max, count))

    def _cancel_all(self) -> None:
        while self._to_cancel:  # ends: only a few claims are canceled at a time
            claim = self._to_cancel.popleft()
            with self._lock:
                if claim in self._ready:
                    self._ready.remove(claim)
                was_submitted = self._submitted.pop(claim.run_id, None) is not None
            if was_submitted:
                self._try_cancel(claim)
            self._host.begin(claim)  # this finds that it needs no attempt, and records why
        self._host.notify()

    def _try_cancel(self, claim: Claim) -> None:
        try:
            self._transport.cancel(handover_of(claim))
        except Exception as error:  # noqa: BLE001  # the database decides: this only saves work
            _log.debug("Run %s was not removed from its engine: %s", claim.run_id, error)

    def _try_poll(self) -> None:
        with self._lock:
            # A message may be delivered, and its run accepted, before its submission is over.
            claims = [*self._ready, *(run.claim for run in self._submitted.values())]
        try:
            self._poll_claims(claims)
        except StoreError as error:
            _log.debug("Claims that were handed over could not be read: %s", error.what)

    def _poll(self) -> None:
        with self._lock:
            claims = [run.claim for run in self._submitted.values()]
        gone = self._poll_claims(claims)
        # If many claims were accepted since the last poll, many new ones follow soon.
        is_busy = 2 * max(self.running, gone) > self._slots
        seconds = POLL_BUSY if is_busy else POLL_IDLE
        self._poll_at = self._clock.monotonic() + seconds

    def _poll_claims(self, claims: Sequence[Claim]) -> int:
        """Release claims that were accepted, or have ended; return how many."""
        if not claims:
            return 0
        view = self._handovers.poll(claims)
        for job, seconds in view.durations:
            self._measured.add(job, seconds)
        with self._lock:
            for claim in view.gone:
                self._submitted.pop(claim.run_id, None)
                if claim in self._ready:
                    self._ready.remove(claim)
        self._handovers.release(view.gone)
        if view.gone:
            self._host.notify()
        return len(view.gone)
