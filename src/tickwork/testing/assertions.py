"""Assertions about dispatched runs. A failed one shows the runs that were dispatched."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

from tickwork._define.definition import Definition
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import RunStatus
from tickwork._kernel.instants import When, as_instant
from tickwork._masks.secret_mask import mask_args
from tickwork._payload.codec import decode
from tickwork._stores.contract import RunFilter
from tickwork.app.tickwork import Tickwork
from tickwork.errors import JobNotFound, PayloadMismatch, suggest
from tickwork.testing.drain import name_of

_PAGE: Final = 500
_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DispatchedRun:
    """A run that the program dispatched, as it is now, with its ``handle``."""

    job: str
    args: Mapping[str, Any]
    queue: str
    at: datetime
    status: RunStatus
    priority: int
    tenant: str
    tags: tuple[str, ...]
    handle: RunHandle[Any]
    secrets: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        shown = mask_args(dict(self.args), self.secrets)
        args = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        tenant = f" for {self.tenant!r}" if self.tenant else ""
        return (
            f"{self.job}({args}){tenant} in the queue {self.queue!r}, "
            f"due {self.at.isoformat()}, {self.status}"
        )


def dispatched(app: Tickwork, job: Any = None) -> list[DispatchedRun]:
    """The runs that the program dispatched, in order: of one job, or of all.

    Finished runs are included, runs of schedules are not. Inside :func:`watching` and
    :func:`isolated`, only the runs that were dispatched in the block are included.
    """
    name = None if job is None else name_of(job)
    return [
        _shown(app, run) for run in _runs(app) if run.schedule is None and name in {None, run.job}
    ]


def assert_dispatched(
    app: Tickwork,
    job: Any,
    *,
    times: int | None = None,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    at: When | None = None,
    tenant: str | None = None,
) -> list[DispatchedRun]:
    """Assert that runs of a job were dispatched; return them.

    Without ``times``, one run is enough. ``args`` are some of the arguments, and ``at`` is the
    due time:

    >>> from tickwork import testing
    >>> with testing.app() as app:
    ...     greet = app.schedule("greet", lambda name: None)
    ...     run = greet.delay(60).dispatch(name="Ann")
    ...     [found] = testing.assert_dispatched(app, "greet", args={"name": "Ann"})
    ...     found.at.isoformat()
    '2026-01-01T00:01:00+00:00'

    Raises:
        AssertionError: They were not, or not ``times`` times. It shows what was dispatched.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    wanted = _Wanted(name_of(job), args, queue, None if at is None else as_instant(at), tenant)
    everything = dispatched(app)
    matches = [each for each in everything if wanted.fits(each)]
    if len(matches) == times or (times is None and matches):
        return matches
    often = "" if times is None else f" {times} time{'' if times == 1 else 's'}"
    but = f", but {len(matches)}" if matches else ""
    raise AssertionError(
        _message(f"{wanted} was not dispatched{often}{but}.", everything, app, wanted.job)
    )


def assert_not_dispatched(
    app: Tickwork,
    job: Any,
    *,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    at: When | None = None,
    tenant: str | None = None,
) -> None:
    """Assert that no such run was dispatched.

    Raises:
        AssertionError: One was.
        JobNotFound: There is no job of that name.
    """
    __tracebackhide__ = True
    wanted = _Wanted(name_of(job), args, queue, None if at is None else as_instant(at), tenant)
    everything = dispatched(app)
    matches = [each for each in everything if wanted.fits(each)]
    if matches:
        raise AssertionError(_message(f"{wanted} was dispatched.", matches, app, wanted.job))
    is_known = wanted.job in {each.job for each in everything} or app.registry.find(wanted.job)
    if isinstance(job, str) and not is_known:
        raise JobNotFound(wanted.job, known=app.registry.definitions())


def assert_nothing_dispatched(app: Tickwork) -> None:
    """Assert that no run was dispatched at all.

    Raises:
        AssertionError: One was.
    """
    __tracebackhide__ = True
    runs = dispatched(app)
    if runs:
        raise AssertionError(_message("Runs were dispatched.", runs, app, ""))


@contextmanager
def watching(app: Tickwork) -> Iterator[None]:
    """Restrict assertions to the runs that are dispatched in the block."""
    mark = _Mark.now(app)
    marks = _marks.setdefault(app, [])
    marks.append(mark)
    try:
        yield
    finally:
        marks.remove(mark)


# ---------------------------------------------------------------- runs from before the block


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    """The start of a block: its time, and the runs that were created at that very instant."""

    at: datetime
    known: frozenset[RunId]

    @classmethod
    def now(cls, app: Tickwork) -> "_Mark":
        at = app.clock.now()
        # On a clock that stands still, runs from before and in the block have the same time.
        return cls(at, frozenset(run.id for run in _pages(app, RunFilter(since=at))))


_marks: "WeakKeyDictionary[Tickwork, list[_Mark]]" = WeakKeyDictionary()


def _runs(app: Tickwork) -> list[Run]:
    marks = _marks.get(app)
    if not marks:
        return _pages(app, RunFilter())
    runs = _pages(app, RunFilter(since=marks[-1].at))
    return [run for run in runs if run.id not in marks[-1].known]


def _pages(app: Tickwork, where: RunFilter) -> list[Run]:
    store, cursor = app._services.store, None
    runs: list[Run] = []
    # It ends with the last page, which has no cursor.
    while True:
        page = store.list_runs(where, cursor=cursor, limit=_PAGE)
        runs += page.runs
        cursor = page.cursor
        if cursor is None:
            return runs[::-1]


# ---------------------------------------------------------------- comparing and showing


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The conditions of an assertion."""

    job: str
    args: Mapping[str, Any] | None
    queue: str | None
    at: datetime | None
    tenant: str | None

    def __str__(self) -> str:
        conditions = [
            "" if self.args is None else f" with {dict(self.args)!r}",
            "" if self.queue is None else f" in the queue {self.queue!r}",
            "" if self.at is None else f" for {self.at.isoformat()}",
            "" if self.tenant is None else f" for the tenant {self.tenant!r}",
        ]
        return f"{self.job!r}{''.join(conditions)}"

    def fits(self, run: DispatchedRun) -> bool:
        return (
            run.job == self.job
            and self.queue in {None, run.queue}
            and self.at in {None, run.at}
            and self.tenant in {None, run.tenant}
            and _has(run.args, self.args or {})
        )


def _has(args: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in args and args[name] == value for name, value in wanted.items())


def _shown(app: Tickwork, run: Run) -> DispatchedRun:
    definition = app.registry.find(run.job)
    return DispatchedRun(
        job=run.job,
        args=_arguments_of(run, definition),
        queue=run.queue,
        at=run.due_at,
        status=run.status,
        priority=run.priority,
        tenant=run.tenant,
        tags=run.tags,
        handle=app.runs.handle(run.id),
        secrets=frozenset() if definition is None else definition.secrets,
    )


def _arguments_of(run: Run, definition: Definition | None) -> dict[str, Any]:
    """The arguments that the handler gets; those that do not fit it, as they are stored."""
    if definition is not None:
        with suppress(PayloadMismatch):
            return definition.payload.decode(run.args)
    stored: dict[str, Any] = decode(run.args)
    return stored


def _message(what: str, runs: Sequence[DispatchedRun], app: Tickwork, job: str) -> str:
    lines = [what]
    if runs:
        lines.append("Dispatched runs:")
        lines += [f"  {each}" for each in runs[:_SHOWN_MAX]]
        if len(runs) > _SHOWN_MAX:
            lines.append(f"  and {len(runs) - _SHOWN_MAX} more")
    else:
        lines.append("No run was dispatched.")
    fired = sum(run.job == job and run.schedule is not None for run in _runs(app))
    if fired:
        lines.append(f"Schedules fired it {fired} time{'' if fired == 1 else 's'}.")
    known = app.registry.definitions()
    if job and app.registry.find(job) is None:
        lines.append(f"There is no job {job!r}. {suggest(job, known)}".rstrip())
    return "\n".join(lines)
