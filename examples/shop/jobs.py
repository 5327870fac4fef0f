"""The jobs of the shop. The URL of the database is in the variable TICKWORK_URL."""

import logging

from tickwork import RunContext, Tickwork

app = Tickwork()
log = logging.getLogger("shop")


@app.job(queue="emails", attempts=5, timeout="30s")
def send_receipt(order: int) -> str:
    """Dispatched when an order is placed: ``send_receipt.dispatch(order=7)``."""
    log.info("Sending the receipt of order %d.", order)
    return f"receipt of order {order}"


@app.job
def count_orders(ctx: RunContext) -> str:
    """Fired by the schedules below, once for each instant."""
    log.info("%s for %s", ctx.schedule, ctx.nominal_at)
    return f"{ctx.schedule} for {ctx.nominal_at}"


app.schedule("pulse", count_orders).every_second()
app.schedule("nightly", count_orders).daily_at("02:30").timezone("Europe/Berlin")
