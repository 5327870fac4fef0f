"""From a claim to an outcome: filters, hooks and the handler, wherever the engine runs.

An attempt is a generator that yields the calls to make and is sent what came of them. So it
has no colour: :func:`drive_attempt` makes the calls in a thread, :func:`drive_attempt_async`
on a loop.
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

from tickwork._define.arguments import MASK, names_taken, positionals_taken
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
from tickwork.errors import RunUnsuccessful, StoreError

_log: Final = logging.getLogger("tickwork.run")
_HERE: Final = str(Path(__file__).parent)
ROLLED_BACK: Final = "Its handler completed it in a transaction that was not committed."
_SECRET_MIN: Final = 4
"""Characters below which a secret is not looked for in a text: it would hide half of it."""


class Call(NamedTuple):
    """One call that an attempt wants made."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


class Stopped(BaseException):
    """An attempt was ended from outside. It passes through the attempt, to the engine."""


Attempt: TypeAlias = Generator[Call, Any, Outcome]


def attempt(definition: Definition, ctx: RunContext, *, construct: Construct) -> Attempt:
    """Everything that one attempt calls, in order, and what came of it.

    An exception is an outcome, not an escape. Only what ends the process or the task itself
    passes through.
    """
    options = definition.options
    result: Any = None
    error: BaseException | None = None
    try:
        deferred = yield from _filtered(definition, ctx)
        if deferred is not None:
            return deferred
        for hook in options.before:
            yield _hook(hook, ctx)
        result = yield _handling(definition, ctx, construct)
    except GeneratorExit:
        raise
    except BaseException as raised:  # a handler may raise anything
        if _is_ending(raised):
            raise
        error = raised
        outcome: Outcome = _masked(_failed(raised), definition, ctx)
    else:
        outcome = _masked(_outcome_of(result, definition), definition, ctx)
        if isinstance(outcome, Failed):
            error = RunUnsuccessful(ctx.run_id, status="failed", reason=outcome.error)
        elif isinstance(result, JobResult):
            result = result.output
    if ctx.is_completed:
        outcome, error = yield from _looked_at(ctx, outcome, error)
        result = ctx.output if result is None else result
    if isinstance(outcome, Succeeded):
        yield from _called(options.success, ctx, result)
    elif isinstance(outcome, Failed):
        yield from _called(options.error, ctx, error)
    yield from _called(options.after, ctx, outcome)
    return outcome


def simple_attempt(
    definition: Definition, ctx: RunContext, *, wait: Callable[[Awaitable[Any]], Any]
) -> Outcome:
    """The same as :func:`attempt` for a plain function with nothing around it: most runs."""
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
        return _masked(_failed(raised), definition, ctx)
    finally:
        CURRENT.reset(token)
    return _masked(_outcome_of(result, definition), definition, ctx)


def _arguments(definition: Definition, ctx: RunContext) -> Mapping[str, Any]:
    parameters, args = definition.handler.parameters, ctx.args
    parameters.check(definition.name, args)
    return args if parameters.context is None else {**args, parameters.context: ctx}


async def simple_attempt_async(definition: Definition, ctx: RunContext) -> Outcome:
    """The same on a loop, for a coroutine function."""
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
        return _masked(_failed(raised), definition, ctx)
    finally:
        with suppress(ValueError):  # a task that was closed ends in another context
            CURRENT.reset(token)
    return _masked(_outcome_of(result, definition), definition, ctx)


def after_hooks(definition: Definition, ctx: RunContext, outcome: Outcome) -> Attempt:
    """The hooks that are called when an attempt was ended from outside."""
    error: BaseException | None = None
    if isinstance(outcome, Failed | Crashed):
        reason = outcome.error if isinstance(outcome, Failed) else outcome.reason
        error = RunUnsuccessful(ctx.run_id, status="failed", reason=reason)
    if ctx.is_completed:
        outcome, error = yield from _looked_at(ctx, outcome, error)
    if isinstance(outcome, Succeeded):
        yield from _called(definition.options.success, ctx, ctx.output)
    elif isinstance(outcome, Failed | Crashed):
        yield from _called(definition.options.error, ctx, error)
    yield from _called(definition.options.after, ctx, outcome)
    return outcome


# ---------------------------------------------------------------- driving


def drive_attempt(
    steps: Attempt, ctx: RunContext, *, wait: Callable[[Awaitable[Any]], Any]
) -> Outcome:
    """Make the calls of an attempt in this thread; ``wait`` runs what is awaitable."""
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
                call = steps.throw(raised)
            else:
                call = steps.send(value)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    finally:
        CURRENT.reset(token)


async def drive_attempt_async(steps: Attempt, ctx: RunContext) -> Outcome:
    """The same on a loop."""
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


# ---------------------------------------------------------------- the calls


def _handling(definition: Definition, ctx: RunContext, construct: Construct) -> Call:
    handler = definition.handler
    parameters = handler.parameters
    definition.parameters.check(definition.name, ctx.args)
    function = handler.callable_for(construct)
    if handler.takes_run:
        return Call(function, (ctx,))
    if parameters.context is None:
        return Call(function, (), ctx.args)
    return Call(function, (), {**ctx.args, parameters.context: ctx})


def _filtered(
    definition: Definition, ctx: RunContext
) -> Generator[Call, Any, Skipped | Postponed | None]:
    options = definition.options
    if ctx.attempt > 1:
        return None  # it was let through once
    for check in options.skip:
        if (yield _filter(check, definition, ctx)):
            return Skipped(f"skip: {path_of(check)}")
    for check in options.when:
        if not (yield _filter(check, definition, ctx)):
            reason = f"when: {path_of(check)}"
            return Postponed(reason) if ctx.schedule is None else Skipped(reason)
    return None


def _filter(check: Hook, definition: Definition, ctx: RunContext) -> Call:
    """A filter gets those of the run's arguments that it takes, by name."""
    names = names_taken(check)
    offered: dict[str, Any] = {**definition.defaults, **ctx.args}
    if names is not None:
        offered = {name: value for name, value in offered.items() if name in names}
        offered.update({name: ctx for name in ("ctx", "context") if name in names - offered.keys()})
    return Call(check, (), offered)


def _hook(hook: Hook, *facts: Any) -> Call:
    return Call(hook, facts[: positionals_taken(hook)])


def _called(hooks: tuple[Hook, ...], *facts: Any) -> Generator[Call, Any, None]:
    """Call hooks that can no longer change the outcome: what they raise is logged."""
    for hook in hooks:
        try:
            yield _hook(hook, *facts)
        except GeneratorExit:
            raise
        except BaseException as raised:
            if _is_ending(raised):
                raise
            _log.exception("The hook %s failed; the outcome stands.", path_of(hook))


# ---------------------------------------------------------------- outcomes


def _looked_at(
    ctx: RunContext, outcome: Outcome, error: BaseException | None
) -> Generator[Call, Any, tuple[Outcome, BaseException | None]]:
    """What came of an attempt whose handler completed the run in a transaction of its own.

    That has the last word. Hooks are told what it said, so they wait for this look.
    """
    try:
        has_landed = yield Call(ctx.look_again)
    except StoreError:
        # The database went. Whoever records the outcome looks once more.
        return outcome, error
    if not has_landed:
        if not isinstance(outcome, Succeeded):
            return outcome, error
        undone = Failed(ROLLED_BACK)
        return undone, RunUnsuccessful(ctx.run_id, status="failed", reason=undone.error)
    if error is not None:
        _log.error("The run was completed; what its handler did afterwards failed: %r", error)
    return SUCCEEDED, None


def _outcome_of(result: object, definition: Definition) -> Succeeded | Failed:
    if result is None:
        return SUCCEEDED
    if definition.handler.is_verdict:
        if result is False:
            return Failed("execute() returned False.")
        if result is True:
            return SUCCEEDED
    return outcome_of_result(result, size_max=definition.size_max)


def _failed(raised: BaseException) -> Outcome:
    lines = traceback.format_exception(raised)
    frames = [
        frame
        for frame in traceback.extract_tb(raised.__traceback__)
        if not frame.filename.startswith(_HERE)
    ]
    if raised.__cause__ is None and raised.__context__ is None and frames:
        # The user's own frames: ours say nothing about what went wrong.
        lines = [
            "Traceback (most recent call last):\n",
            *traceback.format_list(frames),
            *traceback.format_exception_only(raised),
        ]
    return outcome_of_exception(raised, traceback="".join(lines))


def _masked(outcome: Outcome, definition: Definition, ctx: RunContext) -> Outcome:
    """The outcome without the values of secret arguments."""
    if not isinstance(outcome, Failed) or not definition.secrets:
        return outcome
    error, trace = outcome.error, outcome.traceback
    for name in definition.secrets & ctx.args.keys():
        value = str(ctx.args[name])
        if len(value) >= _SECRET_MIN:
            error, trace = error.replace(value, MASK), trace.replace(value, MASK)
    return outcome._replace(error=error, traceback=trace)


def _is_ending(raised: BaseException) -> bool:
    """Whether the process, the task or the engine ends, rather than this attempt fails."""
    if isinstance(raised, Stopped):
        return True
    if isinstance(raised, KeyboardInterrupt):
        # Ctrl-C reaches the main thread only. In another one it is what a handler raised.
        return threading.current_thread() is threading.main_thread()
    # By name, so that whoever has no loop need not load one.
    return type(raised).__name__ == "CancelledError" and _is_on_loop()


def _is_on_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001
