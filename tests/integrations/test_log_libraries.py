"""structlog and loguru: their lines have the run during an attempt."""

from collections.abc import Iterator
from typing import Any

import loguru
import pytest
import structlog
from structlog.testing import LogCapture

from tickwork import Tickwork
from tickwork.integrations.loguru import add_run as add_run_to_loguru
from tickwork.integrations.structlog import add_run as add_run_to_structlog


@pytest.fixture
def app():
    with Tickwork("memory://") as app:
        yield app


class TestStructlog:
    """``add_run`` is a processor."""

    @pytest.fixture
    def lines(self) -> Iterator[list[Any]]:
        captured = LogCapture()
        structlog.configure(processors=[add_run_to_structlog, captured])
        yield captured.entries
        structlog.reset_defaults()

    def test_a_line_of_an_attempt_carries_the_run(self, app, lines):
        @app.job
        def send(to: str) -> None:
            structlog.get_logger().info("sent", to=to)

        run = send.dispatch(to="ann")
        app.run()

        [line] = lines
        assert line == {
            "event": "sent",
            "log_level": "info",
            "to": "ann",
            "run_id": run.id,
            "job": "send",
            "attempt": 1,
        }

    def test_a_coroutine_carries_it_too(self, app, lines):
        @app.job
        async def send() -> None:
            structlog.get_logger().info("sent")

        run = send.dispatch()
        app.run()

        assert lines[0]["run_id"] == run.id

    def test_a_line_outside_of_attempts_is_as_it_was(self, lines):
        structlog.get_logger().info("started", job="mine")

        assert lines == [{"event": "started", "log_level": "info", "job": "mine"}]

    def test_a_value_of_the_line_is_kept(self, app, lines):
        app.schedule("send", lambda: structlog.get_logger().info("sent", job="mine")).dispatch()
        app.run()

        assert lines[0]["job"] == "mine"


class TestLoguru:
    """``add_run`` is a patcher."""

    @pytest.fixture
    def lines(self) -> Iterator[list[str]]:
        lines: list[str] = []
        loguru.logger.remove()
        loguru.logger.configure(patcher=add_run_to_loguru)
        sink = loguru.logger.add(
            lambda text: lines.append(str(text).strip()),
            format="{extra[job]} {extra[run_id]} {extra[attempt]} {message}",
        )
        yield lines
        loguru.logger.remove(sink)
        loguru.logger.configure(patcher=lambda record: None)

    def test_a_line_of_an_attempt_carries_the_run(self, app, lines):
        run = app.schedule("send", lambda: loguru.logger.info("sent")).dispatch()
        app.run()

        assert lines == [f"send {run.id} 1 sent"]

    def test_a_line_outside_of_attempts_can_be_formatted(self, lines):
        loguru.logger.info("started")

        assert lines == ["- - - started"]

    def test_a_value_of_the_line_is_kept(self, app, lines):
        app.schedule("send", lambda: loguru.logger.bind(job="mine").info("sent")).dispatch()
        app.run()

        assert lines[0].startswith("mine ")
