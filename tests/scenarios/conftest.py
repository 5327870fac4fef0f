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


@pytest.fixture
def projects(tmp_path: Path, postgres_url: str) -> Iterator[list[Project]]:
    """One on each kind of database, at the same time: for what takes its time."""
    folders = [tmp_path / "sqlite", tmp_path / "postgres"]
    for folder in folders:
        folder.mkdir()
    urls = [f"sqlite:///{folders[0]}/jobs.db?synchronous=NORMAL", postgres_url]
    with Project(folders[0], urls[0]) as first, Project(folders[1], urls[1]) as second:
        yield [first, second]
