"""What makes attempts at claimed runs: the same for a worker, a single pass, a remote process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from tickwork._define.definition import Definition
from tickwork._define.engine_choice import EngineRegistration, load_function
from tickwork._define.registry import Registry
from tickwork._dispatch.callbacks import Callbacks
from tickwork._domain.identity import RunId
from tickwork._domain.runs.retention import Retention
from tickwork._domain.runs.transitions import Transition
from tickwork._domain.worker_version import WorkerVersion
from tickwork._engines.contract import Engine, EngineSetup
from tickwork._engines.local.thread_caller import WaitFor
from tickwork._engines.wire import AppLocation, LogMessage
from tickwork._handlers.context import AttemptStore
from tickwork._handlers.handlers import Construct
from tickwork._handlers.lifecycle import Lifecycle
from tickwork._kernel.clock import Clock
from tickwork._kernel.processes import ThisProcess
from tickwork._stores.contract import LogLine, Store
from tickwork._worker.attempts.attempt_runner import AttemptRunner
from tickwork._worker.attempts.attempt_store import (
    DecodeResult,
    HeldAttemptStore,
    PlanRun,
    PolledAttemptStore,
    RowAttemptStore,
)
from tickwork._worker.attempts.cancel_poller import CancelPoller
from tickwork._worker.attempts.crash_hooks import CallHooks, CrashHooks
from tickwork._worker.attempts.handovers import HandoverTracker
from tickwork._worker.attempts.heartbeat import Heartbeat
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.known_jobs import KnownJobs
from tickwork._worker.attempts.log_capture import LogCapture
from tickwork._worker.attempts.reporter import Reporter
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.attempts.writer import Writer
from tickwork._worker.services.pruner import Pruner
from tickwork._worker.services.reaper import Reaper
from tickwork._worker.services.rollup_compactor import RollupCompactor
from tickwork._worker.services.timer import Timer
from tickwork.events.bus import EventBus


class SteppedEngine(Engine, Protocol):
    """An engine that makes attempts in the thread of its caller."""

    def run_next(self) -> bool:
        """Make the next attempt; False when there is none."""
        ...


class BuildInlineEngine(Protocol):
    def __call__(
        self,
        setup: EngineSetup,
        *,
        while_waiting: Callable[[], object] | None,
        find_wait: Callable[[], WaitFor | None],
    ) -> SteppedEngine:
        """Build the engine of a single pass."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What all that execute the runs of one application share."""

    store: Store
    clock: Clock
    registry: Registry
    known: KnownJobs
    bus: EventBus
    stats: Stats
    reporter: Reporter
    log_capture: LogCapture
    engines: Mapping[str, EngineRegistration]
    engine_options: Mapping[str, Any]
    build_inline: BuildInlineEngine
    call_hooks: CallHooks
    construct: Callable[[], Construct]
    app_location: Callable[[], AppLocation]
    refresh_catalog: Callable[[], object]
    plan_run: PlanRun
    find_callbacks: Callable[[], Callbacks]
    decode_result: DecodeResult
    lifecycle: Lifecycle
    version: WorkerVersion
    url: str
    retention: Retention
    retire_after: timedelta

    def build_timer(self) -> Timer:
        return Timer(
            store=self.store,
            clock=self.clock,
            specs=self.known.specs,
            reporter=self.reporter,
            retire_after=self.retire_after,
        )

    def build_pruner(self) -> Pruner:
        return Pruner(
            store=self.store,
            clock=self.clock,
            specs=self.known.specs,
            default=self.retention,
            retire_after=self.retire_after,
        )

    def build_compactor(self) -> RollupCompactor:
        return RollupCompactor(self.store, self.clock)

    def build_row_store(self) -> RowAttemptStore:
        """Build where handlers in a child process save their progress."""
        return RowAttemptStore(
            store=self.store,
            clock=self.clock,
            plan_run=self.plan_run,
            find_callbacks=self.find_callbacks,
            decode_result=self.decode_result,
            version=self.version.application,
        )

    def build_reaper(self, store: AttemptStore, held: HeldRuns, *, in_thread: bool) -> Reaper:
        hooks = CrashHooks(
            find=self.known.find, store=store, call_hooks=self.call_hooks, in_thread=in_thread
        )

        def on_reaped(transitions: Sequence[Transition]) -> None:
            self.reporter.report_written(transitions, at=self.clock.now())
            hooks.call(transitions)

        return Reaper(
            store=self.store,
            clock=self.clock,
            crashes_max=self.known.crashes_max,
            grace=self.known.pace_longest,
            me=ThisProcess.current(),
            is_held=held.is_held,
            on_reaped=on_reaped,
        )

    def build_engine(self, name: str, setup: EngineSetup) -> Engine:
        own = setup._replace(options=self.engine_options.get(name))
        engine: Engine = load_function(self.engines[name].factory)(own)
        return engine

    def add_log_line(self, run_id: RunId, message: LogMessage) -> None:
        self.log_capture.add(
            run_id, LogLine(message.at, message.level, message.logger, message.message)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCore:
    """Holds claims, extends their leases, makes attempts and writes their outcomes."""

    context: WorkerContext
    held: HeldRuns
    heartbeat: Heartbeat
    cancels: CancelPoller
    attempt_store: HeldAttemptStore
    writer: Writer
    runner: AttemptRunner

    def build_setup(self, *, slots: int, loop: Any = None) -> EngineSetup:
        """Build what an engine gets that makes these attempts."""
        context = self.context
        return EngineSetup(
            host=self.runner,
            clock=context.clock,
            slots=slots,
            construct=context.construct,
            app_location=context.app_location,
            add_log_line=context.add_log_line,
            loop=loop,
            handovers=HandoverTracker(
                store=context.store, clock=context.clock, held=self.held, bus=context.bus
            ),
        )


def build_core(
    context: WorkerContext,
    *,
    batch: int,
    held: HeldRuns | None = None,
    is_polled: bool = False,
    find: Callable[[str], Definition | None] | None = None,
    notify: Callable[[], None] = lambda: None,
) -> AttemptCore:
    """Build the parts that belong together.

    ``is_polled`` means that no other thread watches the claims: each check by a handler reads the
    row. ``held`` may be shared by cores that one heartbeat serves. ``notify`` is called when
    outcomes wait, or slots are free.
    """
    store, clock = context.store, context.clock
    held = HeldRuns() if held is None else held
    heartbeat = Heartbeat(store=store, held=held, clock=clock, lease_of=context.known.lease_of)
    shared: dict[str, Any] = {
        "store": store,
        "clock": clock,
        "held": held,
        "plan_run": context.plan_run,
        "find_callbacks": context.find_callbacks,
        "decode_result": context.decode_result,
        "log_capture": context.log_capture,
        "version": context.version.application,
    }
    attempt_store = (
        PolledAttemptStore(heartbeat=heartbeat, **shared)
        if is_polled
        else HeldAttemptStore(**shared)
    )
    writer = Writer(
        store=store,
        clock=clock,
        held=held,
        reporter=context.reporter,
        log_capture=context.log_capture,
        batch=batch,
    )
    runner = AttemptRunner(
        clock=clock,
        store=attempt_store,
        bus=context.bus,
        find=find or context.known.find,
        held=held,
        writer=writer,
        notify=notify,
    )
    return AttemptCore(
        context=context,
        held=held,
        heartbeat=heartbeat,
        cancels=CancelPoller(store=store, held=held, clock=clock),
        attempt_store=attempt_store,
        writer=writer,
        runner=runner,
    )
