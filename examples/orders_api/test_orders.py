"""Each test runs in a transaction that is rolled back: DATABASE_URL=… pytest."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from orders.api import api
from orders.database import Order, engine, sessions
from orders.jobs import app, confirm, create_tables
from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from tickwork import testing
from tickwork.testing import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of the tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def tables() -> None:
    """Create the tables once."""
    asyncio.run(create_tables())


@pytest.fixture
async def session(tables: None) -> AsyncIterator[AsyncSession]:
    """A session in the transaction of the test, which all code under test joins."""
    async with engine.connect() as connection:
        transaction = await connection.begin()
        sessions.configure(bind=connection, join_transaction_mode="create_savepoint")
        async with testing.isolated(app, connection, clock=ManualClock()), sessions() as session:
            yield session
        sessions.configure(bind=engine, join_transaction_mode="conditional_savepoint")
        await transaction.rollback()
    await engine.dispose()


@pytest.fixture
async def client(session: AsyncSession) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API, without a server."""
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://orders") as client:
        yield client


ORDER: dict[str, Any] = {"email": "ann@example.org", "total": "12.50"}


async def test_an_order_is_confirmed(client: httpx.AsyncClient, session: AsyncSession) -> None:
    placed = (await client.post("/orders", json=ORDER)).json()
    await testing.aio.assert_dispatched(app, confirm, queue="emails", times=1)

    [attempt] = await testing.aio.drain(app)

    assert attempt.result == "confirmed"
    assert (await session.get_one(Order, placed["id"])).is_confirmed
    shown = (await client.get(f"/runs/{placed['run']}")).json()
    assert shown == {"job": "confirm", "status": "completed"}


async def test_a_repeated_attempt_sends_no_second_mail(
    client: httpx.AsyncClient, session: AsyncSession
) -> None:
    placed = (await client.post("/orders", json=ORDER)).json()
    (await session.get_one(Order, placed["id"])).is_confirmed = True
    await session.commit()

    [attempt] = await testing.aio.drain(app)

    assert attempt.result == "was confirmed before"


async def test_an_invalid_order_dispatches_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.post("/orders", json={**ORDER, "total": "-1"})

    assert answer.status_code == 422
    await testing.aio.assert_nothing_dispatched(app)


async def test_the_sales_are_reported_every_morning(
    client: httpx.AsyncClient, session: AsyncSession
) -> None:
    session.add_all([Order(email="ann@example.org", total=10), Order(email="bob", total=5)])
    await session.commit()

    reports = (await testing.aio.travel(app, days=2)).of("report_sales")

    assert [report.result for report in reports] == ["15.00", "15.00"]


def test_the_server_runs_a_worker(tables: None) -> None:
    with TestClient(api) as client:
        placed = client.post("/orders", json=ORDER).json()
        for _ in range(100):
            shown = client.get(f"/runs/{placed['run']}").json()
            if shown["status"] == "completed":
                break
            time.sleep(0.1)
        assert client.get("/runs/00000000-0000-0000-0000-000000000000").status_code == 404
    assert shown == {"job": "confirm", "status": "completed"}
    asyncio.run(delete_orders())


async def delete_orders() -> None:
    """Delete what a test has committed."""
    async with sessions.begin() as session:
        await session.execute(delete(Order))
        # The worker has stored it with the real time, which a test's own clock never reaches.
        await session.execute(text("DELETE FROM tickwork_schedule"))
    await engine.dispose()


async def test_nothing_remains(session: AsyncSession) -> None:
    assert await session.scalar(select(func.count()).select_from(Order)) == 0
