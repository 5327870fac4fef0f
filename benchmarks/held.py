"""Claims beside a transaction that is held open: two checkouts in turns.

    .venv/bin/python benchmarks/held.py --old PATH [--dead 50000 200000] [--writer] [--rounds 3]
    .venv/bin/python benchmarks/held.py --old PATH --rate 500 --seconds 600 [--writer]

A held snapshot keeps every row that dies. Each measurement is a process of its own with the ``src``
folder of one checkout on the path, and has its own database on a private PostgreSQL. It dispatches,
claims and records one run at a time: first with a clean database, then behind so many dead runs,
and after the end of the transaction. Between them, it does what a worker does all the time: it asks
what falls due, stages and reaps. ``--writer`` holds a transaction that dispatches, too.

With ``--rate``, a real worker does so many runs a second instead: for a tenth of the time on a
clean database, then while the transaction is held, and for ten seconds after its end.

The columns are the server's microseconds and blocks for each run (pg_stat_statements), and the
milliseconds of the client. Compare columns, not absolute figures.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from servers.postgres import PostgresServer  # noqa: E402

PROBE = """
import json, sys, time
from datetime import timedelta
import psycopg
from tickwork._domain.identity import RunId
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.ids import new_ids
try:
    from tickwork._domain.runs.outcome import OutcomeKind
    from tickwork._domain.runs.run import NewRun
    from tickwork._domain.runs.status import RunStatus
    from tickwork._domain.runs.transitions import Transition
    from tickwork._stores import open_store
    from tickwork._stores.contract import ClaimRequest
except ImportError:  # an older checkout
    from tickwork._domain.outcome import OutcomeKind
    from tickwork._domain.run import NewRun
    from tickwork._domain.status import RunStatus
    from tickwork._domain.transitions import Transition
    from tickwork.stores import open_store
    from tickwork.stores.contract import ClaimRequest

url, probes, is_writer, is_verbose, *dead = sys.argv[1:]
probes, dead, done = int(probes), list(map(int, dead)), 0
clock, lease = SystemClock(), timedelta(seconds=60)
store = open_store(url)
store.install()
server = psycopg.connect(url, autocommit=True)
server.execute("CREATE EXTENSION pg_stat_statements")

def show_statements(title):
    if is_verbose != "1":
        return
    print(f"--- {title}", file=sys.stderr)
    for row in server.execute(
        "SELECT (1000 * total_exec_time)::int, calls, (1000 * mean_exec_time)::int,"
        " (shared_blks_hit + shared_blks_read) / calls,"
        " left(regexp_replace(query, '\\s+', ' ', 'g'), 70)"
        " FROM pg_stat_statements WHERE toplevel"
        " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " ORDER BY 1 DESC LIMIT 12"
    ):
        print(*row, file=sys.stderr)

is_paced, touched = hasattr(store, "touch_jobs"), [0.0]

def runs(count):
    now = clock.now()
    return [
        NewRun(id=RunId(i), job="a", created_at=now, due_at=now, queue="q", priority=50, args="[]")
        for i in new_ids(now, count)
    ]

def cycle(count):
    store.add_runs(runs(count))
    claims = store.claim(
        ClaimRequest(count, jobs=("a",), is_starting=True, may_stop_early=True),
        worker="019b76da-a800-7000-8000-00000000ba4e", tag="t", now=clock.now(), lease=lease,
    )
    assert len(claims) == count, (len(claims), count)
    now = clock.now()
    done = RunStatus.COMPLETED, OutcomeKind.SUCCEEDED
    steps = [Transition(claim, *done, now, now) for claim in claims]
    options = {}
    if is_paced:  # as the writer of a worker does it
        is_due = time.monotonic() - touched[0] >= 1
        options["touches_jobs"] = is_due
        if is_due:
            touched[0] = time.monotonic()
    assert not store.record(steps, **options)

def rest():
    now = clock.now()
    if hasattr(store, "next_due"):
        store.next_due(now=now)
    else:
        store.pending_work()
    store.stage(now=now, limit=5000)
    store.reap(now=now + lease, limit=500, decide=lambda _: None)

def measure():
    for _ in range(300):
        cycle(1)
    server.execute("SELECT pg_stat_statements_reset()")
    took, watched = [], time.monotonic()
    for _ in range(probes):
        begun = time.perf_counter()
        cycle(1)
        took.append(1000 * (time.perf_counter() - begun))
        if time.monotonic() - watched > 0.1:
            rest()
            watched = time.monotonic()
    [[micros, blocks]] = server.execute(
        "SELECT 1000 * sum(total_exec_time), sum(shared_blks_hit + shared_blks_read)"
        " FROM pg_stat_statements WHERE toplevel"
        " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    show_statements(f"{done:,} dead")
    took.sort()
    half, most = took[len(took) // 2], took[int(0.99 * len(took))]
    print(json.dumps([micros / probes, float(blocks) / probes, half, most]), flush=True)

measure()
holder = psycopg.connect(url)
if is_writer == "1":
    store.using(holder).add_runs(runs(1))
else:
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT count(*) FROM tickwork_run")
for wanted in dead:
    while done < wanted:
        cycle(250)
        done += 250
    time.sleep(6)  # leases of the last five seconds are read each time
    measure()
holder.rollback()
server.execute("VACUUM")
measure()
"""

WORKER = """
import json, sys, threading, time
import psycopg
from tickwork import Tickwork

url, rate, seconds, is_writer, is_verbose = sys.argv[1:]
rate, seconds = float(rate), float(seconds)
app = Tickwork(url)
app.install()
took = []
server = psycopg.connect(url, autocommit=True)
server.execute("CREATE EXTENSION pg_stat_statements")
stopped = threading.Event()

def show_statements(title):
    if is_verbose != "1":
        return
    print(f"--- {title}", file=sys.stderr)
    for row in server.execute(
        "SELECT (1000 * total_exec_time)::int, calls, (1000 * mean_exec_time)::int,"
        " (shared_blks_hit + shared_blks_read) / calls,"
        " left(regexp_replace(query, '\\s+', ' ', 'g'), 70)"
        " FROM pg_stat_statements WHERE toplevel"
        " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " ORDER BY 1 DESC LIMIT 12"
    ):
        print(*row, file=sys.stderr)

@app.job
def stamp(at: float) -> None:
    took.append(1000 * (time.perf_counter() - at))

@app.job
def late() -> None: ...

def dispatch():
    next_at = time.perf_counter()
    while not stopped.is_set():
        stamp.dispatch(at=time.perf_counter())
        next_at += 1 / rate
        time.sleep(max(next_at - time.perf_counter(), 0))

def measure(length):
    server.execute("SELECT pg_stat_statements_reset()")
    took.clear()
    time.sleep(length)
    waits = sorted(took)
    [[micros, blocks]] = server.execute(
        "SELECT 1000 * sum(total_exec_time), sum(shared_blks_hit + shared_blks_read)"
        " FROM pg_stat_statements WHERE toplevel"
        " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    count = len(waits)
    half, most = waits[count // 2], waits[int(0.99 * count)]
    show_statements(f"{length:g} s")
    figures = [micros / count, float(blocks) / count, half, most, count / length]
    print(json.dumps(figures), flush=True)

with app.running(threads=4):
    dispatcher = threading.Thread(target=dispatch)
    dispatcher.start()
    time.sleep(3)
    measure(seconds / 10)
    holder = psycopg.connect(url)
    if is_writer == "1":
        late.using(holder).dispatch()
    else:
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM tickwork_run")
    for _ in range(4):
        measure(seconds / 4)
    holder.commit()
    measure(10)
    stopped.set()
    dispatcher.join()
app.close()
"""


def measure(source: Path, url: str, options: argparse.Namespace) -> list[list[float]]:
    flags = [str(int(flag)) for flag in (options.writer, options.verbose)]
    text, arguments = PROBE, [url, str(options.probes), *flags, *map(str, options.dead)]
    if options.rate:
        text, arguments = WORKER, [url, str(options.rate), str(options.seconds), *flags]
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env=os.environ | {"PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--old", type=Path)
    parser.add_argument("--dead", type=int, nargs="+", default=[50_000, 200_000])
    parser.add_argument("--probes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--writer", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    sides = {"new": ROOT / "src"}
    if options.old is not None:
        sides = {"old": options.old / "src", **sides}
    found: dict[str, list[list[list[float]]]] = {side: [] for side in sides}
    settings = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all"}
    with PostgresServer(fsync=False, settings=settings) as server:
        for number in range(options.rounds):
            for side in sorted(sides, reverse=number % 2 == 1):
                url = server.url(server.create_database())
                found[side].append(measure(sides[side], url, options))
    columns = "server µs | blocks | p50 ms | p99 ms" + (" | runs/s" if options.rate else "")
    print(f"| state | checkout | {columns} | of clean |")
    print("|---" * (columns.count("|") + 4) + "|")
    held = [f"{dead:,} dead" for dead in options.dead]
    if options.rate:
        held = [f"held for {n * options.seconds / 4:g} s" for n in range(1, 5)]
    states = ["clean", *held, "released"]
    for place, state in enumerate(states):
        for side in sides:
            median = [
                statistics.median(figures)
                for figures in zip(*(r[place] for r in found[side]), strict=True)
            ]
            clean = statistics.median(r[0][0] for r in found[side])
            micros, blocks, *others = median
            figures = " | ".join(f"{figure:.2f}" for figure in others)
            print(
                f"| {state} | {side} | {micros:,.0f} | {blocks:,.0f} | {figures}"
                f" | {micros / clean:.2f} |"
            )


if __name__ == "__main__":
    main()
