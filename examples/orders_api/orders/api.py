"""The HTTP interface: ``uvicorn orders.api:api``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncSession

from orders.database import Order, engine, sessions
from orders.jobs import Confirmation, app, confirm
from tickwork.errors import RunNotFound
from tickwork.integrations.fastapi import SessionDispatcher, lifespan, session_dispatcher


@asynccontextmanager
async def work_and_close(_: FastAPI) -> AsyncIterator[None]:
    """Run a worker on the loop of the server: its handlers share the engine with the routes."""
    async with lifespan(app, loop="server"):
        yield
    await engine.dispose()


async def open_session() -> AsyncIterator[AsyncSession]:
    """A session for one request. The request commits it before it answers."""
    async with sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(open_session)]
Jobs = Annotated[SessionDispatcher, Depends(session_dispatcher(app, open_session))]
api = FastAPI(lifespan=work_and_close)


class NewOrder(BaseModel):
    """What a customer sends."""

    email: str
    total: Decimal = Field(gt=0, decimal_places=2)


class PlacedOrder(BaseModel):
    """What the customer gets: the order, and the run that confirms it."""

    id: int
    run: str


@api.post("/orders", status_code=201)
async def place_order(new: NewOrder, session: Session, jobs: Jobs) -> PlacedOrder:
    """Store an order and dispatch its confirmation: both are committed, or neither."""
    order = Order(email=new.email, total=new.total)
    session.add(order)
    await session.flush()
    confirmation = Confirmation(order=order.id, email=order.email, total=order.total)
    run = await jobs.dispatch(confirm, confirmation)
    await session.commit()
    return PlacedOrder(id=order.id, run=run.id)


@api.get("/runs/{run_id}")
async def show_run(run_id: str) -> dict[str, str]:
    """Show how far a run is."""
    try:
        run = await app.get_run(run_id).aio.read()
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from error
    return {"job": run.job, "status": run.status}
