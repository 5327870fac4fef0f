"""Who works with whom: the only place that knows every part of a worker."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from tickwork._client.catalog import Catalog
from tickwork._define.resolve import Construct
from tickwork._domain.identity import WorkerId
from tickwork._domain.lease import LEASE_DEFAULT
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.processes import ThisProcess
from tickwork._ticker.ticker import Ticker
from tickwork._upkeep.reaper import Reaper
from tickwork._worker.attempts import Attempts
from tickwork._worker.desk import HeldDesk
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.keeping import LogKeeper
from tickwork._worker.known import KnownJobs
from tickwork._worker.making import AsyncMaker, Maker
from tickwork._worker.options import WorkerOptions
from tickwork._worker.pump import Lane, Pump
from tickwork._worker.reporting import Reporter
from tickwork._worker.stats import Stats
from tickwork._worker.timer import Timer
from tickwork._worker.wake import Wake
from tickwork._worker.worker import Parts, Worker
from tickwork._worker.writer import Writer
from tickwork.engines.asyncio_ import AsyncEngine, attempt_on_loop
from tickwork.engines.inline import InlineEngine
from tickwork.engines.threads import ThreadEngine
from tickwork.events.bus import EventBus
from tickwork.stores.contract import Store, WorkerRow

SWEEP_MAX: Final = 500
VERSION: Final = "0.1.0"


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
) -> Worker:
    """A worker that is ready to start."""
    me, worker_id = ThisProcess.look(), WorkerId(new_id(clock.now()))
    wake, timer_wake, held = Wake(), Wake(), HeldRuns()
    reporter = Reporter(bus=bus, stats=stats)
    writer = Writer(
        store=store, clock=clock, held=held, reporter=reporter, keeper=keeper, batch=options.batch
    )
    attempts = Attempts(
        clock=clock, desk=HeldDesk(store=store, clock=clock, held=held), bus=bus, find=known.find
    )
    maker = Maker(
        clock=clock,
        attempts=attempts,
        held=held,
        writer=writer,
        engine=lambda: InlineEngine(clock=clock, construct=construct),
    )
    threads = ThreadEngine(
        slots=options.threads, make=maker.make, call=wake.call, done=writer.done.__len__
    )
    loop_maker = AsyncMaker(
        attempts=attempts,
        held=held,
        writer=writer,
        attempt=lambda *told: attempt_on_loop(*told, construct=construct()),
        stop=lambda run_id: loop.cancel(run_id),  # noqa: PLW0108  # it is made below
    )
    loop = AsyncEngine(
        slots=options.coroutines, make=loop_maker.make, call=wake.call, done=writer.done.__len__
    )
    lanes = [
        Lane(threads, partial(known.names, is_async=False), lambda: maker.mean.seconds),
        Lane(loop, partial(known.names, is_async=True), lambda: loop_maker.mean.seconds),
    ]
    reaper = Reaper(store=store, clock=clock, crashes_max=known.crashes_max, me=me)
    started_at = clock.now()

    def upkeep() -> bool:
        catalog.refresh()
        known.look()
        reaper.release_dead(but={worker_id})
        taken_back = reaper.reap()
        reporter.recorded(taken_back, lost=(), at=clock.now())
        return bool(taken_back) | bool(store.sweep(now=clock.now(), limit=SWEEP_MAX))

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
                version=VERSION,
            )
        )

    def lease_of(job: str) -> timedelta:
        return known.lease_by_job().get(job, LEASE_DEFAULT.length)

    def watch() -> bool:
        """Tell what took too long; whether one has ignored that for too long."""
        now, grace = clock.monotonic(), options.timeout_grace.total_seconds()
        for run in held.snapshot():
            if run.deadline is not None and now >= run.deadline:
                run.is_canceled = True
                if now >= run.deadline + grace:
                    stats.is_stuck = True
        return stats.is_stuck

    parts = Parts(
        clock=clock,
        options=options,
        engines=[threads, loop],
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
                known=known,
                wake=wake,
                batch=options.batch,
                ahead=options.ahead,
            )
            for number in range(pumps)
        ],
        writer=writer,
        held=held,
        heartbeat=Heartbeat(store=store, held=held, clock=clock, lease_of=lease_of),
        timer=Timer(
            store=store,
            clock=clock,
            tick=ticker.tick,
            next_firing_at=ticker.next_at,
            reporter=reporter,
        ),
        upkeep=upkeep,
        register=register,
        leave=lambda: store.remove_worker(worker_id),
        give_back=maker.give_back,
        watch=watch,
        listener=store.listen(),
        wake=wake,
        timer_wake=timer_wake,
    )
    return Worker(parts)
