"""The engine passes the conformance suite of tickwork."""

from pathlib import Path

import pytest
from http_engine import HttpEngine

from tickwork_conformance.engines import *  # noqa: F403  # the tests
from tickwork_conformance.engines import TestedEngine


@pytest.fixture
def tested_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestedEngine:
    url = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv("TICKWORK_CONFORMANCE_URL", url)  # for the process of the engine
    return TestedEngine(HttpEngine, can_end_attempts=False, database_url=url)
