"""The suites for stores and engines, from their own wheel, in an empty folder."""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import tickwork

ROOT = Path(__file__).resolve().parents[2]

STORE_TESTS = """
import pytest
from tickwork._stores.sqlite.store import SqliteStore

from tickwork_conformance.stores import *


class MyStore(SqliteStore):
    '''A store of another program.'''


@pytest.fixture
def store(tmp_path, clock):
    store = MyStore(tmp_path / "jobs.db", synchronous="NORMAL", clock=clock)
    store.install()
    yield store
    store.close()
"""
ENGINE_TESTS = """
import pytest
from tickwork._engines.local.threads import ThreadEngine

from tickwork_conformance.engines import *
from tickwork_conformance.engines import TestedEngine


class MyEngine(ThreadEngine):
    '''An engine of another program.'''


@pytest.fixture
def tested_engine():
    return TestedEngine(MyEngine, can_end_attempts=False)
"""


def test_both_distributions_have_one_version():
    project = tomllib.loads((ROOT / "conformance" / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["version"] == tickwork.__version__
    assert f"tickwork=={tickwork.__version__}" in project["dependencies"]


@pytest.mark.timeout(240)
def test_stores_and_engines_of_other_programs_are_tested_from_the_wheels(
    wheel, conformance_wheel, tmp_path
):
    venv.create(tmp_path / "env")
    python, folder = tmp_path / "env" / "bin" / "python", tmp_path / "project"
    folder.mkdir()
    (folder / "test_my_store.py").write_text(STORE_TESTS, "utf-8")
    (folder / "test_my_engine.py").write_text(ENGINE_TESTS, "utf-8")

    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    for command in (
        [*pip, *constraints, str(wheel), str(conformance_wheel)],
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    count = int(done.stdout.splitlines()[-1].partition(" passed")[0])
    assert count > 500
