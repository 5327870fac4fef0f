"""Measures two checkouts side by side: is the new commit as fast as the old one?

    .venv/bin/python benchmarks/compare.py --old PATH [--new PATH] [KIND ...]

Every measurement runs in a process of its own, on an empty database, with the ``src`` folder of
one checkout on the path. Old and new take turns, and the side that goes first changes with each
round, because the machine is not equally fast all the time. The table has the medians, and how
much faster the new commit is: 1.00 is the same, more is better; ``cpu`` compares processor seconds
of the process, which other processes disturb less. Servers run without fsync, so that
the code is measured and not the disk.

``--scale 0.01 --rounds 1`` checks that everything works. The whole takes about eight minutes.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parents[1]
SLOWER = 0.95
"""A ratio below this is marked. The medians of the same code differ by up to this much."""

COMMON = """
import json, os, subprocess, sys, threading, time
from tickwork import Tickwork

url, count = sys.argv[1], int(sys.argv[2])
app = Tickwork(url)
app.install()
null = os.open(os.devnull, os.O_WRONLY)

@app.job
def plain(n: int) -> None:
    os.write(null, b"012345678901234567890123")

@app.job
async def coroutine(n: int) -> None:
    os.write(null, b"012345678901234567890123")

@app.job(concurrency=50)
def limited(n: int) -> None:
    os.write(null, b"012345678901234567890123")

def fill(job):
    for first in range(0, count, 1000):
        job.dispatch_many([{"n": n} for n in range(first, min(first + 1000, count))])

def drain(job, threads):
    with app.running(threads=threads):  # loads the modules of a worker
        pass
    fill(job)
    with app.running(threads=threads), Watch() as watch:
        while app.stats.attempts < count:
            time.sleep(0.001)
    return watch

class Watch:
    def __enter__(self):
        self.begun, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        self.took = time.perf_counter() - self.begun
        self.cpu = time.process_time() - self.cpu

def show(watch):
    print(json.dumps([count / watch.took, watch.cpu]), flush=True)
    app.close()
"""

DISPATCH_ONE = """
plain.dispatch(n=0)
with Watch() as watch:
    for n in range(count):
        plain.dispatch(n=n)
show(watch)
"""

DISPATCH_MANY = """
plain.dispatch(n=0)
with Watch() as watch:
    fill(plain)
show(watch)
"""

LATENCY = """
import statistics
LISTENER = '''
import sys, time
from tickwork import Tickwork
app = Tickwork(sys.argv[1])
@app.job
def stamp() -> None:
    print(time.perf_counter(), flush=True)
with app.running():
    print("ready", flush=True)
    sys.stdin.read()
'''

@app.job
def stamp() -> None: ...

worker = subprocess.Popen(
    [sys.executable, "-c", LISTENER, url],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
worker.stdout.readline()
time.sleep(0.3)
took = []
for _ in range(count):
    begun = time.perf_counter()
    stamp.dispatch()
    took.append(float(worker.stdout.readline()) - begun)
    time.sleep(0.01)
worker.stdin.close()
worker.wait()
print(json.dumps([1000 * statistics.median(took), 0]), flush=True)
app.close()
"""

PROCESSES = """
WORKER = '''
import os, sys
from tickwork import Tickwork
app = Tickwork(sys.argv[1])
file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
@app.job
def plain(n: int) -> None:
    os.write(file, b".")
with app.running(threads=4):
    print("ready", flush=True)
    sys.stdin.read()
'''
import tempfile

def run(processes):
    file = tempfile.NamedTemporaryFile()
    app.pause(queue="default")
    fill(plain)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, file.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(processes)
    ]
    for worker in workers:
        worker.stdout.readline()
    time.sleep(0.5)
    app.resume(queue="default")
    begun = time.perf_counter()
    while os.path.getsize(file.name) < count:
        time.sleep(0.002)
    took = time.perf_counter() - begun
    for worker in workers:
        worker.stdin.close()
        worker.wait()
    print(json.dumps([count / took, 0]), flush=True)
    app.close()
"""

# The benchmark of each checkout itself: it knows the names of its own store.
FIRE = """
import json, sys
sys.path[:0] = [f"{sys.argv[3]}/benchmarks", f"{sys.argv[3]}/tests"]
import store as benchmark
try:
    from tickwork._stores import open_store
except ImportError:  # an older commit
    from tickwork.stores import open_store

url = sys.argv[1]
store = open_store(url)
store.install()
if url.startswith("sqlite"):
    bare = benchmark.BareSqlite(url.removeprefix("sqlite:///").partition("?")[0])
else:
    bare = (benchmark.BarePostgres if "postgres" in url else benchmark.BareMariadb)(url)
print(json.dumps([1000 * benchmark.fire(store, bare), 0]), flush=True)
store.close()
"""


class Measurement(NamedTuple):
    """A program that prints its result and processor seconds; ``size`` is the number of runs."""

    name: str
    unit: str  # of a rate, more is better; of "ms", less is better
    program: str
    size: int
    rounds_max: int = 1000


MEASUREMENTS = [
    Measurement("drain, functions", "/s", COMMON + "show(drain(plain, 4))", 10_000),
    Measurement("drain, coroutines", "/s", COMMON + "show(drain(coroutine, 4))", 10_000),
    *(
        Measurement(f"drain, processes: {n}", "/s", COMMON + PROCESSES + f"run({n})", 20_000)
        for n in (1, 2, 4)
    ),
    Measurement("drain, one hot limit of 50", "/s", COMMON + "show(drain(limited, 16))", 3_000),
    Measurement("dispatch, one by one", "/s", COMMON + DISPATCH_ONE, 1_000),
    Measurement("dispatch_many, 1,000 a call", "/s", COMMON + DISPATCH_MANY, 20_000),
    Measurement("latency to an idle worker", "ms", COMMON + LATENCY, 60),
    Measurement("fire 10,000 schedules", "ms", FIRE, 10_000, rounds_max=3),
]


class Database:
    """Creates an empty database for each measurement."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._server: Any = None

    def __enter__(self) -> Self:
        sys.path.insert(0, str(ROOT / "tests"))  # private servers
        if self.kind == "postgres":
            from servers.postgres import PostgresServer  # noqa: PLC0415  # loaded on demand

            self._server = PostgresServer(fsync=False).start()
        elif self.kind == "mariadb":
            from servers.mariadb import MariaDBServer  # noqa: PLC0415  # as above

            self._server = MariaDBServer(fsync=False).start()
        elif self.kind == "mysql":
            from servers.mysql import MySQLServer  # noqa: PLC0415  # as above

            self._server = MySQLServer(fsync=False).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    @contextlib.contextmanager
    def url(self) -> Iterator[str]:
        if self._server is None:
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                yield f"sqlite:///{folder}/jobs.db?synchronous=NORMAL"
            return
        name = self._server.create_database()
        yield self._server.url(name)
        self._server.drop_database(name)


def measure(
    checkout: Path, one: Measurement, database: Database, count: int, cache: Path
) -> list[float]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "PYTHONPYCACHEPREFIX": str(cache),  # the checkouts are not written to
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with database.url() as url:
        done = subprocess.run(  # our own text
            [sys.executable, "-c", one.program, url, str(count), str(checkout)],
            env=environment,
            cwd=cache,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{one.name} failed on {database.kind} in {checkout}:\n{done.stderr}")
    result: list[float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(
    one: Measurement,
    database: Database,
    sides: dict[str, Path],
    *,
    scale: float,
    rounds: int,
    cache: Path,
) -> None:
    count = max(10, round(one.size * scale))
    found: dict[str, list[list[float]]] = {name: [] for name in sides}
    for number in range(min(rounds, one.rounds_max)):
        order = list(sides) if number % 2 else list(reversed(sides))
        for name in order:
            found[name].append(measure(sides[name], one, database, count, cache))
    (old, old_cpu), (new, new_cpu) = (
        [statistics.median(column) for column in zip(*found[name], strict=True)]
        for name in ("old", "new")
    )
    is_rate = one.unit != "ms"
    pairs = [(old, new), *((a[0], b[0]) for a, b in zip(found["old"], found["new"], strict=True))]
    ratio, *ratios = [(b / a if is_rate else a / b) for a, b in pairs]
    mark = "  SLOWER" if ratio < SLOWER else ""
    cpu = f"{old_cpu / new_cpu:5.2f}" if new_cpu else "    -"
    print(
        f"{database.kind:9} {one.name:28} {old:>10,.5g} {new:>10,.5g} {one.unit:3} {ratio:6.2f}"
        f"  {cpu}   {min(ratios):.2f}-{max(ratios):.2f}{mark}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["sqlite", "postgres", "mariadb"])
    parser.add_argument("--old", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--new", type=Path, default=ROOT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="measurements whose name contains this")
    options = parser.parse_args()
    sides = {"old": options.old.resolve(), "new": options.new.resolve()}
    begun = time.monotonic()
    print(f"{'':38} {'old':>10} {'new':>10} {'':3} {'ratio':>6}  {'cpu':>5}   ratios of the rounds")
    with tempfile.TemporaryDirectory(prefix="tickwork-compare-") as name:
        folder = Path(name)
        cache = folder / "bytecode"
        cache.mkdir()
        for kind in options.kinds:
            with Database(kind, folder) as database:
                for checkout in sides.values():  # writes the bytecode
                    measure(checkout, MEASUREMENTS[0], database, 100, cache)
                for one in MEASUREMENTS:
                    if options.only in one.name:
                        compare(
                            one,
                            database,
                            sides,
                            scale=options.scale,
                            rounds=options.rounds,
                            cache=cache,
                        )
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
