"""Workers inside web servers of several processes, and the HTTP server of a worker."""

import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from scenarios.project import Project

SECONDS = [8, pytest.param(30, marks=pytest.mark.long)]

FASTAPI = """
from fastapi import FastAPI
from tickwork.integrations.fastapi import lifespan

@app.job
async def tick() -> None:
    mark("tick")

app.schedule("each_second", tick).every_second().overlap("allow").misfire("all")
web = FastAPI(lifespan=lifespan(app, loop="server", threads=1, drain="5s"))

@web.post("/orders/{number}")
async def order(number: int) -> dict[str, int]:
    await app.aio.dispatch("confirm", number=number)
    return {"pid": os.getpid()}

@app.job
async def confirm(number: int) -> None:
    mark("confirm", number=number)
"""

FLASK = """
from flask import Flask, current_app
from tickwork.integrations.flask import FlaskTickwork

@app.job
def tick() -> None:
    mark("tick", web=current_app.name)

app.schedule("each_second", tick).every_second().overlap("allow").misfire("all")
web = Flask("shop")
FlaskTickwork(app, web)
"""

GUNICORN = """
def post_worker_init(worker):
    from shop import app
    app.start(threads=1, drain="5s")

def worker_exit(server, worker):
    from shop import app
    app.stop()
    app.join()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def ask(url: str, method: str = "GET") -> tuple[int, str]:
    """The status and the text of an answer; 0 while no server answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5) as one:
            return one.status, one.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def live_workers(project: Project) -> int:
    return sum(not each.is_silent for each in project.app.inspect.status().workers)


def check_firings(project: Project, seconds: int) -> None:
    """Each instant was executed once, and none was left out."""
    instants = Counter(mark["nominal"] for mark in project.marks("tick"))
    assert set(instants.values()) == {1}, instants
    assert {second - first for first, second in pairwise(sorted(instants))} == {1.0}
    assert len(instants) >= seconds - 2


@pytest.mark.parametrize("seconds", SECONDS)
def test_three_processes_of_uvicorn_fire_each_instant_once(sqlite_project, seconds):
    project = sqlite_project
    project.write("shop", FASTAPI)
    project.app.install()
    port = free_port()
    server = project._started(
        [sys.executable, "-m", "uvicorn", "shop:web", "--workers", "3", "--port", str(port)]
    )
    project.until(lambda: live_workers(project) == 3, seconds=60)
    project.marked("tick")

    until = time.monotonic() + seconds
    answered = 0
    while time.monotonic() < until:
        answered += ask(f"http://127.0.0.1:{port}/orders/{answered}", "POST")[0] == 200
        time.sleep(0.2)
    server.send(signal.SIGTERM)
    server.wait(30)

    check_firings(project, seconds)
    assert live_workers(project) == 0, server.log  # each process drained and unregistered
    confirmed = Counter(mark["number"] for mark in project.marks("confirm"))
    assert set(confirmed.values()) <= {1}
    assert answered > seconds
    assert len({mark["pid"] for mark in project.marks()}) > 1


@pytest.mark.parametrize("seconds", SECONDS)
def test_four_workers_of_gunicorn_fire_each_instant_once(sqlite_project, seconds):
    project = sqlite_project
    project.write("shop", FLASK)
    Path(project.folder / "gunicorn.conf.py").write_text(GUNICORN, encoding="utf-8")
    project.app.install()
    server = project._started(
        [
            *(sys.executable, "-m", "gunicorn", "-w", "4", "--preload", "shop:web"),
            *("-b", f"127.0.0.1:{free_port()}", "--graceful-timeout", "20"),
        ]
    )
    project.until(lambda: live_workers(project) == 4, seconds=60)
    project.marked("tick")

    time.sleep(seconds)
    server.send(signal.SIGTERM)
    server.wait(30)

    check_firings(project, seconds)
    assert live_workers(project) == 0, server.log
    assert {mark["web"] for mark in project.marks("tick")} == {"shop"}
    assert len({mark["pid"] for mark in project.marks("tick")}) > 1


SHOP = """
@app.job
def send() -> None:
    mark("send")

@app.job
def slow() -> None:
    mark("slow")
    time.sleep(2)
"""


def test_a_worker_serves_probes_and_metrics(sqlite_project):
    project = sqlite_project
    project.write("shop", SHOP)
    project.app.install()
    here = f"http://127.0.0.1:{(port := free_port())}"
    worker = project.run("work", "--http", f"127.0.0.1:{port}")
    project.until(lambda: ask(f"{here}/readyz")[0] == 200, seconds=30)
    project.dispatch("send")
    project.marked("send")

    project.until(
        lambda: (
            'tickwork_attempts_total{job_name="send",outcome="succeeded",queue="default"} 1.0'
            in ask(f"{here}/metrics")[1]
        ),
        seconds=10,
    )
    assert ask(f"{here}/healthz") == (200, "running\n")
    assert ask(f"{here}/healthz", "POST")[0] == 405
    assert 'tickwork_workers{state="live"} 1.0' in ask(f"{here}/metrics")[1]

    project.dispatch("slow")
    project.marked("slow")
    worker.terminate()
    project.until(lambda: ask(f"{here}/readyz") == (503, "stopping\n"), seconds=5)
    assert ask(f"{here}/healthz")[0] == 200  # it drains: a restart would lose work
    assert worker.wait() == 0, worker.log


def test_probes_while_a_worker_waits_for_its_database(sqlite_project):
    project = sqlite_project
    project.write("shop", SHOP)
    project.url = f"postgresql://shop@127.0.0.1:{free_port()}/shop"
    here = f"http://127.0.0.1:{(port := free_port())}"
    worker = project.run("work", "--http", f"127.0.0.1:{port}")

    project.until(lambda: ask(f"{here}/healthz") == (200, "absent\n"), seconds=30)
    assert ask(f"{here}/readyz") == (503, "absent\n")
    worker.kill()
