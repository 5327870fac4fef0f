"""Runs through Celery by tickwork beside the same tasks sent by Celery alone, on one broker.

    .venv/bin/python benchmarks/celery_engine.py [COUNT]

Everything is durable: RabbitMQ confirms each message, PostgreSQL each compare-and-set and each
outcome. Both sides use the same Celery worker with two processes and late acknowledgements. The
handlers do nothing. The rounds of the three kinds alternate, and the table has their medians; the
ratios count, because other programs on the machine change the rates.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # private servers

from servers.postgres import PostgresServer  # noqa: E402
from servers.rabbitmq import RabbitMQServer  # noqa: E402

ROUNDS = 3
POLL_SECONDS = 0.1
"""How often it is checked whether all runs have ended. A check takes time of the servers, too."""
PROGRAM = """
import os

from celery import Celery

from tickwork import Tickwork

celery = Celery("bench", broker=os.environ["BENCH_BROKER"])
celery.conf.update(
    broker_transport_options={"confirm_publish": True},
    task_ignore_result=True,
    worker_hijack_root_logger=False,
)
app = Tickwork(os.environ["BENCH_URL"])
app.use_celery(celery, runs_max=int(os.environ.get("BENCH_RUNS_MAX", "1")))


@celery.task(acks_late=True)
def bare(number):
    pass


@app.job(engine="celery")
def note(number: int) -> None:
    pass
"""


class Bench:
    """The program, in this process and in others."""

    def __init__(self, folder: Path, *, url: str, broker: str) -> None:
        (folder / "bench_program.py").write_text(PROGRAM, encoding="utf-8")
        self.folder = folder
        self.environment = {
            **os.environ,
            "BENCH_URL": url,
            "BENCH_BROKER": broker,
            "PYTHONPATH": str(folder),
            "PYTHONWARNINGS": "ignore",
        }
        os.environ.update(self.environment)
        sys.path.insert(0, str(folder))
        self.program: Any = import_module("bench_program")
        self.program.app.install()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log-{arguments[0]}").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env={**self.environment, **environment},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def start_celery(self) -> subprocess.Popen[bytes]:
        return self.start(
            "celery", "-A", "bench_program:celery", "worker", "-c", "2", "-l", "WARNING"
        )

    def run_bare(self, count: int) -> float:
        """Send tasks one by one, each confirmed, and wait until the queue is empty."""
        began = time.perf_counter()
        for number in range(count):
            self.program.bare.delay(number)
        self._until(lambda: self._depth() == 0)
        return count / (time.perf_counter() - began)

    def run_tickwork(self, count: int, *, runs_max: int) -> float:
        """Dispatch runs, and wait until all of them have finished."""
        worker = self.start(
            "tickwork", "-a", "bench_program:app", "work", BENCH_RUNS_MAX=str(runs_max)
        )
        try:
            self.program.note.dispatch(number=0).wait(timeout=60)
            began = time.perf_counter()
            self.program.note.dispatch_many([{"number": number} for number in range(count)])
            self._until(lambda: not self._left())
            return count / (time.perf_counter() - began)
        finally:
            worker.terminate()
            worker.wait()

    def _left(self) -> int:
        store = self.program.app._services.store  # noqa: SLF001  # counts are not public
        return sum(store.count_runs().by_phase.values())

    def _depth(self) -> int:
        with self.program.celery.connection_for_read() as connection:
            channel = connection.default_channel
            return int(channel.queue_declare("celery", passive=True).message_count)

    def _until(self, check: Callable[[], object]) -> None:
        deadline = time.monotonic() + 600
        while not check():
            assert time.monotonic() < deadline, "It took too long."
            time.sleep(POLL_SECONDS)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer() as postgres,
        RabbitMQServer() as broker,
    ):
        database = postgres.create_database()
        bench = Bench(Path(folder), url=postgres.url(database), broker=broker.url())
        celery = bench.start_celery()
        try:
            bench.run_bare(10)  # until it has started
            kinds: dict[str, Callable[[], float]] = {
                "Celery alone": lambda: bench.run_bare(count),
                "tickwork, 1 run a message": lambda: bench.run_tickwork(count, runs_max=1),
                "tickwork, up to 20": lambda: bench.run_tickwork(count, runs_max=20),
            }
            rates: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(ROUNDS):
                for kind, run in kinds.items():
                    rates[kind].append(run())
        finally:
            celery.terminate()
            celery.wait()
    base = statistics.median(rates["Celery alone"])
    for kind, found in rates.items():
        rate = statistics.median(found)
        print(f"{kind:<28} {rate:>8,.0f} runs/s   {rate / base:>5.2f} x")


if __name__ == "__main__":
    main()
