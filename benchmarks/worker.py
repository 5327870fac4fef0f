"""The worker beside a bare driver loop and other libraries, in one run.

    .venv/bin/python benchmarks/worker.py [sqlite] [postgres] [mariadb] [mysql]
    .venv/bin/python benchmarks/worker.py --peers 20000 100000

Limits, attempts, heartbeats, fencing and history are on. Handlers write 24 bytes to a file, as
those of the other libraries do. Our rate is measured from the first attempts to the last record,
the rate of the others from the first start of a handler to the last one. The others run in
virtual environments of their own; one that cannot be installed is reported. With ``--peers``, only
drains and bulk dispatches are measured, at each of these sizes, and all programs take turns five
times.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # private servers
sys.path.insert(0, str(ROOT / "benchmarks"))

import store as store_benchmark  # type: ignore[import-not-found]  # noqa: E402
from tickwork import Tickwork  # noqa: E402
from tickwork._worker.options import WorkerOptions  # noqa: E402

LINE = b"012345678901234567890123"
COUNT = 40_000
PEER_COUNT = 20_000
PRIORITIES = range(10, 101, 10)
ROUNDS = 3
PEER_ROUNDS = 5
PEERS = {
    "postgres": ("pgqueuer", ["pgqueuer", "asyncpg", "uvloop"]),
    "sqlite": ("huey", ["huey"]),
}


# ---------------------------------------------------------------- the databases


@contextmanager
def opened(kind: str) -> Iterator[tuple[str, Any, str]]:
    """Yield our URL, a bare loop on the same tables, and a place for the other library."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.db"
            url = f"sqlite:///{path}"
            with Tickwork(url) as app:
                app.install()
            yield url, store_benchmark.BareSqlite(path), folder
        return
    bare = {"postgres": "BarePostgres", "mariadb": "BareMariadb", "mysql": "BareMariadb"}[kind]
    with store_benchmark.a_server(kind) as server:
        url = server.url(server.create_database())
        with Tickwork(url) as app:
            app.install()
        yield url, getattr(store_benchmark, bare)(url), server.url(server.create_database())


# ---------------------------------------------------------------- measuring


class Bench:
    """An application with the handlers that are measured."""

    def __init__(self, url: str, bare: Any) -> None:
        self.url = url
        self.bare = bare
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the process ends

    def app(self) -> Tickwork:
        app = Tickwork(self.url)
        file = self.file.fileno()

        @app.job
        def plain(n: int) -> None:  # noqa: ARG001  # the others' handlers have one, too
            os.write(file, LINE)

        @app.job
        async def coroutine(n: int) -> None:  # noqa: ARG001
            os.write(file, LINE)

        @app.job
        def slow(n: int) -> None:  # noqa: ARG001  # the others' handlers have one, too
            time.sleep(0.002)

        @app.job(concurrency=50)
        def limited(n: int) -> None:  # noqa: ARG001  # the others' handlers have one, too
            os.write(file, LINE)

        return app

    def fill(self, app: Tickwork, job: str, count: int, *, is_mixed: bool = False) -> float:
        """Fill the queue; return the rate in runs per second."""
        self.bare.clear()
        drafts = [app.draft.priority(one) for one in PRIORITIES] if is_mixed else [app.draft]
        begun = time.perf_counter()
        for number, first in enumerate(range(0, count, 1000)):
            calls = [{"n": n} for n in range(first, first + 1000)]
            drafts[number % len(drafts)].dispatch_many(job, calls)
        return count / (time.perf_counter() - begun)

    def drain(self, job: str, count: int, *, is_mixed: bool = False, **options: Any) -> float:
        """Runs per second, from the first attempts to the last record."""
        with self.app() as app:
            self.fill(app, job, count, is_mixed=is_mixed)
            before = app.stats.attempts
            with app.running(WorkerOptions(**options)):
                while (first := app.stats.attempts - before) == 0:
                    time.sleep(0.0002)
                begun = time.perf_counter()
                while app.stats.attempts - before < count:
                    time.sleep(0.001)
                rate = (count - first) / (time.perf_counter() - begun)
        return rate


def medians(work: Callable[[], float], rounds: int = ROUNDS) -> float:
    return statistics.median(work() for _ in range(rounds))


def line(what: str, ours: float, unit: str, *others: tuple[str, float, float | None]) -> None:
    """Print one figure with its ratios to others and the targets."""
    text = f"{what:44} {ours:>12,.5g} {unit:6}"
    for name, rate, target in others:
        ratio = ours / rate
        verdict = (
            "" if target is None else f" (≥ {target}: {'met' if ratio >= target else 'MISSED'})"
        )
        text += f"  {ratio:5.2f} x {name} {rate:,.0f}{verdict}"
    print(text, flush=True)


def latencies(bench: Bench) -> tuple[float, float]:
    """Milliseconds from dispatch to the start of the handler in an idle worker: p50 and p99."""
    bench.bare.clear()  # otherwise runs of unknown jobs would come first
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "listener.py"
        script.write_text(LISTENER, encoding="utf-8")
        worker = subprocess.Popen(  # our own text
            [sys.executable, str(script), bench.url], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        lines = iter(worker.stdout.readline, "")
        next(lines)  # the worker is ready
        time.sleep(1)
        found = []
        with Tickwork(bench.url) as app:
            job = app.remote("stamp")
            for _ in range(200):
                begun = time.perf_counter()
                job.dispatch()
                found.append(float(next(lines)) - begun)
                time.sleep(0.02)
        worker.terminate()
        worker.wait()
    found.sort()
    return 1000 * statistics.median(found), 1000 * found[197]


LISTENER = """
import sys, time
from tickwork import Tickwork
app = Tickwork(sys.argv[1])
@app.job
def stamp() -> None:
    print(time.perf_counter(), flush=True)
print("ready", flush=True)
import signal
signal.signal(signal.SIGTERM, lambda *_: app.stop())
app.forever()
"""


def peer(kind: str, where: str, size: int | None = None) -> dict[str, float] | None:
    """Run the benchmark of the other library; None if it cannot be installed."""
    if kind not in PEERS:
        return None
    name, packages = PEERS[kind]
    folder = ROOT / ".venv" / f"peer-{name}"
    python = folder / "bin" / "python"
    try:
        if not python.exists():
            venv.create(folder, with_pip=True)
            subprocess.run(  # our own list
                [str(python), "-m", "pip", "install", "--quiet", *packages], check=True
            )
        script = ROOT / "benchmarks" / "peers" / f"{name}_peer.py"
        count = str(size or (PEER_COUNT if kind == "postgres" else 5_000))
        answer = subprocess.run(  # our own script
            [str(python), str(script), where, count],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
    except (subprocess.SubprocessError, OSError) as fault:
        print(f"{name} cannot be measured here: {fault}")
        return None
    figures: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return figures


def one_by_one(bench: Bench, count: int = 1_000) -> float:
    with bench.app() as app:
        job = app.draft
        job.dispatch("plain", n=0)
        bench.bare.clear()
        begun = time.perf_counter()
        for number in range(count):
            job.dispatch("plain", n=number)
        return count / (time.perf_counter() - begun)


def bare_one_by_one(bench: Bench, count: int = 1_000) -> float:
    bench.bare.clear()
    made = store_benchmark.runs(count)
    begun = time.perf_counter()
    for run in made:
        bench.bare.insert_one(store_benchmark.new_run_row(run))
    return count / (time.perf_counter() - begun)


def bare_drain(bench: Bench) -> float:
    with bench.app() as app:
        bench.fill(app, "plain", COUNT)
    rate: float = store_benchmark.timed(lambda: store_benchmark.drain_bare(bench.bare, 500))
    return rate


def selected(bench: Bench) -> float:
    """Milliseconds to claim 1,000 due runs of 1,000 jobs."""
    with Tickwork(bench.url) as app:
        bench.bare.clear()
        for number in range(1_000):
            app.schedule(f"job-{number}", _nothing)
        for name in list(app.registry.definitions()):
            app.dispatch(name)
        services = app._services  # noqa: SLF001  # the claim alone
        services.worker_context.known.discover()
        wanted = store_benchmark.ClaimRequest(1_000, jobs=services.worker_context.known.names())
        begun = time.perf_counter()
        claims = services.store.claim(
            wanted,
            worker=store_benchmark.WorkerId(store_benchmark.WORKER),
            tag="t",
            now=store_benchmark.CLOCK.now(),
            lease=store_benchmark.LEASE,
        )
        taken = time.perf_counter() - begun
        assert len(claims) == 1_000, len(claims)
        return 1000 * taken


def _nothing() -> None:
    pass


def bench(kind: str) -> None:
    print(f"\n{kind}")
    with opened(kind) as (url, bare, where):
        it = Bench(url, bare)
        figures = peer(kind, where)
        name = PEERS.get(kind, ("",))[0]

        def beside(key: str, target: float | None) -> list[tuple[str, float, float | None]]:
            return [] if figures is None or key not in figures else [(name, figures[key], target)]

        is_server = kind != "sqlite"
        # Interleaved, because the machine is not equally fast all the time.
        pairs = [(bare_drain(it), it.drain("plain", COUNT, threads=4)) for _ in range(ROUNDS)]
        raw, ours = (statistics.median(rates) for rates in zip(*pairs, strict=True))
        line(
            "drain, 4 threads",
            ours,
            "/s",
            ("raw", raw, 0.9 if is_server else 0.6),
            *beside("drain", 3 if is_server else 12),
        )
        line(
            "drain, coroutines",
            medians(lambda: it.drain("coroutine", COUNT)),
            "/s",
            ("raw", raw, None),
            *beside("drain", 2.5 if is_server else None),
        )
        mixed = medians(lambda: it.drain("plain", COUNT, is_mixed=True, threads=4))
        line("drain, 4 threads, ten priorities", mixed, "/s", ("raw", raw, None))
        for batch in (32, 100):
            found = [it.drain("plain", COUNT, threads=4, batch=batch) for _ in range(ROUNDS)]
            what = f"drain, 4 threads, batch {batch}"
            line(what, statistics.median(found), "/s", ("raw", raw, None))
        line(
            "drain, 2 ms handlers, 16 threads (ideal 8,000)",
            medians(lambda: it.drain("slow", 8_000, threads=16)),
            "/s",
        )
        line(
            "drain, one hot limit of 50, 16 threads",
            medians(lambda: it.drain("limited", 5_000, threads=16)),
            "/s",
            ("target", {"sqlite": 10_000, "postgres": 3_000}.get(kind, 2_500), 1),
        )
        line(
            "dispatch, one by one",
            medians(lambda: one_by_one(it)),
            "/s",
            ("raw", medians(lambda: bare_one_by_one(it)), 0.8),
            *beside("dispatch_one", None),
        )

        def in_bulk() -> float:
            with it.app() as app:
                return it.fill(app, "plain", COUNT)

        line(
            "dispatch_many, 1,000 a call",
            medians(in_bulk),
            "/s",
            *beside("dispatch_many", 1.8),
            *([] if is_server else [("target", 150_000, 1.0)]),
        )
        p50, p99 = latencies(it)
        limits = {"sqlite": " (≤ 3 / -)", "postgres": " (≤ 2 / 5)"}.get(kind, " (it polls)")
        theirs = [figures[f"latency_{rank}"] for rank in ("p50", "p99")] if figures else []
        others = "".join(f" / {1000 * value:.2f}" for value in theirs)
        what = "latency to an idle worker, p50 / p99"
        print(f"{what:44} {p50:.2f} / {p99:.2f} ms {limits}  {name}{others}".rstrip())
        what = "1,000 due runs of 1,000 jobs, claimed"
        print(f"{what:44} {medians(lambda: selected(it)):.1f} ms (≤ 10)")


def bench_peers(kind: str, size: int) -> None:
    """Drain and dispatch this many runs, in turns with the other library, on empty databases."""
    print(f"\n{kind}, {size:,} runs")
    rounds: list[tuple[dict[str, float], float, float, float]] = []
    for _ in range(PEER_ROUNDS):
        with opened(kind) as (url, bare, where):
            # A rate of Huey does not depend on the size, and 100,000 of its runs take a minute.
            figures = peer(kind, where, size if kind == "postgres" else min(size, 20_000))
            if figures is None:
                return
            it = Bench(url, bare)
            drains = it.drain("plain", size, threads=4), it.drain("coroutine", size)
            with it.app() as app:
                rounds.append((figures, *drains, it.fill(app, "plain", size)))
    theirs, plain, coroutines, bulk = zip(*rounds, strict=True)
    for what, found, key in (
        ("drain, 4 threads", plain, "drain"),
        ("drain, coroutines", coroutines, "drain"),
        ("dispatch_many, 1,000 a call", bulk, "dispatch_many"),
    ):
        if key in theirs[0]:
            other = statistics.median(figures[key] for figures in theirs)
            line(what, statistics.median(found), "/s", (PEERS[kind][0], other, None))


def main() -> None:
    if "--peers" in sys.argv:
        for size in sys.argv[2:]:
            for kind in PEERS:
                bench_peers(kind, int(size))
        return
    for kind in sys.argv[1:] or ["sqlite", "postgres", "mariadb"]:
        bench(kind)
    threading.Timer(5, os._exit, [0]).start()


if __name__ == "__main__":
    main()
