"""``RunContext`` in coroutines: what it stores does not stop the event loop."""

import asyncio
import logging
import threading
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from contract.builders import StoreDriver, a_run, add
from oracle.store import OracleStore
from tickwork._handlers.context import RunContext
from tickwork.errors import LeaseLost
from tickwork.testing import ManualClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class LockedRow:
    """An attempt store whose row another transaction has locked."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_ours = True
        self.saved: list[dict[str, str | None]] = []

    def save(self, _claim, **values):
        assert self.is_free.wait(10)
        self.saved.append(values)
        return self.is_ours


@pytest.fixture
def row():
    return LockedRow()


@pytest.fixture
def ctx(row):
    store = OracleStore()
    add(store, a_run(job=f"walk {uuid4()}"))
    claim = StoreDriver(store, ManualClock(NOON)).claim_one()
    return RunContext(claim, row, {})


def test_other_coroutines_go_on_while_the_database_has_locked_the_row(ctx, row):
    async def handler() -> None:
        await ctx.progress_async(0.5, note="half way")
        assert await ctx.checkpoint_async({"page": 3}) == {"page": 3}

    async def other() -> None:
        row.is_free.set()

    async def both() -> None:
        await asyncio.gather(handler(), other())

    asyncio.run(both())

    assert len(row.saved) == 2
    assert "half way" in row.saved[0]["progress"]
    assert ctx.checkpoint() == {"page": 3}


def test_a_lost_lease_is_raised_where_it_is_awaited(ctx, row):
    row.is_ours = False
    row.is_free.set()

    with pytest.raises(LeaseLost):
        asyncio.run(ctx.progress_async(0.5))


def test_a_blocking_call_in_a_coroutine_warns_once(ctx, row, caplog):
    row.is_free.set()

    async def handler() -> None:
        ctx.progress(0.1)
        ctx.progress(0.2)
        ctx.checkpoint(1)

    with caplog.at_level(logging.WARNING, "tickwork"):
        ctx.progress(0.0)  # outside of a loop
        asyncio.run(handler())

    [record] = caplog.records
    assert "await ctx.progress_async" in record.getMessage()
