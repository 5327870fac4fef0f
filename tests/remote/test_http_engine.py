"""The example of an engine of one's own, as another program uses it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tickwork import Tickwork

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
JOBS = """
import os, pathlib, time
from http_engine import HttpEngine
from tickwork import Tickwork
from tickwork.contracts import EngineRegistration

http = EngineRegistration(HttpEngine, "handovers", is_remote=True)
app = Tickwork(os.environ["JOBS_URL"], engines={"http": http})

@app.job(engine="http", lease=4)
def double(number: int) -> int:
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{os.getpid()}\\n")
    time.sleep(1)
    return 2 * number
"""


@pytest.mark.timeout(300)
def test_it_passes_the_conformance_suite(tmp_path):
    """In a folder without anything of this project, with the two files that the guide shows."""
    for name in ("http_engine.py", "test_http_engine.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text("utf-8"), "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )

    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 19


def test_a_run_whose_process_is_killed_is_executed_again(tmp_path):
    (tmp_path / "http_jobs.py").write_text(JOBS, "utf-8")
    calls = tmp_path / "calls"
    calls.touch()
    environment = {
        **os.environ,
        "JOBS_URL": f"sqlite:///{tmp_path}/jobs.db",
        "CALLS": str(calls),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(EXAMPLES)]),
    }
    with Tickwork(environment["JOBS_URL"], install=True) as app:
        run = app.remote("double").dispatch(number=4)
        worker = subprocess.Popen(
            [sys.executable, "-m", "tickwork", "-a", "http_jobs:app", "work"],
            cwd=tmp_path,
            env=environment,
        )
        try:
            deadline = time.monotonic() + 60
            while not calls.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            os.kill(int(calls.read_text()), signal.SIGKILL)

            assert run.result(timeout=60) == 8
        finally:
            worker.terminate()
            worker.wait(60)

        first, second = calls.read_text().split()
        assert first != second
        assert int(first) != worker.pid != int(second)
        assert run.read().crashes == 1


def test_the_guide_shows_the_test_of_the_example():
    guide = (ROOT / "docs" / "guide" / "contracts.md").read_text("utf-8")

    assert (EXAMPLES / "test_http_engine.py").read_text("utf-8") in guide
