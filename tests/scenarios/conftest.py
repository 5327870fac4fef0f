"""For the stories of workers: `project` is a user's folder on a fresh database of each kind."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scenarios.project import Project

SERVERS = ["postgres", "mariadb"]
KINDS = ["sqlite", *(pytest.param(kind, marks=[pytest.mark.servers(kind)]) for kind in SERVERS)]


ALIKE = {"test_worker_handlers", "test_worker_processes"}
"""What happens to a handler and its process is the same on any server: the third of them takes its
turn in the long run."""


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if item.path.stem in ALIKE and params.get("project") == "mariadb":
            item.add_marker(pytest.mark.long)


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
    with Project(tmp_path, request.getfixturevalue(f"{request.param}_url")) as project:
        yield project


@pytest.fixture
def projects(tmp_path: Path, postgres_url: str, mariadb_url: str) -> Iterator[list[Project]]:
    """One on each kind of database, at the same time: for what takes its time."""
    sqlite_url = f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL"
    with ExitStack() as stack:
        made = []
        for number, url in enumerate([sqlite_url, postgres_url, mariadb_url]):
            folder = tmp_path / str(number)
            folder.mkdir()
            made.append(stack.enter_context(Project(folder, url)))
        yield made
