"""Builds a worker: its services, in the order in which they start."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from tickwork._define.engine_choice import EngineRegistration
from tickwork._domain.identity import WorkerId
from tickwork._engines.contract import Engine
from tickwork._kernel.clock import StoreClock
from tickwork._kernel.durations import human_duration
from tickwork._kernel.ids import new_id
from tickwork._worker.attempt_core import AttemptCore, WorkerContext, build_core
from tickwork._worker.attempts.heartbeat import HeartbeatService
from tickwork._worker.attempts.known_jobs import COROUTINES
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import Service
from tickwork._worker.services.attempt_watch import AttemptWatch
from tickwork._worker.services.claim_capacity import EngineSlots
from tickwork._worker.services.claimer import Claimer
from tickwork._worker.services.engine_services import EngineResources, RunningAttempts
from tickwork._worker.services.lifecycle_hooks import LifecycleHooks, LoopEngine
from tickwork._worker.services.listener import NotificationService
from tickwork._worker.services.maintenance import Maintenance, sweep
from tickwork._worker.services.pump import Pump, PumpSerializer
from tickwork._worker.services.pump_threads import Pumps, PumpThread
from tickwork._worker.services.registration import Registration
from tickwork._worker.services.timer import TimerService
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork._worker.wakeup import Wakeup
from tickwork._worker.worker import Worker

_log: Final = logging.getLogger("tickwork.worker")


def build_worker(
    context: WorkerContext,
    options: WorkerOptions,
    *,
    loop: Any = None,
    beside: Sequence[Service] = (),
) -> Worker:
    """Build a worker that is ready to start. Coroutines run on ``loop``, if it is given.

    ``beside`` are services that run while it is registered.

    Raises:
        InvalidOption: A job needs an engine of which other processes must import the
            application, and they cannot.
    """
    clock, stats = context.clock, context.stats
    stats.since = clock.now() if options.missed_max else None
    worker_id = WorkerId(new_id(clock.now()))
    wakeup, timer_wakeup = Wakeup(), Wakeup()
    stop = WorkerStop(stats=stats, wakeup=wakeup, timer_wakeup=timer_wakeup)
    core = build_core(context, batch=options.batch, notify=wakeup.notify)
    core.writer.pace_jobs()
    slots_by_name = _build_slots(core, options, loop=loop)
    engine_by_name = {name: slots.engine for name, slots in slots_by_name.items()}
    engines = list(engine_by_name.values())
    threads = _build_pump_threads(
        core, list(slots_by_name.values()), worker_id, stop=stop, wakeup=wakeup, options=options
    )
    # They stop in reverse: first nothing new is claimed or fired, then attempts end, then their
    # outcomes are written, and last this process disappears from the list of workers.
    services: list[Service] = []
    services += [
        EngineResources(engine_by_name, clock=clock),
        LifecycleHooks(context.lifecycle, _find_loop_engine(engine_by_name)),
        _build_registration(core, worker_id, stop=stop, options=options),
        *beside,
        HeartbeatService(core.heartbeat, clock=clock, pace=context.known.pace_shortest),
        _build_maintenance(core, worker_id, stop=stop, wakeup=wakeup, timer_wakeup=timer_wakeup),
        AttemptWatch(
            services,
            runner=core.runner,
            engines=engines,
            pumps=threads,
            clock=clock,
            stop=stop,
            stats=stats,
            options=options,
        ),
        Pumps(
            threads,
            engines=engines,
            writer=core.writer,
            give_back=core.runner.give_back,
            clock=clock,
            stats=stats,
            wakeup=wakeup,
        ),
        RunningAttempts(
            engines,
            runner=core.runner,
            held=core.held,
            clock=clock,
            stop=stop,
            stats=stats,
            wakeup=wakeup,
            options=options,
        ),
        TimerService(
            context.build_timer(), clock=clock, stop=stop, wakeup=wakeup, own_wakeup=timer_wakeup
        ),
        *_build_listener(context, stop=stop, wakeup=wakeup, timer_wakeup=timer_wakeup),
    ]
    return Worker(
        services,
        stop=stop,
        clock=clock,
        stats=stats,
        options=options,
        find_unwritten=core.writer.find_unwritten,
    )


def _build_slots(core: AttemptCore, options: WorkerOptions, *, loop: Any) -> dict[str, EngineSlots]:
    context = core.context
    setup = core.build_setup(slots=0, loop=loop)

    def build(name: str, registration: EngineRegistration) -> EngineSlots:
        if registration.needs_import and context.known.names(name):
            context.app_location()  # fails now rather than with the first attempt
        slots: int = getattr(options, registration.slots_option)
        engine = context.build_engine(name, setup._replace(slots=slots))
        return EngineSlots(
            engine, partial(context.known.names, name), is_remote=registration.is_remote
        )

    return {
        name: build(name, registration)
        for name, registration in context.engines.items()
        if not (registration.is_remote or registration.is_optional) or context.known.names(name)
    }


def _find_loop_engine(engine_by_name: Mapping[str, Engine]) -> LoopEngine:
    engine = engine_by_name[COROUTINES]
    assert isinstance(engine, LoopEngine), engine
    return engine


def _build_registration(
    core: AttemptCore, worker_id: WorkerId, *, stop: WorkerStop, options: WorkerOptions
) -> Registration:
    context = core.context
    return Registration(
        worker_id=worker_id,
        store=context.store,
        clock=context.clock,
        known=context.known,
        held=core.held,
        registry=context.registry,
        options=options,
        stats=context.stats,
        stop=stop,
        version=context.version,
        url=context.url,
        unwritten=core.writer.find_unwritten,
    )


def _build_pump_threads(
    core: AttemptCore,
    slots: Sequence[EngineSlots],
    worker_id: WorkerId,
    *,
    stop: WorkerStop,
    wakeup: Wakeup,
    options: WorkerOptions,
) -> list[PumpThread]:
    context, serializer = core.context, PumpSerializer()
    engines = [each.engine for each in slots]

    def build(number: int) -> PumpThread:
        claimer = Claimer(
            name=f"pump-{number}",
            store=context.store,
            clock=context.clock,
            worker=worker_id,
            known=context.known,
            held=core.held,
            on_claimed=context.reporter.report_claimed,
        )
        pump = Pump(
            clock=context.clock,
            claimer=claimer,
            queues=options.queues or None,
            slots=slots,
            writer=core.writer,
            serializer=serializer,
            known=context.known,
            wakeup=wakeup,
            batch=options.batch,
            ahead=options.ahead,
            poll=options.poll,
            unwritten_max=options.unwritten_max,
            give_back=core.runner.give_back,
        )
        return PumpThread(
            pump,
            engines=engines,
            writer=core.writer,
            clock=context.clock,
            stop=stop,
            wakeup=wakeup,
            options=options,
        )

    return [build(number) for number in range(context.store.pumps_max)]


def _build_listener(
    context: WorkerContext, *, stop: WorkerStop, wakeup: Wakeup, timer_wakeup: Wakeup
) -> list[Service]:
    """Build the service that waits for notifications, if the database sends any."""
    listener = context.store.listen()
    if listener is None:
        return []
    service = NotificationService(
        listener=listener,
        clock=context.clock,
        stop=stop,
        wakeup=wakeup,
        timer_wakeup=timer_wakeup,
    )
    return [service]


def _build_maintenance(
    core: AttemptCore,
    worker_id: WorkerId,
    *,
    stop: WorkerStop,
    wakeup: Wakeup,
    timer_wakeup: Wakeup,
) -> Maintenance:
    context, clock, store = core.context, core.context.clock, core.context.store
    reaper = context.build_reaper(core.attempt_store, core.held, in_thread=True)
    pruner = context.build_pruner()

    def on_clock_step(step: timedelta) -> None:
        side = "forward" if step > timedelta(0) else "back"
        _log.warning("The clock of the database was set %s by %s.", side, human_duration(abs(step)))
        # Other workers notice it at their next measurement, and then extend their leases.
        reaper.postpone(more=store.clock_seconds)
        core.heartbeat.beat_soon()
        timer_wakeup.notify()

    def prune() -> None:
        pruner.step()

    tasks: dict[str, Callable[[], object]] = {
        "Polling for cancels": core.cancels.poll,
        "Writing logs": core.writer.write_logs,
        "Writing figures of jobs": core.writer.write_jobs,
        "Updating the catalog": context.refresh_catalog,
        "Finding jobs": context.known.discover,
        "Releasing runs of dead workers": partial(reaper.release_dead, but={worker_id}),
        "Reaping": reaper.step,
        "Sweeping": partial(sweep, store, clock),
        "Pruning history": prune,
        "Merging statistics": context.build_compactor().step,
    }
    if isinstance(clock, StoreClock):
        clock.on_step = on_clock_step
        tasks = {"Measuring the database's clock": clock.refresh, **tasks}
    return Maintenance(tasks, clock=clock, stop=stop, wakeup=wakeup, on_disconnect=reaper.postpone)
