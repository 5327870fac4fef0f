"""Runs on a Dask cluster: its workers, its scheduler and the submitting worker are killed."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chaos.workload import JobFacts, LimitFacts
from remote.kill_record import KillRecord
from servers.dask_cluster import DaskCluster
from tickwork import RunStatus, Tickwork
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.handover import MESSAGE_VERSION, Handover, handover_of
from tickwork._domain.runs.run import Run
from tickwork._engines.remote import dask_cluster
from tickwork._engines.remote.dask import DaskTransport, check_scheduler, execute_message
from tickwork._engines.remote.dask_cluster import LoadedApps
from tickwork._kernel.ids import new_id
from tickwork.errors import EngineMissing, EngineUnavailable, HandoverRejected, InvalidOption

LEASE = 4
JOURNALED = ("journaled", "journaled_limited")
JOBS = """
import os
import pathlib
import time

from chaos.journal import AttemptJournal, Journal
from tickwork import Tickwork, current_run

attempt = AttemptJournal(Journal(pathlib.Path(os.environ["JOURNAL"]), "dask")).attempt
app = Tickwork(os.environ["JOBS_URL"])
app.engine_options["dask"] = os.environ["DASK_ADDRESS"]


def note_call(what: object) -> None:
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{what} {os.getpid()} {time.time()}\\n")


@app.job(engine="dask", lease=4)
def double(number: int, seconds: float = 0.0) -> int:
    note_call(number)
    time.sleep(seconds)
    return 2 * number


@app.job(engine="dask", lease=4, concurrency=2)
def limited(number: int) -> int:
    note_call("begin")
    time.sleep(0.1)
    note_call("end")
    return number


@app.job(engine="dask", lease=4, crashes=100)
def journaled(seconds: float) -> str:
    with attempt() as nonce:
        time.sleep(seconds)
        return nonce


@app.job(engine="dask", lease=4, crashes=100, concurrency=2)
def journaled_limited(seconds: float) -> str:
    with attempt() as nonce:
        time.sleep(seconds)
        return nonce


@app.job(engine="dask", lease=4)
def endless() -> None:
    note_call("endless")
    while not current_run().is_canceled():
        time.sleep(0.02)


@app.job(engine="dask")
def odd() -> object:
    return object()


@app.job(engine="dask")
def leaves() -> None:
    raise SystemExit(3)


if "UNKNOWN" not in os.environ:

    @app.job(engine="dask")
    def unknown() -> None: ...
"""


class DaskHarness:
    """A cluster, an application, and the processes that work on it."""

    def __init__(self, folder: Path, cluster: DaskCluster, environment: dict[str, str]) -> None:
        self.folder = folder
        self.cluster = cluster
        self.environment = environment
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            space: dict[str, Any] = {"__name__": "dask_jobs_here"}
            exec(compile(JOBS, "dask_jobs.py", "exec"), space)
        self.app: Tickwork = space["app"]
        facts = [JobFacts(name, crashes_max=100, lease=LEASE) for name in JOURNALED]
        limits, url = [LimitFacts(2, JOURNALED[1:])], environment["JOBS_URL"]
        self.record = KillRecord(folder / "record", url, jobs=facts, limits=limits)
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker of tickwork, which hands runs over."""
        with (self.folder / "worker.log").open("ab") as log:
            command = ["-m", "tickwork", "-a", "dask_jobs:app", "work", "--drain", "1s"]
            process = subprocess.Popen(
                [sys.executable, *command],
                env={**os.environ, **self.environment},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.workers.append(process)
        return process

    def warm_up(self) -> None:
        """Wait until each worker of the cluster has executed a run."""
        wanted = {process.pid for process in self.cluster.workers}
        deadline = time.monotonic() + 90
        while not wanted <= {int(pid) for _, pid, _ in self.calls()}:
            assert time.monotonic() < deadline, self.log()
            for run in [self.dispatch("double", number=0, seconds=0.2) for _ in range(8)]:
                run.wait(timeout=90)

    def kill_worker(self) -> None:
        process = self.workers.pop(0)
        process.kill()
        process.wait()

    def dispatch(self, job: str, **args: Any) -> Any:
        return self.app.dispatch(job, **args)

    def calls(self) -> list[list[str]]:
        file = Path(self.environment["CALLS"])
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, check: Callable[[], object], *, seconds: float = 60) -> None:
        # The processes are real.
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        file = self.folder / "worker.log"
        return f"{file.read_text()[-3000:] if file.exists() else ''}\n{self.cluster.log()}"

    def ended(self, runs: list[Any]) -> list[Run]:
        return [run for run in (each.read() for each in runs) if run.is_finished]

    def count_ended(self) -> int:
        with closing(sqlite3.connect(self.folder / "jobs.db")) as connection:
            [count] = connection.execute("SELECT count(*) FROM tickwork_history").fetchone()
        return int(count)

    def close(self) -> None:
        while self.workers:
            self.kill_worker()
        self.app.close()
        self.cluster.close()


def make_harness(folder: Path) -> DaskHarness:
    (folder / "dask_jobs.py").write_text(JOBS)
    (folder / "record").mkdir()
    given = {
        "JOBS_URL": f"sqlite:///{folder}/jobs.db?synchronous=NORMAL",
        "CALLS": str(folder / "calls"),
        "JOURNAL": str(folder / "record" / "handlers.log"),
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    cluster = DaskCluster(folder, environment={**given, "UNKNOWN": "1"})
    given["DASK_ADDRESS"] = cluster.environment["DASK_ADDRESS"] = cluster.address
    harness = DaskHarness(folder, cluster, given)
    harness.app.install()
    return harness


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskHarness]:
    """A cluster whose workers have loaded the application."""
    harness = make_harness(tmp_path_factory.mktemp("dask"))
    harness.cluster.start()
    harness.start_worker()
    harness.warm_up()
    yield harness
    harness.close()


@pytest.fixture
def harness(shared: DaskHarness) -> DaskHarness:
    if not shared.workers:
        shared.start_worker()
    Path(shared.environment["CALLS"]).unlink(missing_ok=True)
    Path(shared.environment["CALLS"]).touch()
    return shared


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[DaskHarness]:
    """A cluster that was not started."""
    harness = make_harness(tmp_path)
    yield harness
    harness.close()


def test_runs_are_executed_on_the_cluster_once_and_limits_hold(harness):
    runs = [harness.dispatch("double", number=n) for n in range(40)]
    limited = [harness.dispatch("limited", number=n) for n in range(8)]
    odd, leaves = harness.dispatch("odd"), harness.dispatch("leaves")

    assert [run.result(timeout=60) for run in runs] == [2 * n for n in range(40)]
    assert [run.result(timeout=60) for run in limited] == list(range(8))
    harness.until(lambda: len(harness.ended([odd, leaves])) == 2)
    assert "JSON" in str(odd.read().reason)
    assert "SystemExit" in str(leaves.read().reason)
    calls = harness.calls()
    numbers = Counter(what for what, _, _ in calls if what.isdigit())
    assert numbers == Counter(str(n) for n in range(40))
    assert {int(pid) for _, pid, _ in calls} <= {each.pid for each in harness.cluster.workers}
    assert most_at_once(calls) <= 2


def most_at_once(calls: list[list[str]]) -> int:
    running = most = 0
    for what, _, _ in sorted(calls, key=lambda call: float(call[2])):
        running += {"begin": 1, "end": -1}.get(what, 0)
        most = max(most, running)
    return most


def test_a_dask_worker_is_killed_under_a_run(harness):
    run = harness.dispatch("double", number=7, seconds=2.0)
    harness.until(harness.calls)
    [[_, pid, _]] = harness.calls()
    [place] = [n for n, each in enumerate(harness.cluster.workers) if each.pid == int(pid)]

    killed_at = time.time()
    harness.cluster.kill_worker(place)

    assert run.result(timeout=60) == 14
    first, second = harness.calls()
    harness.cluster.start_worker()
    print(f"first rerun after {float(second[2]) - killed_at:.2f} s")
    assert float(second[2]) - killed_at < LEASE + 2
    assert (run.read().crashes, first[1] != second[1]) == (1, True)


def test_the_submitting_worker_is_killed(harness):
    runs = [harness.dispatch("double", number=n, seconds=0.3) for n in range(20)]
    harness.until(lambda: len(harness.calls()) > 3)

    harness.kill_worker()
    harness.start_worker()

    assert [run.result(timeout=60) for run in runs] == [2 * n for n in range(20)]
    assert sorted(int(what) for what, _, _ in harness.calls()) == list(range(20))


def test_the_scheduler_is_away_at_the_start_and_later(stopped):
    harness = stopped
    harness.start_worker()
    first = harness.dispatch("double", number=1)
    log = harness.folder / "worker.log"
    harness.until(lambda: "Runs wait for the engine dask" in log.read_text())
    assert not first.read().is_finished

    harness.cluster.start()
    assert first.result(timeout=60) == 2

    harness.cluster.kill_scheduler()
    second = harness.dispatch("double", number=2)
    time.sleep(1)
    assert not second.read().is_finished
    harness.cluster.restart()

    assert second.result(timeout=60) == 4
    assert sorted(what for what, _, _ in harness.calls()) == ["1", "2"]


def test_a_canceled_run_stops(harness):
    run = harness.dispatch("endless")
    harness.until(harness.calls)

    run.cancel()

    harness.until(lambda: run.read().is_finished)
    assert run.read().status is RunStatus.CANCELED


def test_a_dask_worker_that_does_not_know_the_job(harness):
    run = harness.dispatch("unknown")

    harness.until(lambda: run.read().is_finished)
    assert "does not know the job 'unknown'" in str(run.read().reason)


class TestTransport:
    """The connection to the scheduler, without a worker of tickwork."""

    def test_the_health_check_counts_the_workers(self, harness):
        count = len(harness.cluster.workers)

        harness.until(lambda: f": {count} workers" in check_scheduler(harness.cluster.address))

    def test_the_same_run_submitted_twice_is_executed_once(self, harness):
        harness.kill_worker()
        run = harness.dispatch("double", number=5)
        handover = claim_by_hand(harness.app, run)
        transport = DaskTransport({"address": harness.cluster.address}, "dask_jobs", "app")

        transport.submit([[handover]])
        assert run.result(timeout=60) == 10
        transport.submit([[handover]])
        harness.until(lambda: transport._find(handover) is None)

        transport.close()
        assert len(harness.calls()) == 1

    def test_a_scheduler_that_does_not_answer(self):
        transport = DaskTransport({"address": "tcp://127.0.0.1:9"}, "dask_jobs", "app")

        with pytest.raises(EngineUnavailable, match=r"tcp://127\.0\.0\.1:9 does not answer"):
            transport.submit([[Handover(RunId("x"), 1)]])

    def test_a_message_of_another_version(self, harness, monkeypatch):
        other = {"v": MESSAGE_VERSION + 1, "runs": [["x", 1]]}
        monkeypatch.setitem(LoadedApps.by_path, "dask_jobs:app", harness.app)

        with pytest.raises(HandoverRejected, match="Install the same version"):
            execute_message("dask_jobs", "app", other)


def claim_by_hand(app: Tickwork, run: Any) -> Handover:
    """Claim a run as a worker does that hands it over."""
    store, now = app._services.store, app.clock.now()
    claim = store.claim_run(
        RunId(run.id), worker=WorkerId(new_id(now)), tag="t", now=now, lease=timedelta(minutes=1)
    )
    assert claim is not None
    store.hand_over([handover_of(claim)])
    return handover_of(claim)


class TestBadOptions:
    def test_the_package_is_not_installed(self, monkeypatch):
        monkeypatch.setattr(dask_cluster, "find_spec", lambda _: None)

        with pytest.raises(EngineMissing, match=r"\[dask\]"):
            start_app("tcp://127.0.0.1:1")

    @pytest.mark.parametrize("options", [None, "", {}, {"timeout": 3}, 8786])
    def test_there_is_no_address(self, options):
        with pytest.raises(InvalidOption, match="must be the address of a Dask scheduler"):
            start_app(options)


app_without_cluster = Tickwork("memory://")


@app_without_cluster.job(engine="dask")
def somewhere() -> None: ...


def start_app(options: object) -> None:
    app_without_cluster.engine_options["dask"] = options
    app_without_cluster.start()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_thousand_runs_and_fifty_kills(stopped):
    """Every run completes once, whatever is killed. The checker of chaos judges it."""
    harness, record, chance = stopped, stopped.record, random.Random(20261116)
    record.prepare()
    harness.cluster.start()
    harness.start_worker()
    harness.start_worker()
    runs = [harness.dispatch("journaled", seconds=0.02) for _ in range(1900)]
    runs += [harness.dispatch("journaled_limited", seconds=0.05) for _ in range(100)]
    record.note_dispatched(run.id for run in runs)
    kills: Counter[str] = Counter()
    for number in range(50):
        # Spread over the work: a busy machine starts processes slowly.
        harness.until(lambda number=number: harness.count_ended() >= 38 * number, seconds=300)
        time.sleep(chance.uniform(0.0, 0.5))
        what = chance.choices(["dask worker", "worker", "scheduler"], [12, 6, 1])[0]
        kills[what] += 1
        if what == "dask worker":
            place = chance.randrange(len(harness.cluster.workers))
            record.note_kill(what, [harness.cluster.workers[place].pid])
            harness.cluster.kill_worker(place)
            harness.cluster.start_worker()
        elif what == "worker":
            record.note_kill(what, [harness.workers[0].pid])
            harness.kill_worker()
            harness.start_worker()
        else:
            # Workers that have lost their scheduler end, at the latest when it is back.
            record.note_kill(what, [each.pid for each in harness.cluster.workers])
            harness.cluster.kill_scheduler()
            harness.cluster.restart()
    harness.until(lambda: harness.count_ended() == len(runs), seconds=600)

    verdict = record.judge()
    print(f"kills: {dict(kills)}. {record.describe_reruns()} {verdict.render()}")
    assert not verdict.violations, verdict.render()
    assert {run.status for run in harness.ended(runs)} == {RunStatus.COMPLETED}
