"""Who works with whom: the only place that knows every part of a worker."""

from collections.abc import Callable
from functools import partial
from typing import Final

from tickwork._client.catalog import Catalog
from tickwork._define.handlers import Construct
from tickwork._domain.identity import WorkerId
from tickwork._kernel.clock import Clock, StoreClock
from tickwork._kernel.ids import new_id
from tickwork._kernel.processes import ThisProcess
from tickwork._kernel.version import VERSION
from tickwork._kernel.zonedata import marked
from tickwork._ticker.ticker import Ticker
from tickwork._upkeep.reaper import Reaper
from tickwork._upkeep.upkeep import Part, Upkeep
from tickwork._worker.attempts import Attempts
from tickwork._worker.cancels import Cancels
from tickwork._worker.crashes import CrashHooks
from tickwork._worker.desk import HeldDesk
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.keeping import LogKeeper
from tickwork._worker.known import KnownJobs, LaneName
from tickwork._worker.making import AsyncMaker, Hands, Maker, ProcessMaker
from tickwork._worker.options import WorkerOptions
from tickwork._worker.pump import Lane, Pump, Turns
from tickwork._worker.reporting import Reporter
from tickwork._worker.stats import Stats
from tickwork._worker.timer import Timer
from tickwork._worker.wake import Wake
from tickwork._worker.worker import Parts, Worker
from tickwork._worker.writer import Writer
from tickwork.engines.asyncio_ import AsyncEngine, attempt_on_loop
from tickwork.engines.inline import InlineEngine
from tickwork.engines.processes import (
    ChildAttempts,
    Children,
    ProcessEngine,
    call_after_hooks,
)
from tickwork.engines.threads import ThreadEngine
from tickwork.engines.wire import Origin
from tickwork.events.bus import EventBus
from tickwork.stores.contract import LogLine, Store, WorkerRow

SWEEP_MAX: Final = 500


def assembled(
    *,
    store: Store,
    clock: Clock,
    known: KnownJobs,
    catalog: Catalog,
    ticker: Ticker,
    bus: EventBus,
    keeper: LogKeeper,
    construct: Callable[[], Construct],
    options: WorkerOptions,
    stats: Stats,
    pumps: int,
    origin: Callable[[], Origin],
) -> Worker:
    """A worker that is ready to start."""
    me, worker_id = ThisProcess.current(), WorkerId(new_id(clock.now()))
    wake, timer_wake, held = Wake(), Wake(), HeldRuns()
    reporter = Reporter(bus=bus, stats=stats)
    writer = Writer(
        store=store, clock=clock, held=held, reporter=reporter, keeper=keeper, batch=options.batch
    )
    desk = HeldDesk(store=store, clock=clock, held=held)
    attempts = Attempts(clock=clock, desk=desk, bus=bus, find=known.find)
    hands = Hands(clock=clock, attempts=attempts, held=held, writer=writer)
    maker = Maker(hands, engine=lambda: InlineEngine(clock=clock, construct=construct))
    threads = ThreadEngine(
        slots=options.threads,
        make=maker.make,
        call=wake.call,
        done=writer.done.__len__,
        is_quick=lambda: maker.means.all.is_quick,
    )
    loop_maker = AsyncMaker(
        hands,
        attempt=lambda *told: attempt_on_loop(*told, construct=construct()),
        stop=lambda claim: loop.cancel(claim),  # noqa: PLW0108  # it is made below
    )
    loop = AsyncEngine(
        slots=options.coroutines, make=loop_maker.make, call=wake.call, done=writer.done.__len__
    )
    lanes = [
        Lane(threads, partial(known.names, LaneName.THREADS), maker.means),
        Lane(loop, partial(known.names, LaneName.LOOP), loop_maker.means),
    ]
    if known.names(LaneName.PROCESSES):
        origin()  # should nobody find the application, it is said at the start
    children = Children(origin)
    process_maker = ProcessMaker(
        hands,
        attempt=ChildAttempts(
            children, clock=clock, keep=lambda run_id, line: keeper.keep(run_id, LogLine(*line))
        ),
    )
    processes = ProcessEngine(
        ThreadEngine(
            slots=options.processes,
            make=process_maker.make,
            call=wake.call,
            done=writer.done.__len__,
        ),
        children,
    )
    lanes.append(Lane(processes, partial(known.names, LaneName.PROCESSES), process_maker.means))
    reaper = Reaper(
        store=store,
        clock=clock,
        crashes_max=known.crashes_max,
        patience=known.pace_longest,
        me=me,
    )
    started_at = clock.now()
    stats.since = started_at if options.missed_max else None

    crash_hooks = CrashHooks(find=known.find, desk=desk, hooks=call_after_hooks)

    def reap() -> bool:
        taken_back = reaper.reap()
        reporter.recorded(taken_back, lost=(), at=clock.now())
        crash_hooks.call(taken_back)
        return bool(taken_back)

    def came_back() -> None:
        if isinstance(clock, StoreClock):
            clock.forget()  # it may be another server

    upkeep = Upkeep(
        [
            Part(
                "The look at the clock", clock.keep if isinstance(clock, StoreClock) else _nothing
            ),
            Part("The look for cancels", Cancels(store=store, held=held, clock=clock).look),
            Part("The log", writer.keep_log),
            Part("The catalog", catalog.refresh),
            Part("The look for jobs", known.look),
            Part("The look for dead workers", partial(reaper.release_dead, but={worker_id})),
            Part("The reaper", reap),
            Part("The sweeper", lambda: store.sweep(now=clock.now(), limit=SWEEP_MAX)),
        ],
        clock=clock,
    )

    def register(running: int) -> None:
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
                slots=options.threads,
                running=running,
                version=marked(VERSION),
            )
        )

    def watch() -> bool:
        stats.is_stuck = hands.watch(options.timeout_grace) or stats.is_stuck
        stats.is_behind = stats.is_behind or 0 < options.missed_max <= stats.missed
        return stats.is_stuck or stats.is_behind

    turns = Turns()
    parts = Parts(
        clock=clock,
        options=options,
        engines=[threads, loop, processes],
        pumps=[
            Pump(
                name=f"pump-{number}",
                store=store,
                clock=clock,
                worker=worker_id,
                queues=options.queues or None,
                lanes=lanes,
                held=held,
                writer=writer,
                turns=turns,
                known=known,
                wake=wake,
                batch=options.batch,
                ahead=options.ahead,
                poll=options.poll,
                unwritten_max=options.unwritten_max,
                give_back=hands.give_back,
                came_back=came_back,
            )
            for number in range(pumps)
        ],
        writer=writer,
        held=held,
        heartbeat=Heartbeat(store=store, held=held, clock=clock, lease_of=known.lease_of),
        beat_pace=known.pace_shortest,
        timer=Timer(
            store=store,
            clock=clock,
            tick=ticker.tick,
            next_firing_at=ticker.next_at,
            reporter=reporter,
        ),
        upkeep=upkeep.step,
        was_away=reaper.was_away,
        register=register,
        leave=lambda: store.remove_worker(worker_id),
        give_back=hands.give_back,
        leaving=hands.leave,
        watch=watch,
        nudge=threads.nudge,
        listener=store.listen(),
        wake=wake,
        timer_wake=timer_wake,
    )
    return Worker(parts)


def _nothing() -> None:
    pass
