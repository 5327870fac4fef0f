"""``RunContext``: what a handler, filter or hook can know and do about its run."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import shorten
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import RunStatus
from tickwork._handlers.flow import (
    IN_STEP,
    AsyncFlow,
    AttemptPayload,
    CanCall,
    RunFlow,
    StepCodec,
    StepStore,
    WantedEvent,
    gather_plans,
    no_run,
)
from tickwork._handlers.planned_run import PlannedRun, plan_call
from tickwork._kernel.blocking_calls import BlockingCalls, blocks_event_loop
from tickwork._kernel.instants import When
from tickwork._payload.codec import SIZE_MAX, decode, encode
from tickwork.errors import BlockingStep, InvalidTransition, LeaseLost, NestedStep

LOGGER: Final = "tickwork.run"
LINE_MAX: Final = 2_000
"""Characters of a log line that is stored."""

MakeMask: TypeAlias = Callable[[Mapping[str, Any]], Callable[[str], str]]
"""Makes a function that masks the secrets among these arguments."""

_NOT_GIVEN: Final = object()
_CALLS: Final = BlockingCalls()
_WARNED_JOBS: Final = set[str]()
_log: Final = logging.getLogger("tickwork.worker")


P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")


class CanDispatch(Protocol[P]):
    """A job, a builder or a draft."""

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> object:
        """Add a run with these arguments of the handler."""
        ...


class AttemptStore(StepStore, Protocol):
    """What the context of an attempt stores and reads."""

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Store it with the run; False if the claim was lost."""
        ...

    def complete(
        self,
        claim: Claim,
        connection: object,
        *,
        result: str | None,
        follow_ups: Sequence[NewRun] = (),
    ) -> bool:
        """Complete the run in the caller's transaction; False if the claim was lost."""
        ...

    async def complete_async(
        self,
        claim: Claim,
        connection: object,
        *,
        result: str | None,
        follow_ups: Sequence[NewRun] = (),
    ) -> bool: ...

    def plan_run(
        self, job: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> NewRun | None:
        """Make a run of a job, or of a draft, without adding it; None if there is no attempt."""
        ...

    def callback_url(
        self, claim: Claim, event: str, *, valid: timedelta | float | str, answers: Sequence[str]
    ) -> str:
        """A signed link that emits an event of the run."""
        ...

    def is_committed(self, claim: Claim) -> bool:
        """Whether the run was completed under this claim, and that was committed."""
        ...

    def should_stop(self, claim: Claim) -> bool:
        """Whether this attempt should stop, for any reason."""
        ...

    def keep_line(self, claim: Claim, *, level: str, logger: str, message: str) -> None:
        """Store a log line with the run, some time later."""
        ...

    def is_canceled(self, claim: Claim) -> bool:
        """Whether a cancel of this run was requested: it gets no further attempt."""
        ...


_INTERNAL: Final = frozenset(
    {
        *("find_flow", "flow", "follow_ups", "has_seen_cancel", "is_changed", "is_committed"),
        *("is_completed", "keep_line", "mask", "mask_with", "note_completed", "note_saved_steps"),
        *("output", "codec_of_step", "codec_of_type", "plan", "saved_steps", "trace"),
    }
)
"""What engines use of a context, and handlers do not: not offered by completion."""


class RunContext:
    """One attempt at one run, for a handler, filter or hook.

    A parameter with this annotation receives it. It is not an argument of the job::

        def report(account_id: int, ctx: RunContext) -> None:
            ctx.progress(0.5, note="half way")
    """

    # Created for every attempt, so it has few attributes: the claim has the rest.
    __slots__ = (
        "_claim",
        "_completed",
        "_make_mask",
        "_mask",
        "_payload",
        "_store",
        "args",
        "deadline",
        "flow",
        "follow_ups",
        "has_seen_cancel",
    )

    def __dir__(self) -> list[str]:
        return [
            name
            for name in super().__dir__()
            if name not in _INTERNAL and (name[0] != "_" or name.startswith("__"))
        ]

    def __init__(
        self,
        claim: Claim,
        store: AttemptStore,
        args: Mapping[str, Any],
        deadline: datetime | None = None,
        payload: AttemptPayload | None = None,
    ) -> None:
        self._claim = claim
        self._payload = payload  # None: there is no run
        self._store = store
        self._completed: tuple[Any] | None = None  # the result
        self._make_mask: MakeMask | None = None
        self._mask: Callable[[str], str] | None = None
        self.args: Mapping[str, Any] = args
        self.deadline: datetime | None = deadline
        self.has_seen_cancel: bool = False
        self.follow_ups: tuple[NewRun, ...] = ()  # see then()
        self.flow: RunFlow | None = None  # since the first step

    def __repr__(self) -> str:
        return f"RunContext({self.job!r}, run {self.run_id}, attempt {self.attempt})"

    @property
    def run_id(self) -> RunId:
        """The id of the run."""
        return self._claim.run_id

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._claim.job

    @property
    def queue(self) -> str:
        """The queue of the run."""
        return self._claim.queue

    @property
    def tenant(self) -> str:
        """The tenant of the run; empty if there is none."""
        return self._claim.tenant

    @property
    def schedule(self) -> str | None:
        """The schedule that fired the run; None for a run that was dispatched."""
        return self._claim.schedule

    @property
    def nominal_at(self) -> datetime | None:
        """The instant at which its schedule was due; None for a run that was dispatched."""
        return self._claim.nominal_at

    @property
    def target(self) -> str | None:
        """The ``target`` that was given at dispatch: an id of your own."""
        return self._claim.target

    @property
    def trace(self) -> str | None:
        """What the tracer of the application stored with the run at its dispatch."""
        return self._claim.trace

    @property
    def attempt(self) -> int:
        """The number of this attempt, starting at 1."""
        return self._claim.attempt

    @property
    def token(self) -> int:
        """The fencing token of this attempt. It grows with every claim of the run.

        Pass it to systems that you write to. They can reject a write whose token is lower than
        the last one: it comes from an attempt that another worker has taken over.
        """
        return self._claim.token

    @property
    def attempts_max(self) -> int:
        """The number of attempts that the run may have."""
        return self._claim.attempts_max

    @property
    def log(self) -> logging.Logger:
        """A logger. Records of other loggers are stored with the run, too."""
        return logging.getLogger(LOGGER)

    @property
    def is_completed(self) -> bool:
        """Whether :meth:`complete` was called. The commit of that transaction decides."""
        return self._completed is not None

    @property
    def is_changed(self) -> bool:
        """Whether the handler did something about its run that its outcome depends on."""
        return (
            self.has_seen_cancel
            or bool(self.follow_ups)
            or self._completed is not None
            or self.flow is not None
        )

    @property
    def output(self) -> Any:
        """The result that was passed to :meth:`complete`."""
        return None if self._completed is None else self._completed[0]

    def is_canceled(self) -> bool:
        """Whether the handler should stop. A long handler calls this from time to time.

        It is True if the run was canceled, the timeout has passed, the worker stops, or the lease
        could not be extended. When the handler then returns or raises, the run is canceled, has
        failed this attempt, or starts again without costing an attempt.

        """
        self.has_seen_cancel = self.has_seen_cancel or self._store.should_stop(self._claim)
        return self.has_seen_cancel

    def progress(self, share: float, *, note: str = "") -> None:
        """Store the progress: ``share`` from 0 to 1, and a short note.

        It waits for the database. In a coroutine, use :meth:`progress_async`.

        Raises:
            LeaseLost: Another worker has taken over the run. Stop working on it.
        """
        self._warn_if_blocking("progress")
        self._save(progress=self._encode_progress(share, note))

    async def progress_async(self, share: float, *, note: str = "") -> None:
        """As :meth:`progress`, for coroutines: the event loop does not wait for the database."""
        progress = self._encode_progress(share, note)
        await _CALLS.call(lambda: self._save(progress=progress))

    def checkpoint(self, value: Any = _NOT_GIVEN) -> Any:
        """Store a value for the next attempt; without an argument, return the last one.

        It waits for the database. In a coroutine, use :meth:`checkpoint_async`.

        Raises:
            LeaseLost: Another worker has taken over the run. Stop working on it.
        """
        if value is not _NOT_GIVEN:
            self._warn_if_blocking("checkpoint")
            kept = encode(value, size_max=SIZE_MAX)
            self._save(checkpoint=kept)
            self._claim = self._claim._replace(checkpoint=kept)
        return self._read_checkpoint()

    async def checkpoint_async(self, value: Any) -> Any:
        """As ``checkpoint(value)``, for coroutines: the event loop does not wait."""
        kept = encode(value, size_max=SIZE_MAX)
        await _CALLS.call(lambda: self._save(checkpoint=kept))
        self._claim = self._claim._replace(checkpoint=kept)
        return self._read_checkpoint()

    def _read_checkpoint(self) -> Any:
        kept_before = self._claim.checkpoint
        return None if kept_before is None else decode(kept_before)

    @overload
    def then(self, job: str, /, *args: Any, **kwargs: Any) -> None: ...
    @overload
    def then(self, job: "CanDispatch[P]", /, *args: P.args, **kwargs: P.kwargs) -> None: ...

    def then(self, job: Any, /, *args: Any, **kwargs: Any) -> None:
        """Dispatch a run together with the success of this attempt, in the same transaction.

        If the attempt fails, is canceled or is taken over by another worker, no run is added.
        Options come with the job: ``ctx.then(send_email.delay("5m"), to="ann")``.

        Raises:
            ArgumentError: The arguments do not fit the handler of that job.
            JobNotFound: There is no such job.
            InvalidTransition: :meth:`complete` was called before.
        """
        if self.is_completed:
            raise InvalidTransition(
                self.run_id, source=RunStatus.COMPLETED, target=RunStatus.COMPLETED
            )
        if isinstance(job, PlannedRun):
            job, args, kwargs = job.job, job.args, dict(job.kwargs)
        run = self._store.plan_run(job, args, kwargs)
        if run is not None:
            self.follow_ups = (*self.follow_ups, run)

    # ------------------------------------------------------------ steps

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function once over all attempts of this run, and return its value.

        Its value is stored under the name. A later attempt gets the stored value, and the function
        is not called. If the function raises, nothing is stored: the next attempt calls it again.
        If the handler catches the exception and continues, the failure is the result, and later
        attempts raise it again.

        Raises:
            DuplicateStep: The name is used twice in this attempt.
            InvalidStep: The value cannot be stored, or the stored value does not fit the function.
            StepFailed: An earlier attempt recorded that the function failed.
            LeaseLost: Another worker has taken over the run.
        """
        return self._make_step("step", name, partial(function, *args, **kwargs), function)

    def step_using(
        self,
        connection: object,
        name: str,
        function: Callable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """As :meth:`step`, but the value is stored in your own transaction: you commit it.

        The effects of the function in that transaction and the value are stored together, or
        neither of them.
        """
        call = partial(function, *args, **kwargs)
        return self._make_step("step_using", name, call, function, connection)

    def sleep(self, length: timedelta | float | str, *, name: str | None = None) -> None:
        """Suspend the run: it needs no worker until the time has passed.

        The attempt ends here. When the run is due again, the handler starts from the top: steps
        return their stored values, and this call returns at once. ``name`` is needed when a
        handler sleeps twice for the same length.
        """
        flow = self._open_flow("sleep")
        if flow is not None:
            flow.sleep(length, name)

    def sleep_until(self, when: When, *, name: str | None = None) -> None:
        """As :meth:`sleep`, until a moment: an aware datetime, or ISO text."""
        flow = self._open_flow("sleep_until")
        if flow is not None:
            flow.sleep_until(when, name)

    def wait_for(
        self,
        event: str,
        *,
        timeout: timedelta | float | str | None,
        key: str | None = None,
        name: str | None = None,
        type: Any = Any,  # noqa: A002  # the name that users read
    ) -> Any:
        """Wait for an event without a worker, and return its data, rebuilt as ``type``.

        ``app.emit(event, key=...)`` stores the event, before or after this call. Without a key, it
        is an event of this run: ``run.signal(event)``. ``timeout`` None waits for ever.

        Raises:
            EventTimeout: It did not come in time. Later attempts get the same error.
        """
        flow = self._open_flow("wait_for")
        if flow is None:
            raise no_run("wait_for")
        wanted = WantedEvent(event, key, timeout, name)
        step = flow.resolve(wanted, flow.begin_wait(wanted))
        return flow.finish_wait(wanted, step, self.codec_of_type(type))

    @overload
    def call(
        self, job: CanCall[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def call(self, job: CanCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def call(self, job: str, /, *args: Any, **kwargs: Any) -> Any: ...

    def call(self, job: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call another job as a run of its own, and return what its handler returned.

        The run is added once, however often this one is attempted. This run needs no worker while
        it waits. ``job.named("second")`` tells two calls of one job apart. Options come with the
        job: ``ctx.call(resize.queue("slow"), 7)``.

        Raises:
            SubRunFailed: It did not complete. Later attempts get the same error.
            FlowChanged: Another job, or other arguments, were called under this name before.
        """
        planned = plan_call(job, args, kwargs)
        flow = self._open_flow("call")
        if flow is None:
            return planned.call_directly("call")
        run = self.plan(planned)
        return flow.call([(planned.name or run.job, run)])[0]

    @overload
    def gather(
        self, calls: Mapping[K, PlannedRun[Coroutine[Any, Any, R]]], /, *, name: str = "gather"
    ) -> dict[K, R]: ...
    @overload
    def gather(
        self, calls: Mapping[K, PlannedRun[R]], /, *, name: str = "gather"
    ) -> dict[K, R]: ...
    @overload
    def gather(
        self, *calls: PlannedRun[Coroutine[Any, Any, R]], name: str = "gather"
    ) -> list[R]: ...
    @overload
    def gather(self, *calls: PlannedRun[R], name: str = "gather") -> list[R]: ...

    def gather(self, *calls: Any, name: str = "gather") -> Any:
        """Call several runs at once, and return their results in the order of the calls.

        Write ``ctx.gather(resize.plan(1), resize.plan(2))``, or give a mapping to get one. It waits
        for all of them, also if one fails.

        Raises:
            SubRunFailed: One did not complete; ``others`` has the errors of the rest.
            FlowChanged: Other calls were gathered under this name before.
        """
        gathered = gather_plans(calls, name)
        flow = self._open_flow("gather")
        if flow is None:
            plans = gathered.plans.values()
            return gathered.collect([each.call_directly("gather") for each in plans])
        runs = [(step, self.plan(each)) for step, each in gathered.plans.items()]
        return gathered.collect(flow.call(runs))

    def plan(self, planned: PlannedRun[Any]) -> NewRun:
        """Make the run that was planned, without adding it. For steps."""
        run = self._store.plan_run(planned.job, planned.args, planned.kwargs)
        assert run is not None, planned
        return run

    def callback_url(
        self, event: str, *, valid: timedelta | float | str, answers: Sequence[str] = ()
    ) -> str:
        """A signed link with which someone answers ``ctx.wait_for(event)``, once.

        It leads to a page of the dashboard that needs no account. ``answers`` are the buttons on
        the page, and the text of the chosen one is the data of the event; without them, a program
        can send any JSON. It needs the settings ``callback_secret`` and ``dashboard_url``.
        """
        if self._payload is None:
            raise no_run("callback_url")
        return self._store.callback_url(self._claim, event, valid=valid, answers=answers)

    @property
    def aio(self) -> AsyncFlow:
        """The same methods for coroutines: ``await ctx.aio.step(...)``."""
        return AsyncFlow(self)

    @property
    def is_suspending(self) -> bool:
        """Whether the run was suspended in this attempt: True in ``finally`` blocks after it."""
        return self.flow is not None and self.flow.suspension is not None

    @property
    def has_resumed(self) -> bool:
        """Whether the run was suspended before this attempt."""
        return self._claim.has_resumed

    def find_flow(self, method: str) -> RunFlow | None:
        """The steps of this attempt, which may not be loaded; None without a run.

        Raises:
            NestedStep: The call comes from a step, or from another thread.
            InvalidTransition: :meth:`complete` was called before.
        """
        if self._payload is None:
            return None
        if IN_STEP.get() is self:
            raise NestedStep(f"ctx.{method}", "inside of a step")
        if CURRENT.get() is not self:
            raise NestedStep(f"ctx.{method}", "in another thread than that of the handler")
        if self.is_completed:
            raise InvalidTransition(
                self.run_id, source=RunStatus.COMPLETED, target=RunStatus.RUNNING
            )
        flow = self.flow
        if flow is None:
            flow = self.flow = RunFlow(self._claim, self._store, self.mask)
        return flow

    def codec_of_step(self, function: Callable[..., Any]) -> StepCodec:
        """How the value of this function is stored."""
        assert self._payload is not None, self
        return self._payload.for_step(function)

    def codec_of_type(self, kind: Any) -> StepCodec:
        """How values of this type are stored."""
        assert self._payload is not None, self
        return self._payload.for_type(kind)

    @property
    def saved_steps(self) -> int:
        """How many steps this attempt has stored: it has made progress. For engines."""
        return 0 if self.flow is None else self.flow.saved

    def note_saved_steps(self, count: int) -> None:
        """Note the same in the process that did not make the attempt. For engines."""
        if count:
            self.flow = RunFlow(self._claim, self._store, self.mask, saved=count)

    def _open_flow(self, method: str) -> RunFlow | None:
        if self._payload is not None and self._payload.is_async:
            raise BlockingStep(method)
        flow = self.find_flow(method)
        if flow is not None and not flow.is_loaded:
            flow.load()
        return flow

    def _make_step(
        self,
        method: str,
        name: str,
        call: Callable[[], R],
        function: Callable[..., R],
        connection: object = None,
    ) -> R:
        flow = self._open_flow(method)
        if flow is None:
            return call()
        codec = self.codec_of_step(function)
        step = flow.use_name(name)
        if step is None:
            flow.save(flow.failed_steps())
            token = IN_STEP.set(self)
            try:
                with flow.watch(name):
                    value = call()
            finally:
                IN_STEP.reset(token)
            step = flow.build(name, codec, value)
            flow.save([step]) if connection is None else flow.save_using(connection, [step])
        rebuilt: R = flow.read(step, codec)
        return rebuilt

    # ------------------------------------------------------------ the end

    def complete(self, *, connection: object, result: Any = None) -> None:
        """Complete this run in your own transaction: it commits with your writes, or not at all.

        Commit before the handler returns. If the transaction was rolled back, the attempt
        fails. After the commit the run is completed, even if the handler raises. Runs that
        :meth:`then` dispatched before are added in the same transaction.

        Raises:
            LeaseLost: Another worker has taken over or finished the run. Roll back.
            WrongConnection: The connection belongs to another database.
        """
        stored = self._encode_result(result)
        is_done = self._store.complete(
            self._claim, connection, result=stored, follow_ups=self.follow_ups
        )
        self._note_completed(result, is_done=is_done)

    async def complete_async(self, *, connection: object, result: Any = None) -> None:
        """Complete this run in a transaction of an async connection."""
        stored = self._encode_result(result)
        is_done = await self._store.complete_async(
            self._claim, connection, result=stored, follow_ups=self.follow_ups
        )
        self._note_completed(result, is_done=is_done)

    def _encode_result(self, result: Any) -> str | None:
        if result is None:
            return None
        return encode(result) if self._payload is None else self._payload.encode_result(result)

    def _note_completed(self, result: Any, *, is_done: bool) -> None:
        if not is_done:
            raise LeaseLost(self.run_id, token=self._claim.token)
        self._completed, self.follow_ups = (result,), ()

    def keep_line(self, level: str, logger: str, message: str) -> None:
        """Store a log line with the run. Records of all loggers are stored so."""
        message = shorten(self.mask(message), LINE_MAX)
        self._store.keep_line(self._claim, level=level, logger=logger, message=message)

    def mask_with(self, make: MakeMask) -> None:
        """Mask texts of this attempt. For engines: the mask is made when it is first needed."""
        self._make_mask = make

    def mask(self, text: str) -> str:
        """Replace the values of secret arguments in a text by ``***``."""
        if self._make_mask is None:
            return text
        if self._mask is None:
            self._mask = self._make_mask(self.args)
        return self._mask(text)

    def note_completed(self) -> None:
        """Note that :meth:`complete` was called in the process that runs this attempt."""
        self._completed = (None,)

    def is_committed(self) -> bool:
        """Read whether the transaction of :meth:`complete` was committed. For engines."""
        return self._store.is_committed(self._claim)

    def _encode_progress(self, share: float, note: str) -> str:
        if not 0 <= share <= 1:
            raise ValueError(f"progress must be between 0 and 1, got {share}.")
        return encode({"share": share, "note": self.mask(note)})

    def _warn_if_blocking(self, method: str) -> None:
        """Warn once for each job if its event loop stands still while this waits."""
        if self.job not in _WARNED_JOBS and blocks_event_loop():
            _WARNED_JOBS.add(self.job)
            _log.warning(
                "The job %r calls ctx.%s() in a coroutine: its event loop stands still until the "
                "database has stored it. Write `await ctx.%s_async(...)`.",
                *(self.job, method, method),
            )

    def _save(self, *, progress: str | None = None, checkpoint: str | None = None) -> None:
        if not self._store.save(self._claim, progress=progress, checkpoint=checkpoint):
            raise LeaseLost(self.run_id, token=self._claim.token)


CURRENT: Final[ContextVar[RunContext | None]] = ContextVar("tickwork_run", default=None)
"""The attempt that this thread or task runs."""


def current_run() -> RunContext | None:
    """Return the context of the current attempt, for code that a handler calls."""
    return CURRENT.get()
