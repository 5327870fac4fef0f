"""Calls a handler directly, without a run: ``send_email(to="ann")``."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NO_ARGS, QUEUE_DEFAULT, Claim
from tickwork._domain.runs.steps import Step
from tickwork._handlers.context import RunContext, current_run
from tickwork._handlers.handlers import Construct, Handler, handler_of, import_handler

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class DirectCall:
    """Calls what a worker would call, and passes a context if the handler takes one.

    Inside a run it is the context of that run, with the arguments of that run. Elsewhere it is a
    context without a run, whose methods do nothing.
    """

    def __init__(self, name: str, target: object, construct: Callable[[], Construct]) -> None:
        self._name = name
        self._target = target
        self._construct = construct

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._handler.callable_for(self._construct())
        parameters = self._handler.parameters
        if parameters.context is None or any(isinstance(each, RunContext) for each in args):
            return function(*args, **kwargs)
        arguments = parameters.bind(self._name, args, kwargs) if args else kwargs
        ctx = current_run() or context_without_run(self._name, args=arguments)
        return function(**{parameters.context: ctx, **arguments})

    @cached_property
    def _handler(self) -> Handler:
        target = self._target
        return handler_of(import_handler(target) if isinstance(target, str) else target)


def direct_callable(
    name: str, target: Any, construct: Callable[[], Construct]
) -> Callable[..., Any]:
    """Return what is called when the job is called: the function itself, if it needs no context."""
    hints = getattr(target, "__annotations__", None)
    if callable(target) and not isinstance(target, type) and isinstance(hints, dict):
        takes_context = any("RunContext" in str(hint) for hint in hints.values())
        if not takes_context:
            function: Callable[..., Any] = target
            return function
    return DirectCall(name, target, construct)


class _NullAttemptStore:
    """The store of a context without a run: there is nothing to save, finish or cancel."""

    def save(self, *_: Any, **__: Any) -> bool:
        return True

    def complete(self, *_: Any, **__: Any) -> bool:
        return True

    async def complete_async(self, *_: Any, **__: Any) -> bool:
        return True

    version = ""

    def now(self) -> datetime:
        return _NEVER

    def open_flow(self, *_: Any) -> tuple[Step, ...]:
        return ()

    def resolve_wait(self, *_: Any) -> None:
        return None

    def save_steps(self, *_: Any) -> bool:
        return True

    def save_steps_using(self, *_: Any) -> bool:
        return True

    async def save_steps_using_async(self, *_: Any) -> bool:
        return True

    def plan_run(self, *_: Any) -> None:
        return None

    def decode_result(self, *_: Any) -> None:
        return None

    def callback_url(self, *_: Any, **__: Any) -> str:
        return ""

    def is_committed(self, *_: Any) -> bool:
        return True

    def keep_line(self, *_: Any, **__: Any) -> None:
        return None

    def should_stop(self, *_: Any) -> bool:
        return False

    def is_canceled(self, *_: Any) -> bool:
        return False


def context_without_run(job: str, *, args: Mapping[str, Any]) -> RunContext:
    claim = Claim(
        run_id=RunId(""),
        job=job,
        tenant="",
        queue=QUEUE_DEFAULT,
        args=NO_ARGS,
        attempt=1,
        attempts_max=1,
        crashes=0,
        token=0,
        due_at=_NEVER,
        lease_until=_NEVER,
    )
    return RunContext(claim, store=_NullAttemptStore(), args=args)
