"""Builds a worker, and the single passes of ``run()``, from a store and registered engines."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from tickwork._define.context import AttemptStore
from tickwork._define.definition import Definition
from tickwork._define.engine_choice import EngineRegistration, load_function
from tickwork._define.handlers import Construct
from tickwork._define.lifecycle import Lifecycle
from tickwork._domain.identity import RunId, WorkerId, drain_lock_of
from tickwork._domain.retention import Retention
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import Clock, StoreClock
from tickwork._kernel.durations import human_duration
from tickwork._kernel.ids import new_id
from tickwork._kernel.processes import ThisProcess, read_memory
from tickwork._worker.attempt_runner import AttemptRunner
from tickwork._worker.attempt_store import HeldAttemptStore, PlanRun, PolledAttemptStore
from tickwork._worker.cancel_poller import CancelPoller
from tickwork._worker.claimer import Claimer
from tickwork._worker.crash_hooks import CallHooks, CrashHooks
from tickwork._worker.handovers import HandoverTracker
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held_runs import HeldRuns
from tickwork._worker.known_jobs import COROUTINES, FUNCTIONS, KnownJobs, engine_of
from tickwork._worker.log_capture import LogCapture
from tickwork._worker.maintenance import maintain, sweep
from tickwork._worker.options import BATCH_MAX, WorkerOptions
from tickwork._worker.pruner import Pruner
from tickwork._worker.pump import Lane, Pump, PumpSerializer
from tickwork._worker.reaper import Reaper
from tickwork._worker.remote_worker import AttemptCaller, RemoteWorker
from tickwork._worker.reporter import Reporter
from tickwork._worker.single_pass import PassParts, SinglePass, SteppedEngine
from tickwork._worker.ticker import Ticker
from tickwork._worker.timer import Timer
from tickwork._worker.wakeup import Wakeup
from tickwork._worker.worker import Worker, WorkerParts
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine, EngineHost, EngineSetup
from tickwork.engines.wire import AppLocation, LogMessage
from tickwork.events.bus import EventBus
from tickwork.stores.contract import LogLine, Store, WorkerRow

_log: Final = logging.getLogger("tickwork.worker")

InlineFactory = Callable[[EngineSetup, Callable[[], object] | None], SteppedEngine]


STOP_HOOK_SECONDS: Final = 10.0
"""How long a coroutine of ``on_worker_stop`` may take."""


@runtime_checkable
class LoopEngine(Protocol):
    """The engine of coroutines."""

    def wait(self, awaitable: Awaitable[Any], seconds: float | None = None) -> Any:
        """Run an awaitable on the loop of the handlers, and return its result."""
        ...


class WorkerContext(NamedTuple):
    """What a worker and the single passes of one application share."""

    store: Store
    clock: Clock
    known: KnownJobs
    ticker: Ticker
    bus: EventBus
    reporter: Reporter
    log_capture: LogCapture
    engines: Mapping[str, EngineRegistration]
    engine_options: Mapping[str, Any]
    inline: InlineFactory
    call_hooks: CallHooks
    construct: Callable[[], Construct]
    app_location: Callable[[], AppLocation]
    refresh_catalog: Callable[[], object]
    plan_run: PlanRun
    lifecycle: Lifecycle
    version: str
    retention: Retention
    retire_after: timedelta

    def build_pruner(self) -> Pruner:
        return Pruner(
            store=self.store,
            clock=self.clock,
            specs=self.known.specs,
            default=self.retention,
            retire_after=self.retire_after,
        )

    def build_timer(self) -> Timer:
        return Timer(
            store=self.store,
            clock=self.clock,
            tick=self.ticker.tick,
            next_firing_at=self.ticker.next_at,
            reporter=self.reporter,
        )

    def build_reaper(self, store: AttemptStore, *, in_thread: bool) -> Reaper:
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
            on_reaped=on_reaped,
        )

    def build_heartbeat(self, held: HeldRuns) -> Heartbeat:
        return Heartbeat(
            store=self.store, held=held, clock=self.clock, lease_of=self.known.lease_of
        )

    def build_writer(self, held: HeldRuns, *, batch: int) -> Writer:
        return Writer(
            store=self.store,
            clock=self.clock,
            held=held,
            reporter=self.reporter,
            log_capture=self.log_capture,
            batch=batch,
        )

    def build_engine_setup(self, host: EngineHost, held: HeldRuns, *, slots: int) -> EngineSetup:
        return EngineSetup(
            host=host,
            clock=self.clock,
            slots=slots,
            handovers=HandoverTracker(store=self.store, clock=self.clock, held=held, bus=self.bus),
            construct=self.construct,
            app_location=self.app_location,
            add_log_line=self._add_log_line,
        )

    def _add_log_line(self, run_id: RunId, message: LogMessage) -> None:
        self.log_capture.add(
            run_id, LogLine(message.at, message.level, message.logger, message.message)
        )


def build_worker(context: WorkerContext, options: WorkerOptions, *, loop: Any = None) -> Worker:
    """Build a worker that is ready to start. Coroutines run on ``loop``, if it is given.

    Raises:
        InvalidOption: A job needs an engine of which other processes must import the
            application, and they cannot.
    """
    store, clock, known = context.store, context.clock, context.known
    stats = context.reporter.stats
    attempts_before = stats.attempts
    me, worker_id = ThisProcess.current(), WorkerId(new_id(clock.now()))
    wakeup, timer_wakeup, held = Wakeup(), Wakeup(), HeldRuns()
    writer = context.build_writer(held, batch=options.batch)
    attempt_store = HeldAttemptStore(
        store=store,
        clock=clock,
        held=held,
        plan_run=context.plan_run,
        log_capture=context.log_capture,
    )
    runner = AttemptRunner(
        clock=clock,
        store=attempt_store,
        bus=context.bus,
        find=known.find,
        held=held,
        writer=writer,
        notify=wakeup.notify,
    )
    setup = context.build_engine_setup(runner, held, slots=0)._replace(loop=loop)
    lane_by_name = {
        name: _build_lane(context, setup, name, registration, options)
        for name, registration in context.engines.items()
        if not (registration.is_remote or registration.is_optional) or known.names(name)
    }
    lanes = list(lane_by_name.values())
    coroutines = lane_by_name[COROUTINES].engine
    assert isinstance(coroutines, LoopEngine), coroutines
    reaper = context.build_reaper(attempt_store, in_thread=True)
    started_at = clock.now()
    stats.since = started_at if options.missed_max else None

    heartbeat = context.build_heartbeat(held)

    def on_clock_step(step: timedelta) -> None:
        side = "forward" if step > timedelta(0) else "back"
        _log.warning("The clock of the database was set %s by %s.", side, human_duration(abs(step)))
        # Other workers notice it at their next measurement, and then extend their leases.
        reaper.postpone(more=store.clock_seconds)
        heartbeat.beat_soon()
        timer_wakeup.notify()

    if isinstance(clock, StoreClock):
        clock.on_step = on_clock_step

    pruner = context.build_pruner()

    def prune() -> None:
        pruner.step()

    def on_reconnect() -> None:
        if isinstance(clock, StoreClock):
            clock.forget()  # it may be another server, with another time

    tasks: dict[str, Callable[[], object]] = {
        "Measuring the database's clock": _clock_keeper(clock),
        "Polling for cancels": CancelPoller(store=store, held=held, clock=clock).poll,
        "Writing logs": writer.write_logs,
        "Updating the catalog": context.refresh_catalog,
        "Finding jobs": known.discover,
        "Releasing runs of dead workers": partial(reaper.release_dead, but={worker_id}),
        "Reaping": reaper.step,
        "Sweeping": partial(sweep, store, clock),
        "Pruning history": prune,
    }

    drain_lock = drain_lock_of(worker_id)

    def is_drain_requested() -> bool:
        request = store.get_lock(drain_lock)
        return request is not None and request.until > clock.now()

    def unregister() -> None:
        store.remove_worker(worker_id)
        if stats.is_drained:
            store.release_lock(drain_lock)

    def register(running: int, is_stopping: bool) -> None:  # noqa: FBT001  # see WorkerParts
        store.beat_worker(
            WorkerRow(
                id=worker_id,
                host=me.host,
                pid=me.pid,
                boot_id=me.boot_id,
                process_started=me.started,
                started_at=started_at,
                beat_at=clock.now(),
                queues=options.queues or None,
                jobs=known.names(),
                slots=0 if is_stopping else options.threads,
                running=running,
                version=context.version,
            )
        )

    def should_stop() -> bool:
        stats.is_stuck = runner.watch_deadlines(options.timeout_grace) or stats.is_stuck
        stats.is_behind = stats.is_behind or 0 < options.missed_max <= stats.missed
        stats.is_used_up = stats.is_used_up or is_used_up()
        return stats.is_stuck or stats.is_behind or stats.is_used_up

    def is_used_up() -> bool:
        if 0 < options.runs_max <= stats.attempts - attempts_before:
            _log.info(
                "The worker has made %d attempts. It stops, to be replaced.",
                stats.attempts - attempts_before,
            )
            return True
        if 0 < options.memory_max < (used := read_memory()):
            _log.info("The worker uses %d MB of memory. It stops, to be replaced.", used // 2**20)
            return True
        return False

    serializer = PumpSerializer()
    pumps = [
        Pump(
            name=name,
            clock=clock,
            claimer=Claimer(
                name=name,
                store=store,
                clock=clock,
                worker=worker_id,
                known=known,
                held=held,
                on_claimed=context.reporter.report_claimed,
            ),
            queues=options.queues or None,
            lanes=lanes,
            held=held,
            writer=writer,
            serializer=serializer,
            known=known,
            wakeup=wakeup,
            batch=options.batch,
            ahead=options.ahead,
            poll=options.poll,
            unwritten_max=options.unwritten_max,
            give_back=runner.give_back,
            on_reconnect=on_reconnect,
        )
        for name in (f"pump-{number}" for number in range(store.pumps_max))
    ]
    return Worker(
        WorkerParts(
            clock=clock,
            options=options,
            engines=[lane.engine for lane in lanes],
            runner=runner,
            pumps=pumps,
            writer=writer,
            held=held,
            heartbeat=heartbeat,
            beat_pace=known.pace_shortest,
            timer=context.build_timer(),
            maintain=partial(maintain, tasks),
            on_disconnect=reaper.postpone,
            register=register,
            unregister=unregister,
            is_drain_requested=is_drain_requested,
            stats=stats,
            should_stop=should_stop,
            listener=store.listen(),
            wakeup=wakeup,
            timer_wakeup=timer_wakeup,
            call_start_hooks=partial(context.lifecycle.call_start, coroutines.wait),
            call_stop_hooks=partial(
                context.lifecycle.call_stop, partial(coroutines.wait, seconds=STOP_HOOK_SECONDS)
            ),
        )
    )


def _build_lane(
    context: WorkerContext,
    setup: EngineSetup,
    name: str,
    registration: EngineRegistration,
    options: WorkerOptions,
) -> Lane:
    if registration.needs_import and context.known.names(name):
        context.app_location()  # fails now rather than with the first attempt
    slots: int = getattr(options, registration.slots_option)
    own = setup._replace(slots=slots, options=context.engine_options.get(name))
    engine: Engine = load_function(registration.factory)(own)
    return Lane(engine, partial(context.known.names, name), is_remote=registration.is_remote)


def _clock_keeper(clock: Clock) -> Callable[[], object]:
    return clock.refresh if isinstance(clock, StoreClock) else lambda: None


def build_pass_parts(context: WorkerContext, *, on_claimed: Callable[[], None]) -> PassParts:
    """Build what all passes of an application share."""
    held = HeldRuns()
    heartbeat = context.build_heartbeat(held)
    store = PolledAttemptStore(
        store=context.store,
        clock=context.clock,
        held=held,
        heartbeat=heartbeat,
        plan_run=context.plan_run,
        log_capture=context.log_capture,
    )
    return PassParts(
        store=context.store,
        clock=context.clock,
        known=context.known,
        timer=context.build_timer(),
        next_firing_at=context.ticker.next_at,
        reaper=context.build_reaper(store, in_thread=False),
        reporter=context.reporter,
        held=held,
        heartbeat=heartbeat,
        attempt_store=store,
        on_claimed=on_claimed,
    )


def build_single_pass(
    context: WorkerContext,
    parts: PassParts,
    *,
    options: WorkerOptions,
    has_threads: bool,
    find: Callable[[str], Definition | None],
) -> SinglePass:
    """Build a pass with engines of its own.

    Without ``has_threads`` every attempt happens in the calling thread: a test moves the clock, or
    all of it happens in a transaction of the caller.
    """
    writer = context.build_writer(parts.held, batch=BATCH_MAX)
    notified = Event()
    runner = AttemptRunner(
        clock=context.clock,
        store=parts.attempt_store,
        bus=context.bus,
        find=find,
        held=parts.held,
        writer=writer,
        notify=notified.set,
    )
    setup = context.build_engine_setup(runner, parts.held, slots=1)
    engines: dict[str, Engine] = {}

    def find_engine(job: str) -> Engine | None:
        """Return the engine of a job that chose one. Other jobs run inline."""
        definition = context.known.find(job)
        name = FUNCTIONS if definition is None else engine_of(definition)
        if not has_threads or name in {FUNCTIONS, COROUTINES}:
            return None
        if name not in engines:
            own = setup._replace(options=context.engine_options.get(name))
            engines[name] = load_function(context.engines[name].factory)(own)
            engines[name].start()
        return engines[name]

    def watch() -> None:
        single_pass.watch()

    def stop_engines() -> None:
        for engine in [inline, *engines.values()]:
            engine.stop()

    inline = context.inline(setup, watch if has_threads else None)
    single_pass = SinglePass(
        parts,
        claimer=Claimer(
            name="pass",
            store=context.store,
            clock=context.clock,
            worker=WorkerId(new_id(context.clock.now())),
            known=context.known,
            held=parts.held,
            on_claimed=context.reporter.report_claimed,
        ),
        writer=writer,
        runner=runner,
        inline=inline,
        engine_of=find_engine,
        notified=notified,
        timeout_grace=options.timeout_grace,
        stop_engines=stop_engines,
    )
    return single_pass


def build_remote_worker(context: WorkerContext, call: AttemptCaller) -> RemoteWorker:
    """Build what executes runs in a process of a remote engine."""
    held, options = HeldRuns(), WorkerOptions()
    writer = context.build_writer(held, batch=options.batch)
    store = HeldAttemptStore(
        store=context.store,
        clock=context.clock,
        held=held,
        plan_run=context.plan_run,
        log_capture=context.log_capture,
    )
    return RemoteWorker(
        store=context.store,
        clock=context.clock,
        known=context.known,
        held=held,
        heartbeat=context.build_heartbeat(held),
        runner=AttemptRunner(
            clock=context.clock,
            store=store,
            bus=context.bus,
            find=context.known.find,
            held=held,
            writer=writer,
        ),
        writer=writer,
        reaper=context.build_reaper(store, in_thread=False),
        log_capture=context.log_capture,
        call=call,
        lifecycle=context.lifecycle,
        timeout_grace=options.timeout_grace,
        version=context.version,
    )
