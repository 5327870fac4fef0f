"""The tasks. Run them with ``tickwork -a shop_tasks.tasks:app work``."""

import logging
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from shop_tasks.app import app
from tickwork import RetryLater, RunContext

log = logging.getLogger("shop_tasks")


class Item(NamedTuple):
    """A line of an order."""

    sku: str
    number: int


class PaymentRejected(Exception):  # noqa: N818  # the word of the payment provider
    """The card was rejected. Another attempt would be rejected, too."""


class Provider:
    """Stands for a payment provider. Tests replace its methods."""

    def charge(self, order: int, amount: int, *, key: str) -> str:
        """Charge an amount. The same key charges only once."""
        return f"charge of {amount} for order {order} ({key[:8]})"


provider = Provider()


@app.middleware
def log_task(ctx: RunContext) -> Iterator[None]:
    """What the signals task_prerun and task_postrun are for."""
    log.info("%s %s: attempt %d", ctx.job, ctx.run_id, ctx.attempt)
    yield
    log.info("%s %s: done", ctx.job, ctx.run_id)


# autoretry_for=(ConnectionError,), retry_backoff=10, max_retries=3
@app.job(queue="payments", delays=["10s", "1m", "5m"], retry_on=ConnectionError, rate="10/second")
def charge(ctx: RunContext, order: int, amount: int) -> str:
    """Charge an order, then ship it: a chain. The next task is added with this one's success."""
    receipt = provider.charge(order, amount, key=ctx.run_id)
    ctx.then(ship, order=order, items=[Item("bread", 2)])
    return receipt


@app.job(queue="warehouse")
def ship(order: int, items: list[Item]) -> int:
    """Ship an order. Arguments keep their types: these are Items again."""
    if not items:
        raise RetryLater("1h", "Nothing is packed yet.")  # self.retry(countdown=3600)
    log.info("Order %d: %d items", order, len(items))
    return sum(item.number for item in items)


@app.job(unique={"by": ["day"]})
def report(ctx: RunContext, day: date | None = None) -> str:
    """Report a day; the scheduled ones report the day of their instant."""
    if day is None:
        assert ctx.nominal_at is not None
        day = ctx.nominal_at.date()
    return f"sales of {day:%d %B %Y}"


# beat_schedule = {...}. No beat process: every worker fires schedules, each instant once.
app.schedule("morning-report", report).cron("0 7 * * mon-fri")
