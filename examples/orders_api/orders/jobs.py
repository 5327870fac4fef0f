"""The jobs. A worker runs them: ``tickwork -a orders.jobs:app work``."""

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import func, select

from orders.database import URL, Base, Order, engine, sessions
from tickwork import JobDefaults, RunContext, Tickwork

app = Tickwork(URL, defaults=JobDefaults(attempts=5, timeout="1m"))
log = logging.getLogger("orders")


@dataclass(frozen=True)
class Confirmation:
    """What a confirmation needs. It is checked at the dispatch, and rebuilt for the handler."""

    order: int
    email: str
    total: Decimal


@app.middleware
def measure(ctx: RunContext) -> Iterator[None]:
    """Log how long each attempt took. Records of an attempt have its run_id, job and attempt."""
    started = time.monotonic()
    try:
        yield
    finally:
        log.info("%s took %.3f s.", ctx.job, time.monotonic() - started)


@app.job(queue="emails")
async def confirm(confirmation: Confirmation) -> str:
    """Send a confirmation, and remember that it was sent."""
    async with sessions.begin() as session:
        order = await session.get_one(Order, confirmation.order)
        if order.is_confirmed:
            return "was confirmed before"  # an attempt may be repeated: check first
        log.info("To %s: your order of %s was placed.", confirmation.email, confirmation.total)
        order.is_confirmed = True
    return "confirmed"


@app.job
async def report_sales() -> str:
    """Sum up the orders. Fired by the schedule below."""
    async with sessions() as session:
        total = await session.scalar(select(func.coalesce(func.sum(Order.total), 0)))
    return f"{total:.2f}"


app.schedule("daily_sales", report_sales).daily_at("07:00").timezone("Europe/Berlin")


async def create_tables() -> None:
    """Create the tables of the program and of tickwork: ``python -m orders.jobs``."""
    await app.aio.install()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(create_tables())
