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
from typing import Any, Final, NamedTuple, TypeAlias

from tickwork._define.arguments import (
    CONTEXT_NAMES,
    MASK,
    count_positional_parameters,
    parameter_names,
)
from tickwork._define.context import CURRENT, RunContext
from tickwork._define.definition import Definition
from tickwork._define.handlers import Construct, path_of
from tickwork._define.options import Hook
from tickwork._domain.outcome import (
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
from tickwork.errors import AttemptTimeout, RunUnsuccessful, StoreError

_log: Final = logging.getLogger("tickwork.run")
_HERE: Final = str(Path(__file__).parent)
ROLLED_BACK: Final = "Its handler completed it in a transaction that was not committed."
_SECRET_MIN: Final = 4
"""Shorter secrets are not masked in texts: the mask would hide half of the text."""


class PendingCall(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


class Stopped(BaseException):
    """An attempt was ended from outside. The engine catches it, not the attempt."""


AttemptSteps: TypeAlias = Generator[PendingCall, Any, Outcome]

AfterCall: TypeAlias = Callable[[BaseException | None], None]
"""Called with what a handler, a filter or a hook raised, or None."""


def attempt_steps(
    definition: Definition,
    ctx: RunContext,
    *,
    construct: Construct,
    is_late: Callable[[], bool] | None = None,
) -> AttemptSteps:
    """Yield everything that one attempt calls, in order; return the outcome.

    An exception is an outcome. Only exceptions that end the process or the task pass through.
    ``is_late`` is called when the handler has returned: a success after the timeout is a failure,
    and hooks must know it.
    """
    options = definition.options
    result: Any = None
    error: BaseException | None = None
    try:
        filtered = yield from _apply_filters(definition, ctx)
        if filtered is not None:
            return filtered
        for hook in options.before:
            yield _hook_call(hook, ctx)
        result = yield _handler_call(definition, ctx, construct)
    except GeneratorExit:
        raise
    except BaseException as raised:  # a handler may raise anything
        if _is_ending(raised):
            raise
        error = raised
        outcome: Outcome = _mask(_failure(raised), definition, ctx)
    else:
        outcome = _mask(_outcome_of(result, definition), definition, ctx)
        if is_late is not None and is_late() and not isinstance(outcome, Failed):
            error = _timeout_error(definition, ctx)
            outcome = outcome_of_exception(error)
        elif isinstance(outcome, Failed):
            error = RunUnsuccessful(ctx.run_id, status="failed", reason=outcome.error)
        elif isinstance(result, JobResult):
            result = result.output
    if ctx.is_completed:
        outcome, error = yield from _check_completion(ctx, outcome, error)
        result = ctx.output if result is None else result
    if isinstance(outcome, Succeeded):
        yield from _call_hooks(options.success, ctx, result)
    elif isinstance(outcome, Failed):
        yield from _call_hooks(options.error, ctx, error)
    yield from _call_hooks(options.after, ctx, outcome)
    return outcome


def simple_attempt(
    definition: Definition, ctx: RunContext, *, wait: Callable[[Awaitable[Any]], Any]
) -> Outcome:
    """Make an attempt at a job without filters, hooks and timeout. This is the hot path."""
    token = CURRENT.set(ctx)
    try:
        result = definition.handler.call(**_arguments(definition, ctx))
        if result is None:
            return SUCCEEDED
        if inspect.isawaitable(result):
            result = wait(result)
    except BaseException as raised:  # a handler may raise anything
        if _is_ending(raised):
            raise
        return _mask(_failure(raised), definition, ctx)
    finally:
        CURRENT.reset(token)
    return _mask(_outcome_of(result, definition), definition, ctx)


def _arguments(definition: Definition, ctx: RunContext) -> Mapping[str, Any]:
    parameters, args = definition.handler.parameters, ctx.args
    parameters.check(definition.name, args)
    return args if parameters.context is None else {**args, parameters.context: ctx}


async def simple_attempt_async(definition: Definition, ctx: RunContext) -> Outcome:
    """As :func:`simple_attempt`, for a coroutine function on an event loop."""
    token = CURRENT.set(ctx)
    try:
        result = definition.handler.call(**_arguments(definition, ctx))
        if inspect.isawaitable(result):
            result = await result
        if result is None:
            return SUCCEEDED
    except GeneratorExit:
        raise  # this coroutine itself is being closed
    except BaseException as raised:  # a handler may raise anything
        if _is_ending(raised):
            raise
        return _mask(_failure(raised), definition, ctx)
    finally:
        with suppress(ValueError):  # a task that was closed ends in another context
            CURRENT.reset(token)
    return _mask(_outcome_of(result, definition), definition, ctx)


def timeout_failure(definition: Definition, ctx: RunContext) -> Failed:
    failed = outcome_of_exception(_timeout_error(definition, ctx))
    assert isinstance(failed, Failed), failed
    return failed


def _timeout_error(definition: Definition, ctx: RunContext) -> AttemptTimeout:
    timeout = definition.spec.timeout
    assert timeout is not None, definition
    return AttemptTimeout(ctx.run_id, timeout=timeout)


def after_hooks(definition: Definition, ctx: RunContext, outcome: Outcome) -> AttemptSteps:
    """Yield the hooks to call after an attempt was ended from outside."""
    error: BaseException | None = None
    if isinstance(outcome, Failed | Crashed):
        reason = outcome.error if isinstance(outcome, Failed) else outcome.reason
        error = RunUnsuccessful(ctx.run_id, status="failed", reason=reason)
    if ctx.is_completed:
        outcome, error = yield from _check_completion(ctx, outcome, error)
    if isinstance(outcome, Succeeded):
        yield from _call_hooks(definition.options.success, ctx, ctx.output)
    elif isinstance(outcome, Failed | Crashed):
        yield from _call_hooks(definition.options.error, ctx, error)
    yield from _call_hooks(definition.options.after, ctx, outcome)
    return outcome


def drive_attempt(
    steps: AttemptSteps,
    ctx: RunContext,
    *,
    wait: Callable[[Awaitable[Any]], Any],
    after_call: AfterCall | None = None,
) -> Outcome:
    """Make the calls of an attempt in this thread; ``wait`` runs awaitables to their end."""
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
                call = steps.throw(RuntimeError("The handler raised GeneratorExit."))
            except BaseException as raised:  # noqa: BLE001  # the attempt decides
                if after_call is not None:
                    after_call(raised)
                call = steps.throw(raised)
            else:
                if after_call is not None:
                    after_call(None)
                call = steps.send(value)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    finally:
        CURRENT.reset(token)


async def drive_attempt_async(steps: AttemptSteps, ctx: RunContext) -> Outcome:
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
                raise  # this coroutine itself is being closed
            except BaseException as raised:  # noqa: BLE001  # the attempt decides
                call = steps.throw(raised)
            else:
                call = steps.send(value)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    finally:
        with suppress(ValueError):  # a task that was closed ends in another context
            CURRENT.reset(token)


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
    if ctx.attempt > 1:
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


def _hook_call(hook: Hook, *values: Any) -> PendingCall:
    return PendingCall(hook, values[: count_positional_parameters(hook)])


def _call_hooks(hooks: tuple[Hook, ...], *values: Any) -> Generator[PendingCall, Any, None]:
    """Call hooks that can no longer change the outcome. Their exceptions are logged."""
    for hook in hooks:
        try:
            yield _hook_call(hook, *values)
        except GeneratorExit:
            raise
        except BaseException as raised:
            if _is_ending(raised):
                raise
            _log.exception("The hook %s failed; the outcome does not change.", path_of(hook))


def _check_completion(
    ctx: RunContext, outcome: Outcome, error: BaseException | None
) -> Generator[PendingCall, Any, tuple[Outcome, BaseException | None]]:
    """Decide the outcome when the handler completed the run in its own transaction.

    The outcome depends on whether that transaction was committed. It is decided before the hooks
    are called, because they get it.
    """
    try:
        has_landed = yield PendingCall(ctx.is_committed)
    except StoreError:
        # The database is unreachable. The writer checks again when it records the outcome.
        return outcome, error
    if not has_landed:
        if not isinstance(outcome, Succeeded):
            return outcome, error
        undone = Failed(ROLLED_BACK)
        return undone, RunUnsuccessful(ctx.run_id, status="failed", reason=undone.error)
    if error is not None:
        _log.error("The run was completed; its handler failed afterwards: %r", error)
    return SUCCEEDED, None


def _outcome_of(result: object, definition: Definition) -> Succeeded | Failed:
    if result is None:
        return SUCCEEDED
    if definition.handler.returns_success:
        if result is False:
            return Failed("execute() returned False.")
        if result is True:
            return SUCCEEDED
    return outcome_of_result(result, size_max=definition.size_max)


def _failure(raised: BaseException) -> Outcome:
    lines = traceback.format_exception(raised)
    frames = [
        frame
        for frame in traceback.extract_tb(raised.__traceback__)
        if not frame.filename.startswith(_HERE)
    ]
    if raised.__cause__ is None and raised.__context__ is None and frames:
        # Show the user's frames only.
        lines = [
            "Traceback (most recent call last):\n",
            *traceback.format_list(frames),
            *traceback.format_exception_only(raised),
        ]
    return outcome_of_exception(raised, traceback="".join(lines))


def _mask(outcome: Outcome, definition: Definition, ctx: RunContext) -> Outcome:
    """Remove the values of secret arguments from an outcome."""
    if not isinstance(outcome, Failed) or not definition.secrets:
        return outcome
    error, trace = outcome.error, outcome.traceback
    for name in definition.secrets & ctx.args.keys():
        value = str(ctx.args[name])
        if len(value) >= _SECRET_MIN:
            error, trace = error.replace(value, MASK), trace.replace(value, MASK)
    return outcome._replace(error=error, traceback=trace)


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
