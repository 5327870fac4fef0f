"""Makes runs and adds them to the store: only once, even if the answer of the database is lost."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

from tickwork import events
from tickwork._client.dispatch_options import NO_DISPATCH_OPTIONS, DispatchOptions
from tickwork._client.runs import RunHandle, Runs
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._define.definition import Definition
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.run import NO_ARGS, NewRun
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id, new_ids
from tickwork.errors import InvalidOption, OutcomeUnknown, StoreUnavailable
from tickwork.events.bus import EventBus
from tickwork.stores.contract import Enqueued, ReadStore, RunStore, Store

PAUSES: Final = (0.01, 0.1, 0.5)
"""Seconds before each retry of an insert whose answer was lost. Then the caller gets the error."""

_NAMED_MAX: Final = 3
"""How many runs the error names."""


class InsertStore(RunStore, ReadStore, Protocol):
    """Adds and reads runs."""


class DispatchTracer(Protocol):
    """Follows runs from their dispatch to their attempts."""

    def dispatching(self, runs: Sequence[NewRun]) -> AbstractContextManager[Sequence[NewRun]]:
        """Wrap the insert of these runs; return them with ``trace`` set for their attempts."""
        ...


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

    def add(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[Enqueued]:
        """Add all of these runs or none; return one answer for each, in order.

        With ``may_be_stored``, runs of these ids may exist already, unfinished or finished.
        """
        tracer = self._app.tracer
        if tracer is None:
            answers = self._insert(runs, may_be_stored=may_be_stored)
        else:
            with tracer.dispatching(runs) as traced:
                answers = self._insert(traced, may_be_stored=may_be_stored)
        if self._bus.has_subscribers or self.on_added is not None:
            self._report([run for run, answer in zip(runs, answers, strict=True) if answer.is_new])
        return answers

    def report_follow_ups(self, runs: Sequence[NewRun]) -> None:
        """Report runs that were added with the success of an attempt."""
        if not self._bus.has_subscribers and self.on_added is None:
            return
        # A run whose key was taken was not added.
        keyed = [run.id for run in runs if run.unique is not None]
        added = {run.id for run in self._store.get_runs(keyed)} if keyed else set()
        self._report([run for run in runs if run.unique is None or run.id in added])

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

    def _insert(self, runs: Sequence[NewRun], *, may_be_stored: bool) -> list[Enqueued]:
        try:
            return self._store.enqueue(runs, may_be_stored=may_be_stored)
        except OutcomeUnknown as error:
            lost = error
        for pause in PAUSES:
            time.sleep(pause)
            # While the store cannot be reached, it is still unknown whether it has added them.
            with suppress(StoreUnavailable):
                return self._repeat(runs)
        names = ", ".join(run.id for run in runs[:_NAMED_MAX])
        more = f" and {len(runs) - _NAMED_MAX} more" if len(runs) > _NAMED_MAX else ""
        lost.add_note(f"If it was added, app.get_run() finds it later: {names}{more}.")
        raise lost

    def _repeat(self, runs: Sequence[NewRun]) -> list[Enqueued]:
        # The ids were chosen here, so a retry cannot add a run twice. A run that exists already
        # was added by the first call: for the caller it is new.
        return [
            answer._replace(is_new=answer.run_id == run.id)
            for run, answer in zip(runs, self._store.enqueue(runs, may_be_stored=True), strict=True)
        ]


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
        store, now = self._prepare(options.connection)
        run = new_run(definition, options, RunId(new_id(now)), args, kwargs, now=now)
        [answer] = self._add([run], options)
        is_open = options.connection is not None or store.caller_transaction is not None
        return RunHandle(
            self.services.runs, answer.run_id, is_new=answer.is_new, is_uncommitted=is_open
        )

    def dispatch_many(
        self,
        definition: Definition,
        options: DispatchOptions,
        calls: Iterable[Mapping[str, Any]],
    ) -> list[RunHandle[Any]]:
        """Add many runs in one transaction: all of them or none."""
        _, now = self._prepare(options.connection)
        runs = new_runs(definition, options, calls, now=now)
        return self.handles(self._add(runs, options), options)

    async def prepare(self, connection: object) -> tuple[Store, datetime]:
        """The store and the time, for a dispatch on an async connection of the caller."""
        # Opening the store and reading its time wait for the database, and the loop must not.
        if self.services.would_block:
            return await self.services.bridge.call(self._prepare, connection)
        return self._prepare(connection)

    def handles(
        self, answers: Iterable[Enqueued], options: DispatchOptions
    ) -> list[RunHandle[Any]]:
        """Handles on runs that were added."""
        runs, store = self.services.runs, self.services.store
        is_open = options.connection is not None or store.caller_transaction is not None
        return [
            RunHandle(runs, answer.run_id, is_new=answer.is_new, is_uncommitted=is_open)
            for answer in answers
        ]

    def _prepare(self, connection: object) -> tuple[Store, datetime]:
        # The first use of the store may create its tables.
        if connection is not None:
            self.services.check_connection(connection)
        return self.services.store, self.services.clock.now()

    def _add(self, runs: Sequence[NewRun], options: DispatchOptions) -> list[Enqueued]:
        if options.connection is None:
            return self.services.inserter.add(runs)
        store = self.services.store.using(options.connection)
        tracer = self.services.tracer
        if tracer is None:
            return store.enqueue(runs)
        with tracer.dispatching(runs) as traced:
            return store.enqueue(traced)


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
        definition.check_unique(options.unique)
        spec = replace(spec, unique=options.unique)
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
    given = list(calls)
    _check_calls(given)
    ids = new_ids(now, len(given))
    if options is NO_DISPATCH_OPTIONS and given and not definition.spec.has_keys:
        return _copies(definition, ids, given, now=now)
    return [
        new_run(definition, options, RunId(run_id), (), kwargs, now=now)
        for run_id, kwargs in zip(ids, given, strict=True)
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
