"""The database is unreachable for a while: nothing is lost, no worker crashes, work resumes."""

import sqlite3
import time

import pytest

from scenarios.project import Project, figure, now
from servers.mysql import ChosenServer
from servers.postgres import PostgresServer
from tickwork import RunStatus

STEADY = """
@app.job
def steady(n: int):
    mark("steady", n=n)
    time.sleep(0.2)
    return n

@app.job
def long(seconds: float):
    mark("long")
    time.sleep(seconds)
    mark("long ended")

app.schedule("each second", lambda: mark("second")).every_second()
"""
AWAY_SECONDS = 10.0


def check_all(project, worker, runs, back_at):
    for n, run in enumerate(runs):
        assert run.result(40) == n
    done = project.marks("steady")
    assert len(done) == len({mark["n"] for mark in done}) == len(runs)  # each of them once
    first = min(mark["at"] for mark in done if mark["at"] > back_at)
    figure(f"worked again {first - back_at:.2f} s after the database was back")
    assert first - back_at < 10
    seconds = [mark for mark in project.marks("second") if mark["at"] > back_at]
    assert seconds or project.marked("second", len(project.marks("second")) + 1)
    assert worker.is_alive
    assert worker.log.count("Traceback") == 0, worker.log


ON_SERVERS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.kind, marks=pytest.mark.servers(kind.kind))
        for kind in (PostgresServer, ChosenServer)
    ],
)


@ON_SERVERS
def test_a_server_that_is_stopped_for_ten_seconds(kind, tmp_path):
    with (
        kind(fsync=False) as server,
        Project(tmp_path, server.url(server.create_database())) as project,
    ):
        project.write("shop", STEADY)
        worker = project.work("--threads", "2")
        long = project.dispatch("long", seconds=AWAY_SECONDS / 2)
        runs = [project.dispatch("steady", n=n) for n in range(30)]
        project.marked("long")
        project.marked("steady", 5)

        server.stop()
        time.sleep(AWAY_SECONDS)
        server.start()
        back_at = now()

        check_all(project, worker, runs, back_at)
        # It ended while no outcome could be written.
        assert long.wait(20) is RunStatus.COMPLETED
        assert len(project.marks("long")) == 1
        assert (long.read().token, long.read().crashes) == (1, 0)


def test_a_write_lock_that_another_process_holds_for_ten_seconds(sqlite_project):
    project = sqlite_project
    project.write("shop", STEADY)
    worker = project.work("--threads", "2")
    runs = [project.dispatch("steady", n=n) for n in range(30)]
    project.marked("steady", 5)

    holder = sqlite3.connect(project.folder / "jobs.db", isolation_level=None, timeout=10)
    holder.execute("BEGIN IMMEDIATE")
    time.sleep(AWAY_SECONDS)
    holder.execute("ROLLBACK")
    holder.close()
    back_at = now()

    check_all(project, worker, runs, back_at)


@ON_SERVERS
def test_a_worker_can_be_stopped_while_the_database_is_unreachable(kind, tmp_path):
    with (
        kind(fsync=False) as server,
        Project(tmp_path, server.url(server.create_database())) as project,
    ):
        project.write("shop", STEADY)
        worker = project.work("--drain", "1s")
        run = project.dispatch("long", seconds=0.5)
        project.marked("long")
        server.stop()
        project.marked("long ended")

        worker.terminate()

        assert worker.wait(60) == 4
        assert "could not be written" in worker.log
        server.start()
        project.app.close()
        # A worker on this machine sees that it is gone, and does not wait for the lease.
        project.work()
        project.marked("long", 2, seconds=30)
        assert run.wait(30) is RunStatus.COMPLETED
