"""FastAPI: a worker in the lifespan of the server, and dispatches on the session of a request."""

import asyncio
import json
import threading
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session
from starlette.applications import Starlette

from tickwork import RunContext, RunFilter, RunStatus, Tickwork
from tickwork.errors import InvalidOption, RunNotFound
from tickwork.integrations.fastapi import (
    SessionDispatcher,
    lifespan,
    session_dispatcher,
    stream_progress,
)


@pytest.fixture
def app(tmp_path):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db", install=True) as app:
        app.install()
        yield app


@pytest.fixture
def loops(app):
    """The loops on which a coroutine handler ran, and a request to find the server's."""
    found: list[asyncio.AbstractEventLoop] = []

    @app.job
    async def note_loop() -> None:
        found.append(asyncio.get_running_loop())

    return found


def make_server(app: Tickwork, **options: Any) -> FastAPI:
    web = FastAPI(lifespan=lifespan(app, **options))

    @web.get("/loop")
    async def show_loop() -> dict[str, Any]:
        run = await app.aio.dispatch("note_loop")
        await run.aio.wait(timeout=10)
        return {"loop": id(asyncio.get_running_loop()), "thread": threading.get_ident()}

    return web


class TestLifespan:
    """A worker runs while the server runs."""

    def test_on_a_loop_of_its_own(self, app, loops):
        with TestClient(make_server(app)) as client:
            shown = client.get("/loop").json()

        assert [id(loop) for loop in loops] != [shown["loop"]]
        assert app.inspect.status().workers == []

    def test_on_the_loop_of_the_server(self, app, loops):
        web = make_server(app, loop="server")
        for _ in range(2):  # each client has a loop of its own
            with TestClient(web) as client:
                shown = client.get("/loop").json()
            assert id(loops.pop()) == shown["loop"]

    def test_without_a_client_in_a_block_no_worker_starts(self, app):
        client = TestClient(make_server(app))

        assert client.get("/missing").status_code == 404
        assert app.inspect.status().workers == []

    def test_a_server_that_only_dispatches(self, app, loops):
        with TestClient(make_server(app, work=False)):
            run = app.dispatch("note_loop")
            assert app.inspect.status().workers == []

        assert run.read().status is RunStatus.PENDING

    def test_inside_another_lifespan(self, app, loops):
        steps: list[object] = []

        @asynccontextmanager
        async def outer(_: Any) -> AsyncIterator[None]:
            async with lifespan(app, loop="server", threads=1):
                steps.append(len((await app.aio.status())["workers"]))
                yield
            steps.append("closed")

        with TestClient(Starlette(lifespan=outer)):
            pass
        assert steps == [1, "closed"]

    def test_the_loop_serves_requests_while_attempts_are_drained(self, app):
        """A join that blocked the loop would wait for the coroutine for the whole drain."""
        begun = threading.Event()

        @app.job
        async def slow() -> str:
            begun.set()
            await asyncio.sleep(0.3)
            return "done"

        with TestClient(FastAPI(lifespan=lifespan(app, loop="server", drain="20s"))):
            run = slow.dispatch()
            assert begun.wait(10)
        assert run.result() == "done"

    def test_a_loop_that_does_not_exist(self, app):
        with pytest.raises(InvalidOption, match='must be "own" or "server"'):
            lifespan(app, loop="main")  # type: ignore[arg-type]


class TestDispatcher:
    """Runs are committed with the session of the request."""

    @pytest.fixture
    def client(self, app, tmp_path):
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/jobs.db")
        sessions = async_sessionmaker(engine)
        opened: list[AsyncSession] = []

        async def open_session() -> AsyncIterator[AsyncSession]:
            async with sessions() as session:
                opened.append(session)
                yield session

        async def commit_at_the_end() -> AsyncIterator[AsyncSession]:
            async with sessions.begin() as session:
                opened.append(session)
                yield session

        own = Annotated[AsyncSession, Depends(open_session)]
        jobs = Annotated[SessionDispatcher, Depends(session_dispatcher(app, open_session))]
        ending = Depends(commit_at_the_end, scope="function")
        ended = Annotated[SessionDispatcher, Depends(session_dispatcher(app, ending))]

        @app.job(queue="mail")
        def send(to: str) -> str:
            return to

        @asynccontextmanager
        async def closing(_: FastAPI) -> AsyncIterator[None]:
            async with lifespan(app, work=False):
                yield
            await engine.dispose()

        web = FastAPI(lifespan=closing)

        @web.post("/orders/{name}")
        async def order(name: str, session: own, jobs: jobs) -> dict[str, Any]:
            run = await jobs.dispatch(send, to=name)
            many = await jobs.dispatch_many(send.queue("bulk"), [{"to": "a"}, {"to": "b"}])
            late = await jobs.dispatch(send.delay("1h"), to=name)
            named = await jobs.dispatch("send", to=name)
            if name == "eve@example.org":
                raise HTTPException(404)
            await session.commit()
            return {"runs": [each.id for each in (run, *many, late, named)], "open": len(opened)}

        @web.post("/ended/{name}")
        async def order_at_the_end(
            name: str, session: Annotated[AsyncSession, ending], jobs: ended
        ) -> dict[str, Any]:
            run = await jobs.dispatch(send, to=name)
            assert session is opened[-1]
            return {"run": run.id, "open": len(opened)}

        with TestClient(web) as client:
            yield client

    def test_a_commit_adds_the_runs(self, app, client):
        answer = client.post("/orders/ann@example.org").json()

        assert answer["open"] == 1  # the route and the dispatcher have the same session
        runs = [app.get_run(run_id).read() for run_id in answer["runs"]]
        assert [run.queue for run in runs] == ["mail", "bulk", "bulk", "mail", "mail"]

    def test_an_error_adds_none(self, app, client):
        assert client.post("/orders/eve@example.org").status_code == 404

        assert app.runs.find_ids(RunFilter()) == []

    def test_a_session_that_commits_before_the_answer(self, app, client):
        answer = client.post("/ended/ann@example.org").json()

        assert answer["open"] == 1
        assert app.get_run(answer["run"]).read().job == "send"

    def test_a_session_that_is_not_async(self, app, tmp_path):
        @app.job
        def send() -> None: ...

        engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
        with Session(engine) as session, pytest.raises(InvalidOption, match="async connection"):
            asyncio.run(SessionDispatcher(app, session).dispatch(send))  # type: ignore[arg-type]
        engine.dispose()


class TestProgress:
    """A browser follows a run."""

    @pytest.fixture
    def is_half_way(self) -> threading.Event:
        """Set when the server has sent that a run is half way."""
        return threading.Event()

    @pytest.fixture
    def web(self, app, is_half_way):
        web = FastAPI(lifespan=lifespan(app))

        async def watch(events: AsyncIterable[Any]) -> AsyncIterator[Any]:
            async for text in events:
                if '"share": 0.5' in text:
                    is_half_way.set()
                yield text

        @web.get("/runs/{run_id}")
        async def follow(run_id: str) -> StreamingResponse:
            try:
                answer = await stream_progress(await app.aio.get_run(run_id), poll="20ms")
            except RunNotFound:
                raise HTTPException(404) from None
            answer.body_iterator = watch(answer.body_iterator)
            return answer

        return web

    def read_events(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        parts = [part.splitlines() for part in text.strip().split("\n\n")]
        return [
            (name.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
            for name, data in parts
        ]

    def test_each_change_is_sent_until_the_run_has_finished(self, app, web, is_half_way):
        @app.job
        def export(ctx: RunContext) -> str:
            ctx.progress(0.5, note="half\nway")
            assert is_half_way.wait(30)
            return "the result is not sent"

        with TestClient(web) as client:
            answer = client.get(f"/runs/{export.dispatch().id}")

        events = self.read_events(answer.text)
        half = {"status": "running", "share": 0.5, "note": "half\nway"}
        assert ("progress", half) in events
        assert events[-1] == ("end", {**half, "status": "completed"})
        assert [name for name, _ in events[:-1]] == ["progress"] * (len(events) - 1)
        assert len({json.dumps(values) for _, values in events}) == len(events)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "not sent" not in answer.text

    def test_a_run_that_has_finished_has_one_event(self, app, web):
        run = app.schedule("quick", lambda: None).dispatch()
        app.run()
        with TestClient(web) as client:
            events = self.read_events(client.get(f"/runs/{run.id}").text)

        assert events == [("end", {"status": "completed", "share": None, "note": ""})]

    def test_an_unknown_run_is_not_found(self, web):
        with TestClient(web) as client:
            assert client.get("/runs/01a1e382-72fb-71a5-874e-1a6a23fe5af0").status_code == 404

    async def check_poll(self, app: Tickwork) -> None:
        with pytest.raises(InvalidOption, match="positive"):
            await stream_progress(await app.aio.get_run("x"), poll=0)

    def test_a_poll_without_a_pause_is_refused(self, app):
        asyncio.run(self.check_poll(app))
