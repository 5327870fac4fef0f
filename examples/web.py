"""FastAPI with a worker in the same process: ``uvicorn web:web``.

A request dispatches, and answers at once; the worker runs in threads of its own, beside the loop
that serves requests. When there is more to do, start workers beside it (``tickwork -a
web:jobs work``), on this machine or another, and change nothing here.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

from tickwork import RunStatus, Tickwork
from tickwork.errors import RunNotFound

jobs = Tickwork()  # TICKWORK_URL, or tickwork.db in this folder


@jobs.job(retries=5)
def send_receipt(order: int) -> str:
    """A plain function: it runs in a thread."""
    return f"receipt of order {order}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """A worker for as long as the server lives; it has half a minute to end its work."""
    async with jobs.aio:
        with jobs.running(threads=4):
            yield


web = FastAPI(lifespan=lifespan)


@web.post("/orders/{order}")
async def place(order: int) -> dict[str, str]:
    """Take an order. The run is stored when this answers."""
    run = await send_receipt.aio.dispatch(order=order)
    return {"run": run.id}


@web.get("/runs/{run_id}")
async def look(run_id: str) -> dict[str, Any]:
    """How it is doing, and what it returned."""
    run = jobs.get_run(run_id)
    try:
        status = (await run.aio.read()).status
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from error
    result = await run.aio.result() if status is RunStatus.COMPLETED else None
    return {"status": status, "result": result}
