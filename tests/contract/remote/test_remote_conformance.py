"""Remote engines in the conformance suite, with threads in the place of other processes."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from contract.remote.transport import ListTransport
from tickwork import Tickwork
from tickwork._engines.contract import EngineSetup
from tickwork._engines.remote.remote_engine import RemoteEngine
from tickwork_conformance.engine_jobs import define_jobs
from tickwork_conformance.engines import *  # noqa: F403  # as other programs import it
from tickwork_conformance.engines import TestedEngine


class DeliveredMessages(ListTransport):
    """Its messages are delivered in order, one at a time."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._deliver)
        self._thread.start()

    def _deliver(self) -> None:
        with Tickwork(self.url) as app:
            define_jobs(app)
            while not self._is_over.wait(0.002):
                while self.messages:
                    app.execute_handovers(self.messages.pop(0))

    def cancel(self, handover: Any) -> None:
        self.removed.append(handover.external_id)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def tested_engine(tmp_path, monkeypatch) -> Iterator[TestedEngine]:
    monkeypatch.setattr("tickwork._engines.remote.remote_engine.POLL_IDLE", 0.02)
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL"
    transport = DeliveredMessages(url)

    def build(setup: EngineSetup) -> RemoteEngine:
        return RemoteEngine(setup, transport)

    yield TestedEngine(build, can_end_attempts=False, database_url=url)
    transport.close()
