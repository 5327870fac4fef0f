"""A handler that is called by hand, as if it were no job."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from tickwork._define.context import RunContext, current_run
from tickwork._define.handlers import Construct, Handler, handler_of, import_handler
from tickwork._domain.identity import RunId
from tickwork._domain.run import NO_ARGS, QUEUE_DEFAULT, Claim

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class DirectCall:
    """Calls what a worker would call, with a context where one is asked for.

    Inside of a run it is that run's context; elsewhere one that belongs to no run, and whose
    verbs do nothing.
    """

    def __init__(self, name: str, target: object, construct: Callable[[], Construct]) -> None:
        self._name = name
        self._target = target
        self._construct = construct

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        function = self._handler.callable_for(self._construct())
        parameters = self._handler.parameters
        if parameters.context is None or any(isinstance(each, RunContext) for each in args):
            return function(*args, **kwargs)
        given = parameters.bind(self._name, args, kwargs) if args else kwargs
        ctx = current_run() or detached(self._name, args=given)
        if self._handler.takes_run:
            return function(ctx)
        return function(**{parameters.context: ctx, **given})

    @cached_property
    def _handler(self) -> Handler:
        target = self._target
        return handler_of(import_handler(target) if isinstance(target, str) else target)


def direct_callable(
    name: str, target: Any, construct: Callable[[], Construct]
) -> Callable[..., Any]:
    """What is called when a job is: the function itself, wherever that is enough."""
    hints = getattr(target, "__annotations__", None)
    if callable(target) and not isinstance(target, type) and isinstance(hints, dict):
        takes_context = any("RunContext" in str(hint) for hint in hints.values())
        if not takes_context:
            function: Callable[..., Any] = target
            return function
    return DirectCall(name, target, construct)


class _NobodysDesk:
    """Stands behind a context that belongs to no run: there is nothing to keep or to finish."""

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Keep nothing."""
        del claim, progress, checkpoint
        return True

    def complete(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """Finish nothing."""
        del claim, connection, result
        return True

    async def complete_async(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """Finish nothing."""
        return self.complete(claim, connection, result=result)

    def has_landed(self, claim: Claim) -> bool:
        """There was nothing to finish."""
        del claim
        return True

    def shall_stop(self, claim: Claim) -> bool:
        """Nobody could want that."""
        del claim
        return False

    def is_canceled(self, claim: Claim) -> bool:
        """Nobody knows of it."""
        del claim
        return False


def detached(job: str, *, args: Mapping[str, Any]) -> RunContext:
    """A context for a handler that is called by hand: it belongs to no run."""
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
    return RunContext(claim, desk=_NobodysDesk(), args=args)
