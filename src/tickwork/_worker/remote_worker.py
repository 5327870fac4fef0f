"""Makes attempts at runs that a worker handed over, in a process of another system.

Such a process accepts runs, extends their leases and writes their outcomes as a worker does, with
the same parts. It claims nothing itself.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.handover import Handover, decode_message
from tickwork._domain.runs.lease import LEASE_DEFAULT
from tickwork._domain.runs.outcome import Failed
from tickwork._domain.runs.run import Claim
from tickwork._engines.local.thread_caller import ThreadCaller
from tickwork._kernel.ids import new_id
from tickwork._kernel.plain_text import count_of
from tickwork._kernel.processes import ThisProcess
from tickwork._stores.contract import WorkerRow
from tickwork._worker.attempt_core import WorkerContext, build_core
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import UNAVAILABLE_FIRST, UNAVAILABLE_LONGEST
from tickwork._worker.wakeup import Backoff
from tickwork.errors import JobNotFound, OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable

WATCH_EVERY: Final = 0.5
REGISTER_EVERY: Final = 10.0
"""Seconds between two checks of leases and cancels, and between two beats of this process.

The first is longer than that of a worker, because there may be hundreds of such processes.
"""

WRITE_EVERY: Final = 0.1
"""Seconds after which outcomes are written, though the message has more runs.

A message has at most 0.1 s of short runs, so most are written together.
"""

UNWRITTEN_FIRST: Final = 0.001
UNWRITTEN_LONGEST: Final = 1.0
"""Seconds between two tries to write outcomes.

The first is short, because another thread of this process may be writing them at this moment.
"""

ACCEPT_SECONDS: Final = 30.0
"""Seconds for which a message waits, because the database does not answer.

After that, the worker submits the run again, and this process is free for others.
"""

_log: Final = logging.getLogger("tickwork.worker")


class RemoteWorker:
    """Executes messages about runs. Several threads may do so at once."""

    def __init__(self, context: WorkerContext, *, call: ThreadCaller) -> None:
        options = WorkerOptions()
        core = build_core(context, batch=options.batch)
        self._core = core
        self._context = context
        self._store, self._clock, self._known = context.store, context.clock, context.known
        self._held, self._heartbeat = core.held, core.heartbeat
        self._runner, self._writer = core.runner, core.writer
        self._reaper = context.build_reaper(core.attempt_store, core.held, in_thread=False)
        self._call = call
        self._timeout_grace = options.timeout_grace
        self._id = WorkerId(new_id(self._clock.now()))
        self._me = ThisProcess.current()
        self._started_at = self._clock.now()
        self._lock = threading.Lock()
        self._is_started = False
        self._is_over = threading.Event()
        self._registered_at = 0.0

    def execute(self, message: object, *, is_redelivered: bool = False) -> int:
        """Make an attempt at each run of a message that this process can accept; return how many.

        When it returns, their outcomes are stored. A run that another process has is left to it.
        If ``is_redelivered``, that process may be dead: if it was one of this machine, its runs
        become due at once.

        Raises:
            HandoverRejected: The message cannot be read. Nothing was done.
            StoreUnavailable: The database does not answer. What was accepted is released later.
        """
        handovers = decode_message(message)
        self._start()
        claims = self._accept(handovers)
        if is_redelivered and len(claims) < len(handovers):
            self._reaper.release_dead(but={self._id})
            self._reaper.reap()
        written_at = self._clock.monotonic()
        for place, claim in enumerate(claims):
            self._attempt(claim)
            if self._clock.monotonic() - written_at >= WRITE_EVERY and place + 1 < len(claims):
                self._write(claims[: place + 1])
                written_at = self._clock.monotonic()
        self._write(claims)
        return len(claims)

    def stop(self) -> None:
        """Remove this process from the list of workers. It must have ended its attempts."""
        self._is_over.set()
        if self._is_started:
            self._store.remove_worker(self._id)

    # ------------------------------------------------------------ one message

    def _start(self) -> None:
        with self._lock:
            if self._is_started:
                return
            self._known.discover(is_ready=False)
            self._context.lifecycle.call_start(self._call.wait)
            # Before the first run is accepted: others must see whether this process lives.
            self._register()
            self._context.log_capture.start()
            threading.Thread(target=self._watch, name="tickwork-remote", daemon=True).start()
            self._is_started = True

    def _accept(self, handovers: Sequence[Handover]) -> list[Claim]:
        tag = new_id(self._clock.now())
        backoff = Backoff(UNAVAILABLE_FIRST, UNAVAILABLE_LONGEST)
        deadline = self._clock.monotonic() + ACCEPT_SECONDS
        is_unknown = False
        # It ends with an answer, or at the deadline.
        while True:
            now, sent_at = self._clock.now(), self._clock.monotonic()
            try:
                if is_unknown:
                    claims = self._store.find_claims(worker=self._id, tag=tag)
                    handovers = [] if claims else handovers
                    is_unknown = False
                if handovers:
                    claims = self._store.accept(
                        handovers,
                        worker=self._id,
                        tag=tag,
                        until=now + self._shortest_lease(),
                        # Of several runs, only the heartbeat knows which have started.
                        started_at=now if len(handovers) == 1 else None,
                    )
            except (StoreUnavailable, StoreBusy) as error:
                is_unknown = is_unknown or isinstance(error, OutcomeUnknown)
                if self._clock.monotonic() >= deadline:
                    raise
                self._is_over.wait(backoff.seconds())
                continue
            self._hold(claims, now=now, sent_at=sent_at)
            return claims

    def _hold(self, claims: Sequence[Claim], *, now: datetime, sent_at: float) -> None:
        for claim in claims:
            self._learn(claim)
            # The lease may be shorter than that of the job: it counts as extended that much ago.
            passed = self._known.lease_of(claim.job) - (claim.lease_until - now)
            self._held.add([claim], extended_at=sent_at - passed.total_seconds())

    def _shortest_lease(self) -> timedelta:
        return min([LEASE_DEFAULT.length, *self._known.lease_by_job().values()])

    def _learn(self, claim: Claim) -> None:
        with suppress(JobNotFound):  # the attempt fails with a reason
            self._known.learn(claim.job)

    def _attempt(self, claim: Claim) -> None:
        held = self._held.of(claim)
        if held is not None and self._known.find(claim.job) is None:
            reason = f"The process that executes it does not know the job {claim.job!r}."
            self._runner.record_failure(held, Failed(reason, retry=False))
            return
        attempt = self._runner.begin(claim)
        if attempt is None:
            return
        try:
            outcome = self._call.make_attempt(attempt, self._runner)
        except Exception as error:  # noqa: BLE001  # each claim must get an outcome
            self._runner.fail(claim, error)
        except BaseException as error:  # noqa: BLE001  # raised by the handler, or by a signal
            # It must not end the process: a broker would deliver the message again, for ever.
            self._runner.end(attempt, self._runner.outcome_of_stop(attempt, error))
        else:
            self._runner.end(attempt, outcome)

    def _write(self, claims: Sequence[Claim]) -> None:
        """Write the outcomes of these claims, while their leases can be extended."""
        backoff = Backoff(UNWRITTEN_FIRST, UNWRITTEN_LONGEST)
        # It ends: an outcome is written or rejected, or its lease is lost.
        while left := [claim for claim in claims if self._is_unwritten(claim)]:
            try:
                if self._writer.write().size:
                    backoff.reset()
                    continue
            except StoreError as error:
                _log.debug("Outcomes wait for the database: %s", error.what)
            if all(run.is_lost for run in map(self._held.of, left) if run is not None):
                self._held.drop_all(left)
                count = count_of(len(left), "outcome")
                _log.error("%s could not be written in time.", count)
            self._is_over.wait(backoff.seconds())
        try:
            self._writer.write_logs()
        except StoreError as error:
            _log.debug("Log lines wait for the database: %s", error.what)

    def _is_unwritten(self, claim: Claim) -> bool:
        return self._held.of(claim) is not None

    # ------------------------------------------------------------ the thread

    def _watch(self) -> None:
        # It ends with the process.
        while not self._is_over.wait(min(WATCH_EVERY, self._heartbeat.pace() / 2)):
            try:
                self.watch()
            except StoreError as error:
                _log.warning("%s", error.what)
            except Exception:  # noqa: BLE001  # the next step may succeed
                _log.exception("A background task failed; retrying.")

    def watch(self) -> None:
        """Extend leases that are due, and notice cancels, timeouts and lost leases."""
        if len(self._held):
            self._heartbeat.step_if_due()
            self._heartbeat.stop_expired()
            self._runner.watch_deadlines(self._timeout_grace)
            self._core.cancels.poll()
            self._writer.write_logs()
        if self._clock.monotonic() - self._registered_at >= REGISTER_EVERY:
            self._register()

    def _register(self) -> None:
        me = self._me
        self._registered_at = self._clock.monotonic()
        self._store.beat_worker(
            WorkerRow(
                id=self._id,
                host=me.host,
                pid=me.pid,
                boot_id=me.boot_id,
                process_started=me.started,
                started_at=self._started_at,
                beat_at=self._clock.now(),
                queues=(),
                jobs=(),
                slots=1,
                running=len(self._held),
                version=self._context.version.text,
            )
        )
