"""Makes attempts in Dask workers that do not reach the database. Results return with futures.

The worker of tickwork keeps its claims: it extends their leases, waits for the future of each
attempt, and writes the outcome under its own token. So it needs no compare-and-set elsewhere, and a
result that arrives after the lease was lost is rejected like that of any late attempt. The Dask
worker gets the arguments of the run, and returns its outcome. See ADR 20.
"""

import json
import logging
import pickle
import threading
from asyncio import CancelledError
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, NoReturn

from tickwork._define.attempt_context import open_attempt
from tickwork._domain.identity import RunId
from tickwork._domain.runs.handover import handover_of
from tickwork._domain.runs.outcome import Canceled, Crashed, Failed, Interrupted, Outcome, Succeeded
from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import EngineSetup, RunningAttempt
from tickwork._engines.local.thread_caller import ThreadCaller
from tickwork._engines.local.thread_pool import ThreadPoolEngine
from tickwork._engines.log_records import RECORD_CAPTURE
from tickwork._engines.remote.dask_cluster import (
    DaskConnection,
    check_location,
    check_options,
    load_app,
)
from tickwork._engines.wire import AppLocation, AttemptRequest, LogMessage
from tickwork._kernel.clock import SystemClock
from tickwork.errors import EngineUnavailable, FlowsUnavailable, TickworkError

POLL_EVERY: Final = 0.5
UNAVAILABLE_SECONDS: Final = 2.0
"""Seconds between two polls of an attempt, and without claims after a scheduler did not answer.

A result ends the wait at once: a poll only notices that the run was canceled.
"""

READ_TIMEOUT: Final = 60.0
"""Seconds until a result that exists must have been read, because a cluster can lose it."""

LINES_MAX: Final = 1_000
"""Log lines of one attempt that return with its result, so that a result has a bounded size."""

ENGINE: Final = "dask_results"

CLOCK: Final = SystemClock()

_log: Final = logging.getLogger("tickwork.worker")


def build_engine(setup: EngineSetup) -> "DaskResultsEngine":
    """Build the engine. The option is the address of the scheduler, or arguments of a client.

    Raises:
        EngineMissing: The package ``distributed`` is not installed.
        InvalidOption: There is no address, or no module holds the application.
    """
    return DaskResultsEngine(
        setup, check_options(setup.options, ENGINE), check_location(setup.app_location(), ENGINE)
    )


class DaskResultsEngine(ThreadPoolEngine):
    """Threads, each of which waits for the future of one attempt.

    It has no slots for a moment after the scheduler did not answer.
    """

    _name = ENGINE

    def __init__(
        self, setup: EngineSetup, options: Mapping[str, Any], location: AppLocation
    ) -> None:
        super().__init__(setup)
        self._clock = setup.clock
        self._location = location
        self._add_log_line = setup.add_log_line
        self._caller = ThreadCaller(clock=setup.clock, construct=setup.construct)
        self._connection = DaskConnection(options, ENGINE)
        self._connect_lock = threading.Lock()
        self._future_by_run: dict[RunId, Any] = {}
        self._numbers = count(1)
        self._unavailable_until = 0.0

    @property
    def slots(self) -> int:
        return 0 if self._clock.monotonic() < self._unavailable_until else self._slots

    def interrupt(self) -> list[Claim]:
        claims = super().interrupt()
        for future in list(self._future_by_run.values()):
            future.cancel()  # what the cluster has not started need not start
        return claims

    def stop(self) -> None:
        super().stop()
        self._connection.close()

    def _attempt(self, claim: Claim) -> bool:
        host = self._host
        try:
            attempt = host.begin(claim)
            if attempt is None:
                return False
            host.end(attempt, self._make_remote_attempt(attempt))
        except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
            host.fail(claim, error)
            return False
        return True

    def _make_remote_attempt(self, attempt: RunningAttempt) -> Outcome:
        claim = attempt.claim
        try:
            self._future_by_run[claim.run_id] = future = self._submit(attempt)
            reply = self._wait_for(attempt, future)
        except (EngineUnavailable, CancelledError, FutureCancelled) as error:
            return self._on_unavailable(error)
        except Exception as error:  # noqa: BLE001  # of the cluster: handlers raise nothing here
            reply = DaskReply(_failure_of_cluster(error))
        finally:
            self._future_by_run.pop(claim.run_id, None)
        for line in reply.lines:
            self._add_log_line(claim.run_id, line)
        # Only this process can decide how the attempt is recorded, and its hooks must know that.
        outcome, decide = _with_exception(reply), partial(self._host.decide, attempt)
        text = outcome.result if isinstance(outcome, Succeeded) else None
        return self._caller.call_hooks(
            attempt.definition,
            attempt.ctx,
            outcome,
            decide,
            result=None if text is None else json.loads(text),
        )

    def _submit(self, attempt: RunningAttempt) -> Any:
        claim, now = attempt.claim, self._clock.now()
        request = AttemptRequest(claim, attempt.timeout, attempt.ctx.deadline, now, 0.0)
        with self._connect_lock:
            client = self._connection.connect()
        return client.submit(
            make_attempt,
            self._location.module,
            self._location.attribute,
            request,
            key=f"{handover_of(claim).external_id}#{next(self._numbers)}",
            pure=False,
            retries=0,
        )

    def _wait_for(self, attempt: RunningAttempt, future: Any) -> "DaskReply":
        # It ends with the future, or when the worker needs the outcome no longer.
        while True:
            try:
                # It waits only. result() reads together with other threads, and a timeout of one
                # would end the reads of all with an UnboundLocalError (dask/distributed#8514).
                future.exception(timeout=POLL_EVERY)
                reply: DaskReply = future.result(timeout=READ_TIMEOUT)
            except TimeoutError:
                if self._is_stopped or self._host.is_settled(attempt):
                    future.cancel()
                    raise FutureCancelled from None
                if self._connection.is_lost:
                    raise self._connection.unavailable_error(
                        ConnectionError("The connection broke.")
                    ) from None
                # Not by ctx.is_canceled(): the handler does not see the cancel, and may succeed.
                outcome = self._host.outcome_of_stop(attempt, FutureCancelled())
                if isinstance(outcome, Canceled) and self._try_drop(future):
                    return DaskReply(outcome)
            else:
                return reply

    def _try_drop(self, future: Any) -> bool:
        """Cancel a future, unless a Dask worker has it: its handler cannot be stopped."""
        client: Any = future.client
        by_worker: Mapping[str, Iterable[object]] = client.processing()
        if any(str(future.key) == str(key) for keys in by_worker.values() for key in keys):
            return False
        # In this order: a task that ends between the two answers is in the second one.
        if any(client.who_has([future]).values()):
            return False
        future.cancel()
        return True

    def _on_unavailable(self, error: BaseException) -> Outcome:
        if not self._is_stopped:
            self._unavailable_until = self._clock.monotonic() + UNAVAILABLE_SECONDS
            _log.warning("Runs wait for the engine %s: %s", ENGINE, error)
        return Interrupted("The Dask cluster lost the attempt, or the worker stopped.")


def _with_exception(reply: "DaskReply") -> Outcome:
    """The outcome, with what the handler raised in the Dask worker."""
    outcome = reply.outcome
    if reply.exception is None or not isinstance(outcome, Failed):
        return outcome
    try:
        exception = pickle.loads(reply.exception)  # noqa: S301  # the cluster executes our code anyway
    except Exception:  # noqa: BLE001  # a class may fail in any way, or not exist here
        return outcome
    is_exception = isinstance(exception, BaseException)
    return outcome._replace(exception=exception) if is_exception else outcome


def _failure_of_cluster(error: Exception) -> Outcome:
    reason = f"Dask could not execute it: {type(error).__name__}: {error}"
    # Its type cannot be imported here: a program without Dask loads this module, too.
    return Crashed(reason) if type(error).__name__ == "KilledWorker" else Failed(reason)


# ---------------------------------------------------------------- in a Dask worker


class DaskReply(NamedTuple):
    """What a Dask worker returns about an attempt."""

    outcome: Outcome
    lines: tuple[LogMessage, ...] = ()
    exception: bytes | None = None  # pickled: the cluster could not send some of them


class DetachedAttemptStore:
    """Keeps log lines. A handler that stores anything else gets an error."""

    def __init__(self) -> None:
        self.lines: list[LogMessage] = []

    def should_stop(self, claim: Claim) -> bool:  # noqa: ARG002  # the worker's claim
        return False

    def is_canceled(self, claim: Claim) -> bool:
        return self.should_stop(claim)

    def keep_line(self, claim: Claim, *, level: str, logger: str, message: str) -> None:
        if len(self.lines) < LINES_MAX:
            line = LogMessage(claim.run_id, claim.token, CLOCK.now(), level, logger, message)
            self.lines.append(line)

    def open_flow(self, claim: Claim) -> NoReturn:
        raise FlowsUnavailable(f"A step of the job {claim.job!r}", ENGINE)

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise TickworkError(
                f"{name} needs the database, which this process does not reach.",
                why=f"The job has engine={ENGINE!r}.",
                fix="Return a result instead, or use engine='dask' with workers that reach it.",
            )

        return refuse


class DaskWorkerState:
    """What the attempts in one Dask worker share."""

    lock = threading.Lock()
    is_started = False


def make_attempt(module: str, attribute: str, request: AttemptRequest) -> DaskReply:
    """Make one attempt. A Dask worker calls this."""
    app = load_app(module, attribute)
    caller = ThreadCaller(clock=CLOCK, construct=lambda: app.construct)
    with DaskWorkerState.lock:
        if not DaskWorkerState.is_started:
            RECORD_CAPTURE.start()
            app.lifecycle.call_start(caller.wait)
            DaskWorkerState.is_started = True
    claim, timeout = request.claim, request.timeout
    definition = app.registry.find(claim.job)
    if definition is None:
        reason = f"The process that executes it does not know the job {claim.job!r}."
        return DaskReply(Failed(reason, retry=False))
    store: Any = DetachedAttemptStore()
    try:
        ctx = open_attempt(definition, claim, store, request.deadline)
    except TickworkError as error:
        return DaskReply(Failed(str(error), retry=False))
    ends_at = None if timeout is None else CLOCK.monotonic() + timeout.total_seconds()
    try:
        outcome = caller.call_handler(definition, ctx, ends_at=ends_at).outcome
    except BaseException as error:  # noqa: BLE001  # SystemExit must not end the Dask worker
        outcome = Failed(ctx.mask(f"{type(error).__name__}: {error}"))
    finally:
        caller.close()
    exception = None
    if isinstance(outcome, Failed):
        exception = _pickle(outcome.exception)
        outcome = outcome._replace(exception=None)
    return DaskReply(outcome, tuple(store.lines), exception)


def _pickle(exception: BaseException | None) -> bytes | None:
    if exception is None:
        return None
    try:
        return pickle.dumps(exception)
    except Exception:  # noqa: BLE001  # an exception may hold anything
        return None
