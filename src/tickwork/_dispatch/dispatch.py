"""Makes runs and adds them to the store: only once, even if the answer of the database is lost."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

from tickwork import events
from tickwork._define.definition import Definition
from tickwork._define.registry import Registry
from tickwork._dispatch.dispatch_options import NO_DISPATCH_OPTIONS, DispatchOptions
from tickwork._dispatch.runs import RunHandle, Runs
from tickwork._dispatch.thread_bridge import ThreadBridge
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NO_ARGS, NewRun
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id, new_ids
from tickwork._stores.contract import AddedRun, ReadStore, RunStore, Store
from tickwork.errors import InvalidOption, OutcomeUnknown, StoreUnavailable
from tickwork.events.bus import EventBus

NAMES_SECONDS: Final = 10.0
"""A limit that a program defines for the first time is known to dispatchers after this time."""


class StoredLimits:
    """The limits that are stored, for dispatches of jobs that other programs define."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._names: tuple[str, ...] = ()
        self._read_until: float | None = None

    def names(self) -> tuple[str, ...]:
        """The names of all limits, read at most ``NAMES_SECONDS`` ago."""
        now = self._clock.monotonic()
        if self._read_until is None or now >= self._read_until:
            self._names = tuple(row.name for row in self._store.list_limits())
            self._read_until = now + NAMES_SECONDS
        return self._names


PAUSES: Final = (0.01, 0.1, 0.5)
"""Seconds before each retry of an insert whose answer was lost. Then the caller gets the error."""


class InsertStore(RunStore, ReadStore, Protocol):
    """Adds and reads runs."""


class DispatchTracer(Protocol):
    """Follows runs from their dispatch to their attempts."""

    def dispatching(self, runs: Sequence[NewRun]) -> AbstractContextManager[Sequence[NewRun]]:
        """Wrap the insert of these runs; return them with ``trace`` set for their attempts."""
        ...


def trace_dispatch(
    tracer: DispatchTracer | None, runs: Sequence[NewRun]
) -> AbstractContextManager[Sequence[NewRun]]:
    """Follow these runs, if there is a tracer, while they are inserted."""
    return nullcontext(runs) if tracer is None else tracer.dispatching(runs)


class TracedApp(Protocol):
    """An application that may have a tracer."""

    tracer: DispatchTracer | None


class RunInserter:
    """Adds runs in a transaction of its own, or in that of the calling thread.

    ``on_added`` is called after each insert, in the thread of the caller. Runs that are added in
    a transaction of the caller emit no event: it may still roll back.
    """

    def __init__(
        self,
        *,
        store: InsertStore,
        bus: EventBus,
        app: TracedApp,
    ) -> None:
        self._store = store
        self._bus = bus
        self._app = app
        self.on_added: Callable[[Sequence[NewRun]], None] | None = None

    def add(
        self, runs: Sequence[NewRun], *, may_be_stored: bool = False, keeps_steps: bool = False
    ) -> list[AddedRun]:
        """Add all of these runs or none; return one answer for each, in order.

        With ``may_be_stored``, runs of these ids may exist already, unfinished or finished. With
        ``keeps_steps``, each continues the failed run that it repeats.
        """
        if self._app.tracer is None:  # without a context manager, which costs each dispatch a call
            answers = self._insert(runs, may_be_stored=may_be_stored, keeps_steps=keeps_steps)
        else:
            with trace_dispatch(self._app.tracer, runs) as traced:
                answers = self._insert(traced, may_be_stored=may_be_stored, keeps_steps=keeps_steps)
        if self._bus.has_subscribers or self.on_added is not None:
            self._report([run for run, answer in zip(runs, answers, strict=True) if answer.is_new])
            self._report_replaced(runs, answers)
        return answers

    def report_follow_ups(self, runs: Sequence[NewRun]) -> None:
        """Report runs that were added with the success of an attempt."""
        if not self._bus.has_subscribers and self.on_added is None:
            return
        # A run whose key was taken was not added.
        keyed = {run.id for run in runs if run.unique is not None or run.replaces is not None}
        added = {run.id for run in self._store.get_runs(sorted(keyed))} if keyed else set()
        self._report([run for run in runs if run.id not in keyed or run.id in added])

    def _report(self, new: Sequence[NewRun]) -> None:
        is_committed = self._store.caller_transaction is None
        for run in new if is_committed else ():
            self._bus.emit(
                events.RunDispatched(
                    at=run.created_at,
                    run_id=run.id,
                    job=run.job,
                    tenant=run.tenant,
                    queue=run.queue,
                    due_at=run.due_at,
                )
            )
        if new and self.on_added is not None:
            self.on_added(new)

    def _report_replaced(self, runs: Sequence[NewRun], answers: Sequence[AddedRun]) -> None:
        if self._store.caller_transaction is not None:
            return
        for run, answer in zip(runs, answers, strict=True):
            if answer.is_replaced:
                self._bus.emit(
                    events.RunReplaced(
                        at=run.created_at,
                        run_id=answer.run_id,
                        job=run.job,
                        tenant=run.tenant,
                        queue=run.queue,
                    )
                )

    def _insert(
        self, runs: Sequence[NewRun], *, may_be_stored: bool, keeps_steps: bool
    ) -> list[AddedRun]:
        add = self._store.add_retries if keeps_steps else self._store.add_runs
        try:
            return add(runs, may_be_stored=may_be_stored)
        except OutcomeUnknown as error:
            lost = error
        for pause in PAUSES:
            # A server that is still at work on the COMMIT holds the locks of these runs: a repeat
            # would only wait for them.
            if lost.has_timed_out:
                break
            time.sleep(pause)
            try:
                return _repeat(add, runs)
            except OutcomeUnknown as error:
                lost = error
            except StoreUnavailable:
                pass  # it may return
            except Exception:  # noqa: BLE001  # whatever it is, the outcome is still unknown
                break
        with naming_runs(runs):
            raise lost


def _repeat(add: Callable[..., list[AddedRun]], runs: Sequence[NewRun]) -> list[AddedRun]:
    # The ids were chosen here, so a retry cannot add a run twice. A run that exists already was
    # added by the first call: for the caller it is new.
    return [
        answer._replace(is_new=answer.run_id == run.id)
        for run, answer in zip(runs, add(runs, may_be_stored=True), strict=True)
    ]


@contextmanager
def naming_runs(runs: Sequence[NewRun]) -> Iterator[None]:
    """Name these runs in an error that says that their outcome is unknown."""
    try:
        yield
    except OutcomeUnknown as error:
        raise error.of_runs(run.id for run in runs) from error.__cause__


class DispatchServices(Protocol):
    """The services of an application that a dispatch uses.

    The first use of ``store`` waits for the database and checks the tables. ``would_block``
    tells whether the next dispatch has to wait for that, or for the time of the database.
    """

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def stored_limits(self) -> StoredLimits: ...
    @property
    def inserter(self) -> RunInserter: ...
    @property
    def bridge(self) -> ThreadBridge: ...
    @property
    def would_block(self) -> bool: ...
    @property
    def tracer(self) -> DispatchTracer | None: ...

    def check_connection(self, connection: object) -> None:
        """Raise an error if creating the tables would wait for this connection of the caller."""
        ...


class Dispatcher:
    """Makes runs of the jobs of one registry, and adds them to the store.

    Runs that are added on a connection of the caller emit no event: the caller's transaction
    may still roll back.
    """

    def __init__(self, services: DispatchServices, registry: Registry) -> None:
        self.services = services
        self.registry = registry

    def dispatch(
        self,
        definition: Definition,
        options: DispatchOptions,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> RunHandle[Any]:
        """Add one run.

        Raises:
            ArgumentError: The arguments do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        store, now, definition = self._prepare(definition, options)
        run = new_run(definition, options, RunId(new_id(now)), args, kwargs, now=now)
        [answer] = self._add([run], options)
        is_open = options.connection is not None or store.caller_transaction is not None
        return RunHandle(
            self.services.runs,
            answer.run_id,
            is_new=answer.is_new,
            is_uncommitted=is_open,
            is_replaced=answer.is_replaced,
        )

    def dispatch_many(
        self,
        definition: Definition,
        options: DispatchOptions,
        calls: Iterable[Mapping[str, Any]],
    ) -> list[RunHandle[Any]]:
        """Add many runs in one transaction: all of them or none."""
        _, now, definition = self._prepare(definition, options)
        runs = new_runs(definition, options, calls, now=now)
        return self.handles(self._add(runs, options), options)

    async def prepare(
        self, definition: Definition, options: DispatchOptions
    ) -> tuple[Store, datetime, Definition]:
        """The store, the time and the job, for a dispatch on an async connection of the caller."""
        # Opening the store and reading from it wait for the database, and the loop must not.
        if self.services.would_block or definition.is_remote:
            return await self.services.bridge.call(self._prepare, definition, options)
        return self._prepare(definition, options)

    def add_stored_limits(self, definition: Definition, options: DispatchOptions) -> Definition:
        """Add the limits of a remote job: the workers of the program that defines it store them."""
        names = self.services.stored_limits.names()
        return definition.with_stored_limits(names, queue=options.queue or definition.spec.queue)

    def handles(
        self, answers: Iterable[AddedRun], options: DispatchOptions
    ) -> list[RunHandle[Any]]:
        """Handles on runs that were added."""
        runs, store = self.services.runs, self.services.store
        is_open = options.connection is not None or store.caller_transaction is not None
        return [
            RunHandle(
                runs,
                answer.run_id,
                is_new=answer.is_new,
                is_uncommitted=is_open,
                is_replaced=answer.is_replaced,
            )
            for answer in answers
        ]

    def _prepare(
        self, definition: Definition, options: DispatchOptions
    ) -> tuple[Store, datetime, Definition]:
        # The first use of the store may create its tables.
        if options.connection is not None:
            self.services.check_connection(options.connection)
        store, now = self.services.store, self.services.clock.now()
        if definition.is_remote:
            definition = self.add_stored_limits(definition, options)
        return store, now, definition

    def _add(self, runs: Sequence[NewRun], options: DispatchOptions) -> list[AddedRun]:
        if options.connection is None:
            return self.services.inserter.add(runs)
        store = self.services.store.using(options.connection)
        with naming_runs(runs), trace_dispatch(self.services.tracer, runs) as traced:
            return store.add_runs(traced)


def new_run(
    definition: Definition,
    options: DispatchOptions,
    run_id: RunId,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    now: datetime,
) -> NewRun:
    """One run of a job, with its arguments checked and encoded."""
    if options is NO_DISPATCH_OPTIONS:
        stored = definition.payload.encode_call(args, kwargs)
        return definition.spec.new_run(run_id, now=now, due_at=now, args=stored)
    if options.args:
        kwargs = {**options.args, **definition.parameters.bind(definition.name, args, kwargs)}
        args = ()
    spec = definition.spec
    if options.unique is not None:
        definition.check_by(options.unique.by)
        spec = replace(spec, unique=options.unique)
    if options.debounce is not None:
        definition.check_by(options.debounce.by)
        spec = replace(spec, debounce=options.debounce)
    if spec.debounce is not None and (options.delay is not None or options.at is not None):
        raise InvalidOption(
            "delay" if options.at is None else "at",
            options.at or options.delay,
            "must not be combined with debounce",
            fix="The quiet period of the job is the delay.",
        )
    return spec.new_run(
        run_id,
        now=now,
        due_at=options.due_at(now),
        args=definition.payload.encode_call(args, kwargs),
        tenant=options.tenant,
        queue=options.queue,
        priority=options.priority,
        expires=options.expires,
        tags=options.tags,
        target=options.target,
    )


def new_runs(
    definition: Definition,
    options: DispatchOptions,
    calls: Iterable[Mapping[str, Any]],
    *,
    now: datetime,
) -> list[NewRun]:
    """One run for each set of arguments."""
    all_calls = list(calls)
    _check_calls(all_calls)
    ids = new_ids(now, len(all_calls))
    if options is NO_DISPATCH_OPTIONS and all_calls and not definition.spec.has_keys:
        return _copies(definition, ids, all_calls, now=now)
    return [
        new_run(definition, options, RunId(run_id), (), kwargs, now=now)
        for run_id, kwargs in zip(ids, all_calls, strict=True)
    ]


def _copies(
    definition: Definition,
    ids: Sequence[str],
    calls: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
) -> list[NewRun]:
    """Copies of one run that differ only in their ids and arguments: faster than new_run."""
    first = definition.spec.new_run(RunId(ids[0]), now=now, due_at=now, args=NO_ARGS)
    place = NewRun._fields.index("args")
    before, after = first[1:place], first[place + 1 :]
    make = partial(tuple.__new__, NewRun)  # _make() takes three times as long
    return [
        make((run_id, *before, args, *after))
        for run_id, args in zip(ids, definition.payload.encode_calls(calls), strict=True)
    ]


def _check_calls(calls: Sequence[Any]) -> None:
    for call in calls:
        # There may be thousands of calls. For a plain dictionary, the first check is faster.
        if type(call) is not dict and not isinstance(call, Mapping):
            raise InvalidOption(
                "dispatch_many",
                call,
                "takes mappings of argument names to values",
                fix='Write dispatch_many([{"to": "ann"}, {"to": "bob"}]).',
            )
