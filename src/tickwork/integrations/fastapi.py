"""For FastAPI: a worker inside the server, dispatches on a request's session, progress of runs.

>>> from tickwork.integrations.fastapi import lifespan, session_dispatcher, stream_progress
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from tickwork._dispatch.jobs import AsyncDraft, Dispatchable
from tickwork._dispatch.runs import RunHandle
from tickwork.app.tickwork import Tickwork
from tickwork.errors import ExtraMissing
from tickwork.integrations.run_stream import stream_progress
from tickwork.integrations.starlette import WorkerLifespan, lifespan

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

try:
    from fastapi import Depends
    from fastapi.params import Depends as Dependency
except ImportError as missing:
    raise ExtraMissing("fastapi", extra="fastapi") from missing

__all__ = [
    "SessionDispatcher",
    "WorkerLifespan",
    "lifespan",
    "session_dispatcher",
    "stream_progress",
]

P = ParamSpec("P")
R = TypeVar("R")


class SessionDispatcher:
    """Dispatches jobs in the transaction of one session: the runs are committed with it."""

    def __init__(self, app: Tickwork, session: "AsyncSession") -> None:
        self._app = app
        self._session = session

    @overload
    async def dispatch(self, job: str, /, *args: Any, **kwargs: Any) -> RunHandle[Any]: ...
    @overload
    async def dispatch(
        self, job: Dispatchable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]: ...

    async def dispatch(self, job: Any, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """Add a run of a job, of a draft such as ``job.delay("5m")``, or of the job of a name.

        If the session is rolled back, the run never existed.
        """
        if isinstance(job, str):
            return await self._draft_of(self._app.draft).dispatch(job, *args, **kwargs)
        return await self._draft_of(job).dispatch(*args, **kwargs)

    async def dispatch_many(
        self, job: Dispatchable[..., R], calls: Iterable[Mapping[str, Any]]
    ) -> list[RunHandle[R]]:
        """Add a run for each of these sets of arguments."""
        return await self._draft_of(job).dispatch_many(calls)

    def _draft_of(self, job: Any) -> AsyncDraft[..., Any]:
        draft: AsyncDraft[..., Any] = job.aio.using(self._session)
        return draft


def session_dispatcher(
    app: Tickwork, session: Callable[..., Any] | Dependency
) -> Callable[..., SessionDispatcher]:
    """Make a dependency that dispatches on the session of the request.

    ``session`` is your own dependency that yields an async session of SQLAlchemy. FastAPI calls
    it once for each request, so that the route and the dispatcher have the same session::

        Session = Annotated[AsyncSession, Depends(open_session)]
        Jobs = Annotated[SessionDispatcher, Depends(session_dispatcher(app, open_session))]

        @api.post("/orders")
        async def place_order(session: Session, jobs: Jobs) -> None:
            session.add(Order())
            await jobs.dispatch(confirm)
            await session.commit()

    If the dependency has a scope, repeat it: ``Depends(open_session, scope="function")``.
    Otherwise FastAPI opens a second session.
    """
    dependency = session if isinstance(session, Dependency) else Depends(session)

    def open_dispatcher(session: Any = dependency) -> SessionDispatcher:
        return SessionDispatcher(app, session)

    return open_dispatcher
