"""Fixtures for tests of workers: `project` is a user's folder on a new database of each kind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scenarios.project import Project

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ["postgres", "mariadb"]
KINDS = ["sqlite", *(pytest.param(kind, marks=[pytest.mark.servers(kind)]) for kind in SERVERS)]


SAME_ON_SERVERS = {"test_worker_handlers", "test_worker_processes"}
"""Handlers and their processes behave the same on any server: MariaDB is tested in the long run."""


@pytest.hookimpl(tryfirst=True)  # before -m evaluates the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if item.path.stem in SAME_ON_SERVERS and params.get("project") == "mariadb":
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
    """One project on each kind of database, at the same time: for slow tests."""
    sqlite_url = f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL"
    with ExitStack() as stack:
        made = []
        for number, url in enumerate([sqlite_url, postgres_url, mariadb_url]):
            folder = tmp_path / str(number)
            folder.mkdir()
            made.append(stack.enter_context(Project(folder, url)))
        yield made


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return _build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def conformance_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the suites for stores and engines."""
    return _build_wheel(ROOT / "conformance", tmp_path_factory.mktemp("conformance"))


def _build_wheel(project: Path, target: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(target)]
    env = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    done = subprocess.run(
        [*pip, str(project)], env=env, capture_output=True, text=True, check=False, cwd=target
    )
    assert done.returncode == 0, done.stderr
    [built] = target.glob("*.whl")
    return built
