"""One attempt: filters, hooks and the handler, and the outcome. The same for every engine.

An attempt is a generator. It yields the calls to make and is sent their results, so it is neither
sync nor async: :func:`drive_attempt` makes the calls in a thread, :func:`drive_attempt_async`
on an event loop.
"""

import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tickwork._define.definition import Definition
from tickwork._define.options import Hook
from tickwork._domain.runs.outcome import (
    SUCCEEDED,
    Crashed,
    Failed,
    JobResult,
    Outcome,
    Postponed,
    Skipped,
    Succeeded,
    outcome_of_exception,
    outcome_of_result,
)
from tickwork._handlers.arguments import CONTEXT_NAMES, parameter_names, plan_hook
from tickwork._handlers.context import CURRENT, RunContext
from tickwork._handlers.handlers import Construct, path_of
from tickwork._handlers.middleware import Middleware, is_async_middleware
from tickwork._kernel.fork import ForkCount, exit_if_forked
from tickwork._masks.secret_mask import mask_exception
from tickwork.errors import AttemptTimeout, RunUnsuccessful, StoreError, SuspendRun

_log: Final = logging.getLogger("tickwork.run")
_HERE: Final = str(Path(__file__).parent)
ROLLED_BACK: Final = "Its handler completed it in a transaction that was not committed."
SWALLOWED: Final = Failed(
    "The handler or a middleware caught SuspendRun, which ends an attempt whose run sleeps or "
    "waits, and continued. Catch Exception instead of BaseException, or raise it again.",
    retry=False,
)
"""The outcome of an attempt whose handler continued after the run was suspended."""

_GENERATOR_EXIT: Final = "The handler raised GeneratorExit."


class PendingCall(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


class Stopped(BaseException):
    """An attempt was ended from outside. The engine catches it, not the attempt."""


class AttemptEnd(NamedTuple):
    """How an attempt ended: its outcome, and what its handler returned."""

    outcome: Outcome
    result: Any = None


T = TypeVar("T")
AttemptSteps: TypeAlias = Generator[PendingCall, Any, T]
"""Yields calls, is sent their results, and returns a value."""

Decide: TypeAlias = Callable[[AttemptEnd], AttemptEnd]
"""Decides how an attempt is recorded, given how it ended."""


def attempt_steps(
    definition: Definition,
    ctx: RunContext,
    *,
    construct: Construct,
    is_late: Callable[[], bool] | None = None,
    is_on_loop: bool = False,
) -> AttemptSteps[AttemptEnd]:
    """Yield the calls of filters, ``on_before`` and the handler, in order; return the end.

    An exception is an outcome. Only exceptions that end the process or the task pass through.
    ``is_late`` is called when the handler has returned: a success after the timeout is a failure.
    """
    try:
        filtered = yield from _apply_filters(definition, ctx)
        if filtered is not None:
            return AttemptEnd(filtered)
        # A pair is (in_thread, on_loop).
        middleware = tuple(pair[is_on_loop] for pair in definition.middleware)
        result = yield from _call_wrapped(definition, ctx, construct, middleware)
    except GeneratorExit:
        raise
    except BaseException as raised:  # a handler may raise anything
        if _is_ending(raised):
            raise
        return AttemptEnd(_failure(raised, definition, ctx))
    outcome: Outcome = SWALLOWED if ctx.is_suspending else _outcome_of(result, definition, ctx)
    if is_late is not None and is_late() and not isinstance(outcome, Failed):
        outcome = timeout_failure(definition, ctx)
    return AttemptEnd(outcome, result.output if isinstance(result, JobResult) else result)


def conclude(
    definition: Definition, ctx: RunContext, end: AttemptEnd, decide: Decide
) -> AttemptSteps[Outcome]:
    """Decide how an attempt is recorded, then yield the calls of its hooks; return the outcome.

    Hooks get the outcome that is recorded. They cannot change it.
    """
    if ctx.is_completed:
        end = yield from _check_completion(ctx, end)
    options = definition.options
    if not (options.success or options.error or options.after):
        return end.outcome
    end = decide(end)
    outcome = end.outcome
    if isinstance(outcome, Skipped | Postponed):
        return outcome  # there was no attempt
    error = _error_of(outcome, ctx)
    hook_values = {"ctx": ctx, "outcome": outcome, "result": end.result, "error": error}
    if isinstance(outcome, Succeeded):
        yield from _call_hooks("on_success", options.success, hook_values)
    elif error is not None:
        yield from _call_hooks("on_error", options.error, hook_values)
    yield from _call_hooks("on_after", options.after, hook_values)
    return outcome


def _error_of(outcome: Outcome, ctx: RunContext) -> BaseException | None:
    if isinstance(outcome, Failed):
        reported = RunUnsuccessful(ctx.run_id, status="failed", reason=outcome.error)
        return outcome.exception or reported
    if isinstance(outcome, Crashed):
        return RunUnsuccessful(ctx.run_id, status="failed", reason=outcome.reason)
    return None


def simple_attempt(
    definition: Definition, ctx: RunContext, wait: Callable[[Awaitable[Any]], Any]
) -> Outcome:
    """Make an attempt at a job without filters, hooks and timeout. This is the hot path."""
    handler, args = definition.handler, ctx.args
    parameters = handler.parameters
    token = CURRENT.set(ctx)
    try:
        if parameters.context is not None or args.keys() != parameters.required:
            args = _arguments(definition, ctx)
        result = handler.call(**args)
        if result is None and ctx.flow is None:
            return SUCCEEDED
        if inspect.isawaitable(result):
            result = wait(result)
    except BaseException as raised:  # a handler may raise anything
        if _is_ending(raised):
            raise
        return _failure(raised, definition, ctx)
    finally:
        CURRENT.reset(token)
    return SWALLOWED if ctx.is_suspending else _outcome_of(result, definition, ctx)


def _arguments(definition: Definition, ctx: RunContext) -> Mapping[str, Any]:
    parameters, args = definition.handler.parameters, ctx.args
    if args.keys() != parameters.required:
        parameters.check(definition.name, args)
    return args if parameters.context is None else {**args, parameters.context: ctx}


async def simple_attempt_async(definition: Definition, ctx: RunContext) -> Outcome:
    """As :func:`simple_attempt`, for a coroutine function on an event loop."""
    token = CURRENT.set(ctx)
    try:
        result = definition.handler.call(**_arguments(definition, ctx))
        if inspect.isawaitable(result):
            result = await result
        if result is None and ctx.flow is None:
            return SUCCEEDED
    except GeneratorExit:
        raise  # this coroutine itself is being closed
    except BaseException as raised:  # a handler may raise anything
        if _is_ending(raised):
            raise
        return _failure(raised, definition, ctx)
    finally:
        with suppress(ValueError):  # a task that was closed ends in another context
            CURRENT.reset(token)
    return SWALLOWED if ctx.is_suspending else _outcome_of(result, definition, ctx)


def timeout_failure(definition: Definition, ctx: RunContext) -> Outcome:
    timeout = definition.spec.timeout
    assert timeout is not None, definition
    error = AttemptTimeout(ctx.run_id, timeout=timeout)
    return outcome_of_exception(error, retry_errors=definition.options.retry_errors)


def drive_attempt(
    steps: AttemptSteps[T], ctx: RunContext, *, wait: Callable[[Awaitable[Any]], Any]
) -> T:
    """Make the calls of an attempt in this thread; ``wait`` runs awaitables to their end.

    A process that a handler forks ends when its code returns here: its hooks are for the parent.
    """
    forks = ForkCount.value
    token = CURRENT.set(ctx)
    try:
        call = next(steps)
        # An attempt ends: it makes a bounded number of calls.
        while True:
            try:
                value = call.function(*call.args, **call.kwargs)
                if value is not None and inspect.isawaitable(value):
                    value = wait(value)
            except GeneratorExit:
                call = steps.throw(RuntimeError(_GENERATOR_EXIT))
            except BaseException as raised:  # noqa: BLE001  # the attempt decides
                exit_if_forked(forks, is_failed=True)
                call = steps.throw(raised)
            else:
                exit_if_forked(forks, is_failed=False)
                call = steps.send(value)
    except StopIteration as end:
        returned: T = end.value
        return returned
    finally:
        CURRENT.reset(token)


async def drive_attempt_async(
    steps: AttemptSteps[T], ctx: RunContext, *, is_closed: Callable[[], bool]
) -> T:
    """As :func:`drive_attempt`, on an event loop.

    ``is_closed`` tells whether this coroutine is being closed.
    """
    forks = ForkCount.value
    token = CURRENT.set(ctx)
    try:
        call = next(steps)
        # An attempt ends: it makes a bounded number of calls.
        while True:
            try:
                value = call.function(*call.args, **call.kwargs)
                if value is not None and inspect.isawaitable(value):
                    value = await value
            except GeneratorExit:
                if is_closed():
                    raise
                call = steps.throw(RuntimeError(_GENERATOR_EXIT))
            except BaseException as raised:  # noqa: BLE001  # the attempt decides
                exit_if_forked(forks, is_failed=True)
                call = steps.throw(raised)
            else:
                exit_if_forked(forks, is_failed=False)
                call = steps.send(value)
    except StopIteration as end:
        returned: T = end.value
        return returned
    finally:
        with suppress(ValueError):  # a task that was closed ends in another context
            CURRENT.reset(token)


def _call_wrapped(
    definition: Definition,
    ctx: RunContext,
    construct: Construct,
    middleware: tuple[Middleware, ...],
) -> AttemptSteps[Any]:
    """Call ``on_before`` and the handler inside of the middleware, the first one outermost."""
    if not middleware:
        for hook in definition.options.before:
            yield _hook_call("on_before", hook, ctx=ctx)
        return (yield _handler_call(definition, ctx, construct))
    wrapper = middleware[0]
    enter, leave = (
        (_enter_async, _leave_async) if is_async_middleware(wrapper) else (_enter, _leave)
    )
    generator = yield PendingCall(enter, (wrapper, ctx))
    try:
        result = yield from _call_wrapped(definition, ctx, construct, middleware[1:])
    except GeneratorExit:
        raise
    except BaseException as raised:
        yield PendingCall(leave, (wrapper, generator, None, raised))
        if _is_ending(raised):
            raise
        return None  # the middleware handled it
    yield PendingCall(leave, (wrapper, generator, result, None))
    return result


def _enter(wrapper: Any, ctx: RunContext) -> Any:
    generator = wrapper(ctx)
    try:
        next(generator)
    except StopIteration:
        raise _yield_count_error(wrapper) from None
    return generator


async def _enter_async(wrapper: Any, ctx: RunContext) -> Any:
    generator = wrapper(ctx)
    try:
        await anext(generator)
    except StopAsyncIteration:
        raise _yield_count_error(wrapper) from None
    return generator


def _leave(wrapper: Any, generator: Any, result: Any, raised: BaseException | None) -> None:
    try:
        generator.send(result) if raised is None else generator.throw(raised)
    except StopIteration:
        return
    generator.close()
    raise _yield_count_error(wrapper)


async def _leave_async(
    wrapper: Any, generator: Any, result: Any, raised: BaseException | None
) -> None:
    try:
        await (generator.asend(result) if raised is None else generator.athrow(raised))
    except StopAsyncIteration:
        return
    await generator.aclose()
    raise _yield_count_error(wrapper)


def _yield_count_error(wrapper: Any) -> RuntimeError:
    return RuntimeError(f"The middleware {path_of(wrapper)} must yield exactly once.")


def _handler_call(definition: Definition, ctx: RunContext, construct: Construct) -> PendingCall:
    handler = definition.handler
    parameters = handler.parameters
    definition.parameters.check(definition.name, ctx.args)
    function = handler.callable_for(construct)
    if handler.takes_run:
        return PendingCall(function, (ctx,))
    if parameters.context is None:
        return PendingCall(function, (), ctx.args)
    return PendingCall(function, (), {**ctx.args, parameters.context: ctx})


def _apply_filters(
    definition: Definition, ctx: RunContext
) -> Generator[PendingCall, Any, Skipped | Postponed | None]:
    options = definition.options
    if ctx.attempt > 1 or ctx.has_resumed:
        return None  # filters apply to the first attempt only
    for check in options.skip:
        if (yield _filter_call(check, definition, ctx)):
            return Skipped(f"skip: {path_of(check)}")
    for check in options.when:
        if not (yield _filter_call(check, definition, ctx)):
            reason = f"when: {path_of(check)}"
            return Postponed(reason) if ctx.schedule is None else Skipped(reason)
    return None


def _filter_call(check: Hook, definition: Definition, ctx: RunContext) -> PendingCall:
    """Pass to a filter those of the run's arguments that it accepts, by name."""
    names = parameter_names(check)
    offered: dict[str, Any] = {
        **definition.parameters.defaults,
        **definition.defaults,
        **ctx.args,
    }
    if names is not None:
        offered = {name: value for name, value in offered.items() if name in names}
        offered.update({name: ctx for name in CONTEXT_NAMES if name in names - offered.keys()})
    return PendingCall(check, (), offered)


def _hook_call(kind: str, hook: Hook, **hook_values: Any) -> PendingCall:
    names = plan_hook(kind, hook)
    args = tuple(hook_values[fact] for fact in names.positional)
    return PendingCall(
        hook, args, {name: hook_values[fact] for name, fact in names.by_name.items()}
    )


def _call_hooks(
    kind: str, hooks: tuple[Hook, ...], hook_values: Mapping[str, Any]
) -> AttemptSteps[None]:
    """Call hooks that can no longer change the outcome. Their exceptions are logged."""
    for hook in hooks:
        try:
            yield _hook_call(kind, hook, **hook_values)
        except GeneratorExit:
            raise
        except BaseException as raised:
            if _is_ending(raised):
                raise
            error = mask_exception(raised, hook_values["ctx"].mask)
            text = "The hook %s failed; the outcome does not change."
            _log.error(text, path_of(hook), exc_info=error)


def _check_completion(ctx: RunContext, end: AttemptEnd) -> AttemptSteps[AttemptEnd]:
    """Decide the outcome when the handler completed the run in its own transaction.

    The outcome depends on whether that transaction was committed. It is decided before the hooks
    are called, because they get it.
    """
    outcome = end.outcome
    try:
        is_committed = yield PendingCall(ctx.is_committed)
    except StoreError:
        # The database is unreachable. The writer checks again when it records the outcome.
        return end
    if not is_committed:
        return AttemptEnd(Failed(ROLLED_BACK)) if isinstance(outcome, Succeeded) else end
    if isinstance(outcome, Failed):
        _log.error("The run was completed; its handler failed afterwards: %s", outcome.error)
    return AttemptEnd(SUCCEEDED, ctx.output if end.result is None else end.result)


def _outcome_of(result: object, definition: Definition, ctx: RunContext) -> Succeeded | Failed:
    if result is None:
        return SUCCEEDED
    if definition.handler.returns_success:
        if result is False:
            return Failed("execute() returned False.")
        if result is True:
            return SUCCEEDED
    return outcome_of_result(result, encode=definition.payload.encode_result, mask=ctx.mask)


def _failure(raised: BaseException, definition: Definition, ctx: RunContext) -> Outcome:
    if isinstance(raised, SuspendRun):
        return outcome_of_exception(raised)
    lines = traceback.format_exception(raised)
    frames = [
        frame
        for frame in traceback.extract_tb(raised.__traceback__)
        if not frame.filename.startswith(_HERE)
    ]
    if raised.__cause__ is None and raised.__context__ is None and frames:
        # Show the user's frames only. Chained exceptions are shown with all frames.
        lines = [
            "Traceback (most recent call last):\n",
            *traceback.format_list(frames),
            *traceback.format_exception_only(raised),
        ]
    return outcome_of_exception(
        raised,
        traceback="".join(lines),
        retry_errors=definition.options.retry_errors,
        mask=ctx.mask,
    )


def _is_ending(raised: BaseException) -> bool:
    """Whether an exception ends the process, the task or the engine, not only this attempt."""
    if isinstance(raised, Stopped):
        return True
    if isinstance(raised, KeyboardInterrupt):
        # Ctrl-C reaches the main thread only. In another thread, the handler raised it.
        return threading.current_thread() is threading.main_thread()
    # By name: a process without an event loop must not import asyncio for this.
    return type(raised).__name__ == "CancelledError" and _is_on_loop()


def _is_on_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001
