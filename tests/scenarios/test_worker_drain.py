"""A worker drains after a request through its database, on each kind of database."""

import json
import subprocess
import sys

from tickwork import RunStatus

JOBS = """
@app.job
def slow() -> None:
    mark("begin")
    deadline = time.monotonic() + 60
    while not os.path.exists("go") and time.monotonic() < deadline:
        time.sleep(0.02)
    mark("end")
"""


def tickwork(project, *words):
    done = subprocess.run(
        [sys.executable, "-m", "tickwork", "-a", "shop:app", *words, "--json"],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or done.stderr)


def test_it_finishes_its_runs_and_claims_no_others(project):
    project.write("shop", JOBS)
    worker = project.work("--slots", "1", "--drain", "0s")  # the limit of a signal
    first = project.dispatch("slow")
    project.marked("begin")

    code, answer = tickwork(project, "drain", "--all")
    [found] = answer["workers"]
    assert (code, found["pid"]) == (0, worker.pid)
    project.until(lambda: project.app.inspect.status().workers[0].is_draining, seconds=30)
    second = project.dispatch("slow")
    assert worker.is_alive
    (project.folder / "go").touch()

    assert worker.wait() == 0, worker.log
    assert "A drain was requested" in worker.log
    assert (first.status, second.status) == (RunStatus.COMPLETED, RunStatus.PENDING)
    assert [mark["attempt"] for mark in project.marks("end")] == [1]
    store = project.app._services.store
    assert store.list_workers() == []
    assert store.get_lock(f"tickwork drain {found['id']}") is None
    code, answer = tickwork(project, "drain", found["id"])
    assert (code, answer["error"]["code"]) == (3, "worker-not-found")


def test_a_supervisor_does_not_replace_it(sqlite_project):
    project = sqlite_project
    project.write("shop", JOBS)
    workers = project.app._services.store.list_workers
    supervisor = project.run("work", "--processes", "2")
    one, other = project.until(lambda: (found := workers())[1:] and found, seconds=60)

    project.app.drain_worker(f"{one.host}:{one.pid}")
    project.until(lambda: [row.id for row in workers()] == [other.id], seconds=30)
    assert supervisor.is_alive
    project.app.drain_worker(other.id)

    assert supervisor.wait() == 0, supervisor.log
    assert supervisor.log.count("A drain was requested") == 2


def test_a_signal_limits_a_drain(sqlite_project):
    project = sqlite_project
    project.write("shop", JOBS)
    worker = project.work("--drain", "0s")
    run = project.dispatch("slow")
    project.marked("begin")
    project.app.drain_worker(project.app.inspect.status().workers[0].id)
    project.until(lambda: project.app.inspect.status().workers[0].is_draining, seconds=30)

    worker.terminate()

    assert worker.wait() == 0, worker.log
    assert run.status is RunStatus.PENDING  # given back
