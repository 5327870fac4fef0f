"""FastAPI with a worker in the same process: ``uvicorn web:web``.

A request dispatches a run and returns at once. The worker uses its own threads, beside the event
loop that serves requests, and drains when the server ends. For more capacity start separate workers
(``tickwork -a web:jobs work``) on this machine or on others; nothing has to change here.
"""

from typing import Any

from fastapi import FastAPI, HTTPException

from tickwork import RunStatus, Tickwork
from tickwork.errors import RunNotFound
from tickwork.integrations.fastapi import lifespan

jobs = Tickwork()  # TICKWORK_URL, or tickwork.db in this folder


@jobs.job(attempts=5)
def send_receipt(order: int) -> str:
    """A function runs in a thread of the worker."""
    return f"receipt of order {order}"


web = FastAPI(lifespan=lifespan(jobs, threads=4))


@web.post("/orders/{order}")
async def place(order: int) -> dict[str, str]:
    """Place an order. The run is stored when the response is sent."""
    run = await send_receipt.aio.dispatch(order=order)
    return {"run": run.id}


@web.get("/runs/{run_id}")
async def show(run_id: str) -> dict[str, Any]:
    """Return the status and the result of a run."""
    run = jobs.get_run(run_id)
    try:
        status = (await run.aio.read()).status
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from error
    result = await run.aio.result() if status is RunStatus.COMPLETED else None
    return {"status": status, "result": result}
