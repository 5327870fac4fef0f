"""Executes each run at its dispatch, in the thread of the caller."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import local
from typing import Final

from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NewRun, Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._handlers.context import RunContext
from tickwork.app.composition import Services
from tickwork.app.tickwork import Tickwork
from tickwork.errors import DefinitionError, RunUnsuccessful, StillDue

DEPTH_MAX: Final = 50
"""How deep dispatches inside handlers may be nested. More are taken for an endless loop."""

_FAILED: Final = frozenset({RunStatus.FAILED, RunStatus.FAILED_PERMANENT})


@contextmanager
def immediately(app: Tickwork, *, raising: bool = False) -> Iterator[None]:
    """Execute each run before its ``dispatch`` returns, while the block runs.

    The run is added, claimed, executed and recorded as in a worker, and so are the runs that
    its handler dispatches. Runs that are due later stay pending, and so do runs that wait for
    a limit, a pause or a filter. With ``raising``, ``dispatch`` raises the exception of the
    handler:

    >>> from tickwork import testing
    >>> with testing.app() as app, testing.immediately(app):
    ...     run = app.schedule("double", lambda number: 2 * number).dispatch(number=21)
    ...     run.result()
    42

    A dispatch with ``using`` is not executed: its transaction is not committed yet.
    """
    services = app._services
    immediate = _Immediate(services, raising=raising)
    inserter, passes = services.inserter, services.passes
    outer, adapt = inserter.on_added, passes.adapt_definition

    def execute_added(runs: Sequence[NewRun]) -> None:
        if outer is not None:
            outer(runs)
        immediate.run(runs)

    def adapt_definition(definition: Definition) -> Definition:
        return immediate.capture_errors(definition if adapt is None else adapt(definition))

    inserter.on_added, passes.adapt_definition = execute_added, adapt_definition
    try:
        yield
    finally:
        inserter.on_added, passes.adapt_definition = outer, adapt


class _Immediate:
    def __init__(self, services: Services, *, raising: bool) -> None:
        self._services = services
        self._raising = raising
        self._errors: dict[RunId, BaseException] = {}
        self._waiting: dict[RunId, NewRun] = {}  # for a limit, a pause or a filter
        self._local = local()
        self._endless: StillDue | None = None

    def run(self, runs: Sequence[NewRun]) -> None:
        """Execute those of these runs that are due; with ``raising``, raise their exceptions."""
        depth = getattr(self._local, "depth", 0)
        if depth >= DEPTH_MAX:
            self._endless = StillDue(limit=DEPTH_MAX, jobs=(run.job for run in runs))
            raise self._endless
        self._local.depth = depth + 1
        try:
            self._services.passes.context.refresh_catalog()  # limits apply here, too
            with self._services.passes.context.log_capture.capturing():
                self._execute(runs)
        finally:
            self._local.depth = depth
        if depth == 0 and self._endless is not None:
            # The handlers in between have turned the error into failed attempts.
            endless, self._endless = self._endless, None
            raise endless
        for run in runs if self._raising else ():
            self._raise_for(run.id)

    def capture_errors(self, definition: Definition) -> Definition:
        """Add a hook that keeps the exceptions of handlers."""

        def keep(ctx: RunContext, error: BaseException) -> None:
            self._errors[ctx.run_id] = error

        options = replace(definition.options, error=(*definition.options.error, keep))
        return replace(definition, options=options, is_simple=False)

    def _execute(self, runs: Sequence[NewRun]) -> None:
        due = {run.id: run for run in runs if run.phase is Phase.READY}
        has_progress = True
        # It ends: each round but the last one finishes a run, or postpones it.
        while due and has_progress:
            has_progress = False
            for run in due.values():
                if self._attempt(run):
                    has_progress = True
                elif self._can_execute(run.id):
                    self._waiting[run.id] = run
            # A slot that others waited for may be free now.
            due, self._waiting = self._waiting, {}
        self._waiting |= due

    def _attempt(self, run: NewRun) -> bool:
        """Make attempts at a run while it is due; return whether any was made."""
        services = self._services
        try:
            services.passes.context.known.learn(run.job)
        except (DefinitionError, ImportError):
            return False  # a job of another program, or one that cannot be imported here
        for attempts in range(DEPTH_MAX):
            with services.passes.use_pass() as single_pass:
                has_started = single_pass.run_one(run.id, job=run.job)
            if not has_started:
                return attempts > 0
            stored = self._read(run.id)
            if stored is None or stored.phase is not Phase.READY:
                return True
        raise StillDue(limit=DEPTH_MAX, jobs=[run.job])

    def _can_execute(self, run_id: RunId) -> bool:
        run = self._read(run_id)
        return run is not None and run.status.can_execute

    def _raise_for(self, run_id: RunId) -> None:
        run = self._read(run_id)
        if run is None or run.status not in _FAILED:
            return
        raise self._errors.pop(run_id, None) or RunUnsuccessful(
            run_id, status=run.status, reason=run.reason
        )

    def _read(self, run_id: RunId) -> Run | None:
        return self._services.store.get_run(run_id)
