"""For the stories of workers: `project` is a user's folder on a fresh database of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.project import Project

KINDS = ["sqlite", pytest.param("postgres", marks=[pytest.mark.servers("postgres")])]


@pytest.fixture
def sqlite_project(tmp_path: Path) -> Iterator[Project]:
    # Nothing here is about power cuts.
    with Project(tmp_path, f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL") as project:
        yield project


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_project")
        return
    with Project(tmp_path, request.getfixturevalue("postgres_url")) as project:
        yield project
