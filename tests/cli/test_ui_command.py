"""``tickwork ui``: it serves, and refuses to be open to everyone."""

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

PROGRAM = """
from tickwork import Tickwork
app = Tickwork("sqlite:///{folder}/jobs.db")
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "shop.py").write_text(PROGRAM.format(folder=tmp_path), encoding="utf-8")
    started: list[Any] = []

    def run(*args, **environment):
        import os

        process = subprocess.Popen(
            [sys.executable, "-m", "tickwork", "-a", "shop:app", "ui", "--port", "0", *args],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def address_of(process):
    """The address that the command prints, maybe after lines of the log."""
    for line in process.stdout:
        found = re.search(r"http://\S+/", line)
        if found is not None:
            return found[0]
    raise AssertionError("it has ended")


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return answer.status


def test_it_serves_this_machine_and_names_the_restriction(start):
    process = start()
    url = address_of(process)

    assert "only this machine" in process.stdout.readline()
    assert get(url) == 200
    process.send_signal(signal.SIGINT)
    process.wait(15)


def test_a_token_is_needed_when_there_is_one(start):
    process = start(TICKWORK_UI_TOKEN="0123456789abcdef")
    url = address_of(process)

    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{url}api/v1/queues")
    caught.value.close()
    assert caught.value.code == 401
    assert get(f"{url}api/v1/queues", Authorization="Bearer 0123456789abcdef") == 200


def test_it_does_not_start_open_to_everyone(start):
    process = start("--host", "0.0.0.0")

    assert process.wait(20) != 0
    assert "TICKWORK_UI_TOKEN" in process.stdout.read()
