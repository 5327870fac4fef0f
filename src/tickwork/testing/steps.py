"""What a run has stored in its steps."""

from typing import Any

from tickwork._dispatch.runs import RunHandle
from tickwork._domain.identity import RunId
from tickwork._payload.codec import decode
from tickwork.app.tickwork import Tickwork


def steps(app: Tickwork, run: RunHandle[Any] | str) -> dict[str, Any]:
    """The steps of a run in the order in which they were stored: names, and values as JSON.

    The value of a sleep is None, that of a failed step describes the exception.

    >>> from tickwork import RunContext, testing
    >>> with testing.app() as app:
    ...     @app.job
    ...     def order(ctx: RunContext) -> None:
    ...         ctx.step("charge", int)
    ...         ctx.sleep("3d")
    ...     run = order.dispatch()
    ...     done = testing.drain(app)
    ...     testing.steps(app, run), len(done), len(done.suspended)
    ({'charge': 0, 'sleep:3d': None}, 0, 1)
    """
    run_id = RunId(run) if isinstance(run, str) else run.id
    found = app._services.opened_store.load_steps(run_id)
    return {step.name: None if step.value is None else decode(step.value) for step in found}
