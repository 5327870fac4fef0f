"""The Celery engine without a broker, or with the one of kombu that lives in this process."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Reject

from tickwork import Tickwork
from tickwork._domain.identity import RunId
from tickwork._domain.runs.handover import Handover
from tickwork._engines.remote.celery import TASK, CeleryTransport, check_broker, connect
from tickwork.errors import (
    DefinitionError,
    EngineMissing,
    EngineUnavailable,
    HandoverRejected,
    InvalidOption,
    StoreUnavailable,
)
from tickwork.integrations.celery import celery_task


def a_celery(broker: str = "memory://") -> Celery:
    return Celery("shop", broker=broker, set_as_current=False)


def executing(error: Exception | None = None) -> Any:
    def execute(message: object, *, is_redelivered: bool = False) -> int:
        del message, is_redelivered
        if error is not None:
            raise error
        return 1

    return execute


def received(celery: Celery, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with celery.connection_for_read() as connection, connection.SimpleQueue(queue) as messages:
        while len(messages):
            message = messages.get(timeout=1)
            found.append({"id": message.headers["id"], "args": message.payload[0]})
            message.ack()
    return found


class TestTransport:
    def test_a_message_has_the_external_id_and_no_arguments(self):
        celery = a_celery()
        options = connect(celery, executing(), queue="first", runs_max=20)
        transport = CeleryTransport(options)

        transport.submit(
            [[Handover(RunId("a"), 1)], [Handover(RunId("b"), 1), Handover(RunId("c"), 2)]]
        )

        assert received(celery, "first") == [
            {"id": "a:1", "args": [{"v": 1, "runs": [["a", 1]]}]},
            {"id": "b:1+1", "args": [{"v": 1, "runs": [["b", 1], ["c", 2]]}]},
        ]
        transport.close()

    @pytest.mark.parametrize("broker", ["amqp://127.0.0.1:9//", "redis://127.0.0.1:9/0"])
    def test_a_broker_that_is_away(self, broker):
        celery = a_celery(broker)
        options = connect(celery, executing(), queue=None, runs_max=20)

        with pytest.raises(EngineUnavailable, match="does not answer"):
            check_broker(options)

    def test_a_broker_that_answers(self):
        options = connect(a_celery(), executing(), queue="x", runs_max=1)

        assert check_broker(options) == "memory://, queue x"


class FakeConnection:
    """A connection of kombu that counts how often it was released."""

    def __init__(self, connection: Any, *, is_broken: bool = False) -> None:
        self._connection = connection
        self._is_broken = is_broken
        self.released = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def release(self) -> None:
        self.released += 1
        self._connection.release()
        if self._is_broken:
            raise ConnectionError("broken")


class TestConnections:
    """Each connection to a broker is released, also when it is broken."""

    @pytest.fixture(params=[False, True], ids=["works", "cannot be closed"])
    def opened(self, request, monkeypatch) -> Iterator[list[FakeConnection]]:
        opened: list[FakeConnection] = []
        connect_to = Celery.connection_for_write

        def connection_for_write(celery: Celery, **options: Any) -> FakeConnection:
            opened.append(FakeConnection(connect_to(celery, **options), is_broken=request.param))
            return opened[-1]

        monkeypatch.setattr(Celery, "connection_for_write", connection_for_write)
        yield opened
        assert [connection.released for connection in opened] == [1] * len(opened)

    def test_after_a_check(self, opened):
        check_broker(connect(a_celery(), executing(), queue="x", runs_max=1))

        assert len(opened) == 1

    def test_when_the_engine_stops_and_when_it_sends_again(self, opened):
        transport = CeleryTransport(connect(a_celery(), executing(), queue="x", runs_max=1))
        for _ in range(2):
            transport.submit([[Handover(RunId("a"), 1)]])
            transport.submit([[Handover(RunId("b"), 1)]])
            transport.close()
            transport.close()

        assert len(opened) == 2

    def test_after_a_failure(self, opened, monkeypatch):
        transport = CeleryTransport(connect(a_celery(), executing(), queue="x", runs_max=1))
        transport.submit([[Handover(RunId("a"), 1)]])
        monkeypatch.setattr(transport._publisher._producer, "publish", lambda *_, **__: 1 / 0)

        with pytest.raises(EngineUnavailable):
            transport.submit([[Handover(RunId("b"), 1)]])
        assert [connection.released for connection in opened] == [1]

        transport.submit([[Handover(RunId("b"), 1)]])
        transport.close()
        assert len(opened) == 2


class TestTask:
    @pytest.mark.parametrize(
        ("broker", "is_late"), [("amqp://x//", True), ("redis://x/0", False), ("memory://", True)]
    )
    def test_late_acknowledgement_where_the_broker_delivers_again_at_once(self, broker, is_late):
        celery = a_celery(broker)
        connect(celery, executing(), queue=None, runs_max=20)

        task = celery.tasks[TASK]

        assert (task.acks_late, task.reject_on_worker_lost) == (is_late, is_late)

    def test_a_message_of_another_version_is_logged_and_dropped(self, caplog):
        celery = a_celery()
        connect(celery, executing(HandoverRejected("It has version 2.")), queue=None, runs_max=1)

        assert celery.tasks[TASK]({"v": 2}) == 0
        assert "It has version 2." in caplog.text

    def test_a_message_returns_to_the_broker_while_the_database_is_away(self):
        celery = a_celery()
        away = StoreUnavailable("postgresql://db/jobs", reason="refused")
        connect(celery, executing(away), queue=None, runs_max=1)

        with pytest.raises(Reject) as caught:
            celery.tasks[TASK]({})

        assert caught.value.requeue


class TestMistakes:
    @pytest.mark.parametrize("given", [None, "amqp://", object()])
    def test_something_else_than_a_celery_application(self, given):
        with pytest.raises(InvalidOption, match="must be a Celery application"):
            Tickwork("memory://").use_celery(given)

    @pytest.mark.parametrize("runs_max", [0, 501])
    def test_runs_of_a_message(self, runs_max):
        with pytest.raises(InvalidOption, match="between 1 and 500"):
            Tickwork("memory://").use_celery(a_celery(), runs_max=runs_max)

    def test_a_task_without_a_name(self):
        with pytest.raises(InvalidOption, match="name of a Celery task"):
            celery_task(" ")

    def test_a_task_with_an_option_that_a_message_cannot_have(self):
        with pytest.raises(InvalidOption, match=r"has no option 'link'(?s:.*)countdown"):
            celery_task("shop.send", link="other")

    def test_a_job_without_a_celery_application(self):
        app = Tickwork("memory://")
        app.job(lambda: None, name="x", engine="celery")  # type: ignore[call-overload]

        with pytest.raises(DefinitionError, match="use_celery"):
            app.start()

    def test_celery_is_not_installed(self, monkeypatch):
        app = Tickwork("memory://")
        app.job(name="x", engine="celery")(lambda: None)
        monkeypatch.setitem(sys.modules, "celery", None)

        for act in (app.start, lambda: celery_task("x"), lambda: app.use_celery(object())):
            with pytest.raises(EngineMissing, match=r"pip install '\.\[celery\]'"):
                act()
        check = next(each for each in app.check_health() if each.name == "engine celery")
        assert "not installed" in check.text

    def test_an_unknown_engine(self):
        with pytest.raises(InvalidOption, match="celery"):
            Tickwork("memory://").job(name="x", engine="celry")(lambda: None)


class TestCeleryTask:
    def test_the_run_sends_the_task_by_name(self):
        celery = a_celery()
        with Tickwork("memory://") as app:
            app.schedule("x", celery_task("shop.send", celery=celery, args=[1], queue="mail"))
            run = app.dispatch("x", to="ann")
            app.run()

            assert run.result() == run.id
            [message] = received(celery, "mail")
        assert message["id"] == run.id
        assert message["args"] == [1]
