"""Answer a link of ``ctx.callback_url`` without a server."""

from typing import Any

from tickwork.app.tickwork import Tickwork


def answer(app: Tickwork, link: str, data: Any = None) -> None:
    """Answer a link, as its page or another program does.

    >>> from tickwork import RunContext, testing
    >>> with testing.app(dashboard_url="https://ops.test", callback_secret="s" * 32) as app:
    ...     @app.job
    ...     def order(ctx: RunContext) -> str:
    ...         ctx.step("ask", lambda: ctx.callback_url("approved", valid="7d"))
    ...         return ctx.wait_for("approved", timeout="7d")
    ...     run = order.dispatch()
    ...     _ = testing.drain(app)
    ...     testing.answer(app, testing.steps(app, run)["ask"], "yes")
    ...     _ = testing.drain(app)
    ...     run.result()
    'yes'

    Raises:
        CallbackRefused: The link is forged or changed, has expired, was used, or the run has ended.
        InvalidOption: The link does not have this answer.
        PayloadError: The data cannot be stored.
    """
    app.callbacks.answer(link, data)
