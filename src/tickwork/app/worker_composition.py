"""The composition root of the worker half: everything that fires schedules and executes runs.

A process that only dispatches never imports this module.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tickwork._dispatch.callbacks import Callbacks
from tickwork._domain.runs.run import NewRun
from tickwork._domain.worker_version import WorkerVersion
from tickwork._engines.local.inline import InlineEngine
from tickwork._engines.local.thread_caller import ThreadCaller
from tickwork._engines.wire import AppLocation, ProcessRole
from tickwork._handlers.handlers import Construct
from tickwork._kernel.clock import Clock
from tickwork._kernel.import_location import find_import_location
from tickwork._kernel.version import VERSION
from tickwork._kernel.zonedata import read_zone_version
from tickwork._stores.contract import Store
from tickwork._watch.alert_recorder import AlertRecorder
from tickwork._watch.watcher import AlertService, Watcher
from tickwork._worker.attempt_core import WorkerContext
from tickwork._worker.attempts.attempt_store import DecodeResult, PlanRun
from tickwork._worker.attempts.known_jobs import KnownJobs
from tickwork._worker.attempts.log_capture import LogCapture
from tickwork._worker.attempts.reporter import Reporter
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.build import build_worker
from tickwork._worker.options import WorkerOptions, worker_options
from tickwork._worker.remote_worker import RemoteWorker
from tickwork._worker.worker import Worker
from tickwork.app.application import Application
from tickwork.errors import InvalidOption, TickworkError


def build_context(
    app: Application,
    *,
    store: Store,
    clock: Clock,
    refresh_catalog: Callable[[], object],
    plan_run: PlanRun,
    find_callbacks: Callable[[], Callbacks],
    decode_result: DecodeResult,
    on_follow_ups: Callable[[Sequence[NewRun]], None],
) -> WorkerContext:
    """Build what workers, single passes and remote processes of an application share."""

    def get_construct() -> Construct:
        return app.construct

    stats = Stats()
    return WorkerContext(
        store=store,
        clock=clock,
        registry=app.registry,
        known=KnownJobs(store=store, registry=app.registry),
        bus=app.events,
        stats=stats,
        reporter=Reporter(bus=app.events, stats=stats, on_follow_ups=on_follow_ups),
        log_capture=LogCapture(),
        engines=app.engines,
        engine_options=app.engine_options,
        build_inline=InlineEngine,
        call_hooks=ThreadCaller(clock=clock, construct=get_construct).call_hooks,
        construct=get_construct,
        app_location=partial(find_app_location, app),
        refresh_catalog=refresh_catalog,
        plan_run=plan_run,
        find_callbacks=find_callbacks,
        decode_result=decode_result,
        lifecycle=app.lifecycle,
        version=WorkerVersion(VERSION, app.settings.version, read_zone_version()),
        url=app.settings.url,
        retention=app.registry.defaults.retention,
        retire_after=app.settings.retire_after,
    )


def build_background_worker(
    context: WorkerContext,
    options: WorkerOptions | None,
    changes: Mapping[str, Any],
    *,
    loop: Any = None,
    recorder: AlertRecorder,
    watcher: Watcher | None = None,
) -> Worker:
    """Build a worker that is ready to start.

    Beside it, ``recorder`` keeps the history of alerts, and ``watcher`` raises alerts.

    Raises:
        TickworkError: This is a child process of another worker.
    """
    if ProcessRole.is_child:
        raise TickworkError(
            "A child process of a worker cannot start a worker.",
            why="The module of the application starts a worker when it is imported.",
            fix='Put the start below `if __name__ == "__main__":`.',
        )
    context.refresh_catalog()
    context.known.discover()
    chosen = options or worker_options(**changes)
    for queue in chosen.queues:
        context.registry.check_queue(queue)
    watching = [] if watcher is None else [AlertService(watcher, clock=context.clock)]
    return build_worker(context, chosen, loop=loop, beside=[recorder, *watching])


def build_remote_worker(context: WorkerContext) -> RemoteWorker:
    """Build what executes runs in a process of a remote engine."""
    caller = ThreadCaller(clock=context.clock, construct=context.construct)
    return RemoteWorker(context, call=caller)


def find_app_location(app: Application) -> AppLocation:
    """Find where other processes can import an application from.

    Raises:
        InvalidOption: No module has it under a name.
    """
    path, files = tuple(sys.path), tuple(app.config_files)
    if app.path:
        module, _, attribute = app.path.partition(":")
        return AppLocation(module, attribute or "app", "", path, files)
    place = find_import_location(app, created_in=app.created_in)
    if place is not None:
        return AppLocation(place.module, place.attribute, place.file, path, files)
    if app.is_configuration:
        return AppLocation("", "", "", path, files)
    raise InvalidOption(
        "engine",
        "process",
        "must be 'async' or 'thread' for an application that no module holds",
        fix="Assign the application at the top of a module: app = Tickwork(...).",
    )
