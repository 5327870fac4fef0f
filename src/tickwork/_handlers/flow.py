"""The steps of one attempt: what ``ctx.step`` and ``ctx.sleep`` do.

A run that has steps is a flow. Each step has a name, and its value is stored under it. When the run
is attempted again, the handler starts from the top, and a stored step returns its value instead of
calling its function. A sleep ends the attempt with :class:`SuspendRun`.
"""

import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from tickwork._domain.runs.outcome import ERROR_MAX, shorten
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.steps import NAME_MAX, STEPS_MAX, Step, StepKind, StepState, SubRun
from tickwork._domain.runs.stored_events import FOREVER, EventName
from tickwork._domain.runs.stored_events import NAME_MAX as EVENT_NAME_MAX
from tickwork._handlers.planned_run import PlannedRun, plan_call
from tickwork._kernel.blocking_calls import BlockingCalls
from tickwork._kernel.durations import as_duration, format_duration, later
from tickwork._kernel.instants import When, as_instant
from tickwork._kernel.plain_text import count_of
from tickwork._payload.codec import decode, encode
from tickwork.errors import (
    Discard,
    DuplicateStep,
    EventTimeout,
    FlowChanged,
    FlowError,
    InvalidStep,
    LeaseLost,
    PayloadError,
    RetryLater,
    Snooze,
    StepFailed,
    StepLimit,
    SubRunFailed,
    SuspendRun,
)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
K = TypeVar("K")

_CALLS: Final = BlockingCalls()

# What an exception of a step means for the run is decided at once; it is not the step's result.
_PASSED_ON: Final = (RetryLater, Discard, Snooze, FlowError, LeaseLost)


class StepStore(Protocol):
    """What the steps of an attempt need of the store."""

    @property
    def version(self) -> str:
        """The version of the application; empty if it has none."""
        ...

    def now(self) -> datetime:
        """The time of the database."""
        ...

    def open_flow(self, claim: Claim) -> Sequence[Step]:
        """The steps that earlier attempts of the run have stored.

        Raises:
            FlowsUnavailable: The process of this attempt does not reach the database.
        """
        ...

    def save_steps(self, claim: Claim, steps: Sequence[Step]) -> bool:
        """Store steps; False if the claim was lost."""
        ...

    def resolve_wait(self, claim: Claim, step: Step, event: EventName) -> Step | None:
        """Decide a wait by its event or its time, and store it; None if the claim was lost."""
        ...

    def decode_result(self, job: str, text: str | None) -> Any:
        """Rebuild what the handler of a job has returned."""
        ...

    def save_steps_using(self, claim: Claim, connection: object, steps: Sequence[Step]) -> bool:
        """Store steps in the caller's transaction; False if the claim was lost."""
        ...

    async def save_steps_using_async(
        self, claim: Claim, connection: object, steps: Sequence[Step]
    ) -> bool:
        """The same for an async connection."""
        ...


class StepCodec(Protocol):
    """How the value of a step is stored and rebuilt."""

    @property
    def is_secret(self) -> bool:
        """Whether views do not show the value."""
        ...

    def encode(self, value: Any) -> str:
        """Encode it; raises PayloadError."""
        ...

    def decode(self, text: str) -> Any:
        """Rebuild it; raises PayloadError."""
        ...


class AttemptPayload(Protocol):
    """How values of a handler are stored."""

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        ...

    def encode_result(self, value: Any) -> str:
        """Encode what the handler returned."""
        ...

    def for_step(self, function: Callable[..., Any]) -> StepCodec:
        """How the values of this function are stored."""
        ...

    def for_type(self, kind: Any) -> StepCodec:
        """How values of this type are stored."""
        ...


class FlowOwner(Protocol):
    """The context of an attempt."""

    def find_flow(self, method: str) -> "RunFlow | None":
        """The steps of this attempt, which may not be loaded; None without a run."""
        ...

    def codec_of_step(self, function: Callable[..., Any]) -> StepCodec:
        """How the values of this function are stored."""
        ...

    def codec_of_type(self, kind: Any) -> StepCodec:
        """How values of this type are stored."""
        ...

    def plan(self, planned: PlannedRun[Any]) -> NewRun:
        """Make the run, without adding it."""
        ...


class CanCall(Protocol[P, R_co]):
    """A job, a draft, or a job under a name."""

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> PlannedRun[R_co]:
        """Plan a run with these arguments of the handler."""
        ...


class WantedEvent(NamedTuple):
    """What a handler passes to ``ctx.wait_for``."""

    event: str
    key: str | None  # None: the id of the run
    timeout: timedelta | float | str | None
    name: str | None

    @property
    def step_name(self) -> str:
        """The name of the step."""
        return self.name or (self.event if self.key is None else f"{self.event}:{self.key}")


class RunFlow:
    """The steps of one attempt: those that are stored, and those that it has called.

    Coroutines may call several steps at the same time, so a lock guards the names.
    """

    __slots__ = (
        "_claim",
        "_failures",
        "_lock",
        "_mask",
        "_next_place",
        "_pending_wait",
        "_store",
        "_stored",
        "_used",
        "saved",
        "suspension",
    )

    def __init__(
        self, claim: Claim, store: StepStore, mask: Callable[[str], str], *, saved: int = 0
    ) -> None:
        self._claim = claim
        self._store = store
        self._mask = mask
        self._lock = threading.Lock()
        self._stored: dict[str, Step] | None = None  # None: not read yet
        self._next_place = 0
        self._pending_wait: EventName | None = None
        self._used: set[str] = set()
        self._failures: dict[str, Exception] = {}  # of steps of this attempt, not stored
        self.saved = saved
        """How many steps this attempt has stored."""
        self.suspension: SuspendRun | None = None

    @property
    def is_loaded(self) -> bool:
        return self._stored is not None

    def load(self) -> None:
        """Read the steps of earlier attempts."""
        found = self._store.open_flow(self._claim)
        # Another coroutine may have loaded them meanwhile: earlier attempts store no more steps.
        with self._lock:
            if self._stored is None:
                self._stored = {step.name: step for step in found}
                self._next_place = max((step.place + 1 for step in found), default=0)

    # ------------------------------------------------------------ names

    def use_name(self, name: str) -> Step | None:
        """Use a name for the first time in this attempt; return the stored step, if any.

        Raises:
            SuspendRun: The run is suspended already. Only its end leads on.
            InvalidStep: It cannot be the name of a step.
            DuplicateStep: The name was used before.
            StepLimit: The run has too many steps.
        """
        if self.suspension is not None:
            raise self.suspension
        if not (type(name) is str and 0 < len(name) <= NAME_MAX and name.isprintable()):
            raise InvalidStep(
                f"{name!s:.40}",
                f"has a name that is not a printable text of 1 to {NAME_MAX} characters.",
            )
        assert self._stored is not None, name
        with self._lock:
            if name in self._used:
                raise DuplicateStep(name, run_id=self._claim.run_id)
            found = self._stored.get(name)
            if found is None and len(self._used | self._stored.keys()) >= STEPS_MAX:
                raise StepLimit(self._claim.run_id, steps_max=STEPS_MAX)
            self._used.add(name)
        return found

    # ------------------------------------------------------------ steps

    @contextmanager
    def watch(self, name: str) -> Generator[None]:
        """Call the function of a step inside of this: its exception may become its result."""
        try:
            yield
        except _PASSED_ON:
            raise
        except Exception as error:
            self._failures[name] = error
            raise

    def build(self, name: str, codec: StepCodec, value: Any) -> Step:
        """Make the step of this value.

        Raises:
            InvalidStep: The value cannot be stored.
        """
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()  # otherwise Python warns that it was never awaited
            raise InvalidStep(
                name, "calls a coroutine function.", f"Write `await ctx.aio.step({name!r}, ...)`."
            )
        try:
            text = codec.encode(value)
        except PayloadError as error:
            raise InvalidStep(
                name,
                f"returned a value that cannot be stored: {self._mask(str(error))}",
                "Return less, or a value that has a JSON form.",
            ) from error
        return self._step(name, StepState.DONE, text, is_secret=codec.is_secret)

    def read(self, step: Step, codec: StepCodec) -> Any:
        """Return the value of a stored step.

        Raises:
            StepFailed: The function of the step raised an exception.
            InvalidStep: The value does not fit the function any more.
        """
        if step.kind is not StepKind.STEP:
            raise InvalidStep(step.name, f"is stored as a {step.kind}.", "Use another name.")
        text = step.value or "null"
        try:
            if step.state is StepState.FAILED:
                raise rebuild_failure(step.name, decode(text))
            return codec.decode(text)
        except PayloadError as error:
            raise InvalidStep(
                step.name,
                f"has a stored value that does not fit its function: {self._mask(str(error))}",
                "Give the changed step a new name, or accept the old type.",
            ) from error

    def failed_steps(self) -> list[Step]:
        """The failures that the handler has caught: it continues, so they are results."""
        failures, self._failures = self._failures, {}
        return [
            self._step(name, StepState.FAILED, encode(self._describe(error)), is_secret=False)
            for name, error in failures.items()
        ]

    def save(self, steps: Sequence[Step]) -> None:
        """Store steps of this attempt.

        Raises:
            LeaseLost: Another worker has taken over the run.
        """
        if steps:
            self._note_saved(steps, is_done=self._store.save_steps(self._claim, steps))

    def save_using(self, connection: object, steps: Sequence[Step]) -> None:
        """Store steps in the caller's transaction, as :meth:`save` does."""
        is_done = self._store.save_steps_using(self._claim, connection, steps)
        self._note_saved(steps, is_done=is_done)

    async def save_using_async(self, connection: object, steps: Sequence[Step]) -> None:
        """The same for an async connection."""
        is_done = await self._store.save_steps_using_async(self._claim, connection, steps)
        self._note_saved(steps, is_done=is_done)

    def _note_saved(self, steps: Sequence[Step], *, is_done: bool) -> None:
        if not is_done:
            raise LeaseLost(self._claim.run_id, token=self._claim.token)
        self.saved += len(steps)

    # ------------------------------------------------------------ sleeps

    def sleep(self, length: timedelta | float | str, name: str | None) -> None:
        """Suspend the run for some time, unless it has slept under this name."""
        duration = as_duration(length)
        text = length if isinstance(length, str) else format_duration(duration)
        stored = self.use_name(name or f"sleep:{text}")
        self._wait(stored, name or f"sleep:{text}", later(self._store.now(), duration))

    def sleep_until(self, when: When, name: str | None) -> None:
        """Suspend the run until a moment, unless it has passed."""
        until = as_instant(when, option="sleep_until")
        own = name or f"sleep:{until.isoformat()}"
        self._wait(self.use_name(own), own, until)

    def _wait(self, stored: Step | None, name: str, until: datetime) -> None:
        now = self._store.now()
        new: list[Step] = []
        if stored is not None:
            if stored.kind is not StepKind.SLEEP:
                raise InvalidStep(name, f"is stored as a {stored.kind}.", "Use another name.")
            if stored.is_over(now):
                return
            until = stored.until or until
        elif until <= now:
            return
        else:
            step = self._step(name, StepState.OPEN, None, is_secret=False)
            new = [*self.failed_steps(), step._replace(kind=StepKind.SLEEP, until=until)]
        self.suspension = SuspendRun(f"sleeps: {name}", until=until, steps=new)
        raise self.suspension

    # ------------------------------------------------------------ events

    def begin_wait(self, wait: "WantedEvent") -> Step:
        """The step of a wait: the stored one, or a new one."""
        for text in (wait.event, wait.key or "-"):
            if not 0 < len(text) <= EVENT_NAME_MAX or not text.isprintable():
                raise InvalidStep(
                    wait.step_name, f"has a name or key that is no text of 1 to {EVENT_NAME_MAX}."
                )
        stored = self.use_name(wait.step_name)
        if stored is None:
            now = self._store.now()
            until = None if wait.timeout is None else later(now, as_duration(wait.timeout))
            step = self._step(wait.step_name, StepState.OPEN, None, is_secret=False)
            return step._replace(kind=StepKind.WAIT, until=until)
        if stored.kind is not StepKind.WAIT:
            raise InvalidStep(wait.step_name, f"is stored as a {stored.kind}.", "Use another name.")
        return stored

    def resolve(self, wait: "WantedEvent", step: Step) -> Step:
        """Decide a wait, or suspend the run.

        Raises:
            SuspendRun: The event has not come, and the time has not passed.
            LeaseLost: Another worker has taken over the run.
        """
        if step.state is not StepState.OPEN:
            return step
        name = EventName(self._claim.tenant, wait.event, wait.key or self._claim.run_id)
        self.save(self.failed_steps())
        resolved = self._store.resolve_wait(self._claim, step, name)
        if resolved is None:
            raise LeaseLost(self._claim.run_id, token=self._claim.token)
        if resolved.state is StepState.OPEN:
            self._pending_wait = name
        else:
            self.saved += 1
        return resolved

    def finish_wait(self, wait: "WantedEvent", step: Step, codec: StepCodec) -> Any:
        """Return the data of the event, or suspend the run."""
        if step.state is StepState.OPEN:
            new = [] if step.name in (self._stored or {}) else [step]
            self.suspension = SuspendRun(
                f"waits for {wait.step_name}",
                until=step.until or FOREVER,
                steps=new,
                wait=self._pending_wait,
            )
            raise self.suspension
        if step.state is StepState.TIMEOUT:
            raise EventTimeout(wait.event, timeout=as_duration(wait.timeout or 0))
        try:
            return codec.decode(step.value or "null")
        except PayloadError as error:
            raise InvalidStep(
                step.name,
                f"got data that does not fit the type: {self._mask(str(error))}",
                "Accept this data, or emit data of the type.",
            ) from error

    # ------------------------------------------------------------ calls

    def call(self, calls: Sequence[tuple[str, NewRun]]) -> list[Any]:
        """The results of these runs, or suspend the run until all of them have ended.

        Raises:
            SuspendRun: They have not. Those that were not called before are added with it.
            SubRunFailed: One of them did not complete.
            FlowChanged: A name has another call than the one that is stored.
        """
        steps: list[Step] = []
        new: list[SubRun] = []
        for name, run in calls:
            digest = _digest(run, len(calls))
            step = self.use_name(name)
            if step is None:
                made = self._step(name, StepState.OPEN, None, is_secret=False)
                step = made._replace(kind=StepKind.CALL, digest=digest)
                new.append(SubRun(step, run))
            elif step.kind is not StepKind.CALL:
                raise InvalidStep(name, f"is stored as a {step.kind}.", "Use another name.")
            elif step.digest != digest:
                raise FlowChanged(name, run_id=step.ref or "")
            steps.append(step)
        missing = [step for step in steps if step.state is StepState.OPEN]
        if missing:
            self.suspension = SuspendRun(
                f"waits for {count_of(len(missing), 'run')}: {missing[0].name}",
                until=FOREVER,
                steps=self.failed_steps(),
                calls=new,
                waits_for_runs=True,
            )
            raise self.suspension
        failed = [_rebuild_end(step) for step in steps if step.state is StepState.FAILED]
        if failed:
            first, *others = failed
            first.others = tuple(others)
            raise first
        return [
            self._read_result(run.job, step) for (_, run), step in zip(calls, steps, strict=True)
        ]

    def _read_result(self, job: str, step: Step) -> Any:
        try:
            return self._store.decode_result(job, step.value)
        except PayloadError as error:
            raise InvalidStep(
                step.name,
                f"has a result that does not fit the job {job!r}: {self._mask(str(error))}",
                "Accept the old type, or give the call a new name.",
            ) from error

    # ------------------------------------------------------------ rows

    def _step(self, name: str, state: StepState, value: str | None, *, is_secret: bool) -> Step:
        with self._lock:
            place = self._next_place
            self._next_place += 1
        return Step(
            name=name,
            place=place,
            kind=StepKind.STEP,
            state=state,
            token=self._claim.token,
            at=self._store.now(),
            value=value,
            is_secret=is_secret,
            version=self._store.version,
        )

    def _describe(self, error: Exception) -> dict[str, str]:
        kind = type(error)
        try:
            reason = str(error)
        except Exception:  # noqa: BLE001  # a user's __str__ may raise anything
            reason = "(the message cannot be shown)"
        return {
            "module": kind.__module__,
            "kind": kind.__qualname__,
            "reason": shorten(self._mask(reason), ERROR_MAX),
        }


def _digest(run: NewRun, total: int) -> str:
    text = "\0".join((run.job, run.args, str(total)))
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _rebuild_end(step: Step) -> SubRunFailed:
    stored = decode(step.value or "null")
    facts = stored if isinstance(stored, dict) else {}
    job, status, reason = (str(facts.get(name, "")) for name in ("job", "status", "reason"))
    return SubRunFailed(step.ref or "", job=job, status=status, reason=reason)


class Gathered(NamedTuple):
    """The runs of a gather, by the names of their steps, and how their results are returned."""

    plans: dict[str, PlannedRun[Any]]
    keys: list[Any] | None

    def collect(self, results: Sequence[Any]) -> Any:
        """The results as a list, or by the keys that were given."""
        return list(results) if self.keys is None else dict(zip(self.keys, results, strict=True))


def gather_plans(calls: Sequence[Any], name: str) -> Gathered:
    """Name the runs of a gather: by their number, or by their key."""
    if len(calls) == 1 and isinstance(calls[0], Mapping):
        by_key = calls[0]
        return Gathered({f"{name}[{key}]": each for key, each in by_key.items()}, list(by_key))
    return Gathered({f"{name}[{place}]": each for place, each in enumerate(calls)}, None)


def rebuild_failure(name: str, stored: Any) -> StepFailed:
    """Make the exception of a stored failure: a StepFailed that also has the original class.

    The class is only looked up among those that are loaded, and never called: a row cannot run
    code. Some classes cannot be combined; then it is a plain StepFailed.
    """
    facts = stored if isinstance(stored, dict) else {}
    kind, reason = str(facts.get("kind", "Exception")), str(facts.get("reason", ""))
    error = StepFailed(name, kind=kind, reason=reason)
    original = _find_class(str(facts.get("module", "")), kind)
    if original is None or issubclass(StepFailed, original):
        return error
    try:
        combined: Any = type("StepFailed", (StepFailed, original), {"__module__": __name__})
        made: StepFailed = combined.__new__(combined)
        made.args = error.args
        made.__dict__.update(error.__dict__)
    except Exception:  # noqa: BLE001  # a metaclass or a __new__ of a user may raise anything
        return error
    return made


def _find_class(module: str, kind: str) -> type[Exception] | None:
    found: Any = sys.modules.get(module)
    for part in kind.split("."):
        found = getattr(found, part, None)
    is_fitting = isinstance(found, type) and issubclass(found, Exception)
    return found if is_fitting else None


IN_STEP: Final[ContextVar[FlowOwner | None]] = ContextVar("tickwork_step", default=None)
"""The context whose step this thread or task executes."""


class AsyncFlow:
    """The steps of a run, for coroutines: ``await ctx.aio.step(...)``.

    Only the database access happens in other threads: functions are called, and the run is
    suspended, on the event loop.
    """

    __slots__ = ("_ctx",)

    def __init__(self, ctx: FlowOwner) -> None:
        self._ctx = ctx

    @overload
    async def step(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    async def step(self, name: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`RunContext.step`. The function may be a coroutine function."""
        return await self._make_step("step", name, partial(function, *args, **kwargs), function)

    @overload
    async def step_using(
        self,
        connection: object,
        name: str,
        function: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def step_using(
        self,
        connection: object,
        name: str,
        function: Callable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...

    async def step_using(
        self, connection: object, name: str, function: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        """As :meth:`RunContext.step_using`, with an async connection."""
        call = partial(function, *args, **kwargs)
        return await self._make_step("step_using", name, call, function, connection)

    async def _make_step(
        self,
        method: str,
        name: str,
        call: Callable[[], Any],
        function: Callable[..., Any],
        connection: object = None,
    ) -> Any:
        flow = await self._open(method)
        if flow is None:
            return await _resolve(call())
        codec = self._ctx.codec_of_step(function)
        step = flow.use_name(name)
        if step is None:
            failures = flow.failed_steps()
            if failures:
                await _CALLS.call(partial(flow.save, failures))
            token = IN_STEP.set(self._ctx)
            try:
                with flow.watch(name):
                    value = await _resolve(call())
            finally:
                IN_STEP.reset(token)
            step = flow.build(name, codec, value)
            if connection is None:
                await _CALLS.call(partial(flow.save, [step]))
            else:
                await flow.save_using_async(connection, [step])
        return flow.read(step, codec)

    async def sleep(self, length: timedelta | float | str, *, name: str | None = None) -> None:
        """As :meth:`RunContext.sleep`."""
        flow = await self._open("sleep")
        if flow is not None:
            flow.sleep(length, name)

    async def sleep_until(self, when: When, *, name: str | None = None) -> None:
        """As :meth:`RunContext.sleep_until`."""
        flow = await self._open("sleep_until")
        if flow is not None:
            flow.sleep_until(when, name)

    async def wait_for(
        self,
        event: str,
        *,
        timeout: timedelta | float | str | None,  # noqa: ASYNC109  # of the run, not of the call
        key: str | None = None,
        name: str | None = None,
        type: Any = Any,  # noqa: A002  # the name that users read
    ) -> Any:
        """As :meth:`RunContext.wait_for`."""
        flow = await self._open("wait_for")
        if flow is None:
            raise no_run("wait_for")
        wanted = WantedEvent(event, key, timeout, name)
        codec = self._ctx.codec_of_type(type)
        step = flow.begin_wait(wanted)
        resolved = await _CALLS.call(partial(flow.resolve, wanted, step))
        return flow.finish_wait(wanted, resolved, codec)

    @overload
    async def call(
        self, job: CanCall[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def call(self, job: CanCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def call(self, job: str, /, *args: Any, **kwargs: Any) -> Any: ...

    async def call(self, job: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`RunContext.call`."""
        planned = plan_call(job, args, kwargs)
        flow = await self._open("call")
        if flow is None:
            return await _resolve(planned.call_directly("call"))
        run = await _CALLS.call(partial(self._ctx.plan, planned))
        return flow.call([(planned.name or run.job, run)])[0]

    @overload
    async def gather(
        self, calls: Mapping[K, PlannedRun[Coroutine[Any, Any, R]]], /, *, name: str = "gather"
    ) -> dict[K, R]: ...
    @overload
    async def gather(
        self, calls: Mapping[K, PlannedRun[R]], /, *, name: str = "gather"
    ) -> dict[K, R]: ...
    @overload
    async def gather(
        self, *calls: PlannedRun[Coroutine[Any, Any, R]], name: str = "gather"
    ) -> list[R]: ...
    @overload
    async def gather(self, *calls: PlannedRun[R], name: str = "gather") -> list[R]: ...

    async def gather(self, *calls: Any, name: str = "gather") -> Any:
        """As :meth:`RunContext.gather`."""
        gathered = gather_plans(calls, name)
        flow = await self._open("gather")
        if flow is None:
            plans = gathered.plans.values()
            return gathered.collect([await _resolve(it.call_directly("gather")) for it in plans])
        runs = await _CALLS.call(
            lambda: [(step, self._ctx.plan(each)) for step, each in gathered.plans.items()]
        )
        return gathered.collect(flow.call(runs))

    async def _open(self, method: str) -> RunFlow | None:
        flow = self._ctx.find_flow(f"aio.{method}")
        if flow is not None and not flow.is_loaded:
            await _CALLS.call(flow.load)
        return flow


async def _resolve(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def no_run(method: str) -> FlowError:
    """The error of a call that needs a run, in a job that is called directly."""
    return FlowError(
        f"ctx.{method}() needs a run.",
        why="The job was called directly, as a function.",
        fix="Dispatch it. In a test, use testing.app() and testing.drain(app).",
    )
