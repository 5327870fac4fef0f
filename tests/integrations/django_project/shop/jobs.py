"""The jobs of the shop: found by themselves, because the module is called jobs."""

import asyncio
import os

from django.db import connection, transaction

from shop.models import Order
from tickwork import RunContext
from tickwork.integrations.django import app


@app.job
def ship(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    order.state = "shipped"
    order.save()
    return order.item


@app.job(attempts=3, delays=["0s"])
def count_orders() -> int:
    return Order.objects.count()


@app.job
async def count_orders_async(seconds: float = 0) -> int:
    found = await Order.objects.acount()
    await asyncio.sleep(seconds)
    return found


@app.job
async def block_in_sync_code(seconds: float) -> int:
    from asgiref.sync import sync_to_async

    def query() -> int:
        with connection.cursor() as cursor:
            import time

            cursor.execute("SELECT 1")
            time.sleep(seconds)
            return Order.objects.count()

    return await sync_to_async(query)()


@app.job
def insert_twice(item: str) -> None:
    Order.objects.create(item=item)
    Order.objects.create(item=item)


@app.job
def swallow_an_error(item: str) -> int:
    try:
        with transaction.atomic(), transaction.atomic(savepoint=False):
            Order.objects.create(item=item)
            Order.objects.create(item=item)
    except Exception:
        pass
    return Order.objects.count()


@app.job
def order_and_ship(item: str, fail: bool = False) -> None:
    with transaction.atomic():
        order = Order.objects.create(item=item)
        ship.dispatch(order_id=order.pk)
        if fail:
            raise ValueError("no stock")


@app.job(engine="process")
def count_in_child() -> dict:
    return {"pid": os.getpid(), "orders": Order.objects.count()}


@app.job
def charge(card: str, token: str) -> None:
    raise ValueError(f"the card {card} was refused")


app.schedule("nightly", count_orders).daily().hours(3)


@app.job
def backend() -> int:
    """The id of this thread's connection, on the server."""
    with connection.cursor() as cursor:
        is_postgres = connection.vendor == "postgresql"
        cursor.execute("SELECT pg_backend_pid()" if is_postgres else "SELECT connection_id()")
        return cursor.fetchone()[0]


@app.job
async def backend_async() -> int:
    from asgiref.sync import sync_to_async

    return await sync_to_async(backend)()


@app.job
def order_once(item: str, ctx: RunContext) -> None:
    with transaction.atomic():
        Order.objects.create(item=item)
        ctx.complete(connection=connection)


@app.job
def describe_box(item: str) -> str:
    return f"a box with a {item}"
