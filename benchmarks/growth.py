"""A full database beside an almost empty one: operations should take the same time.

    .venv/bin/python benchmarks/growth.py [KIND ...] [--size N] [--rounds N]

With ``--size 1000000`` (the default) the full one has a million finished runs, a million that are
due later, a million of paused and unknown jobs, 100,000 that are blocked (half by limits, half by
rates) and a million schedules, in 200 queues. The other one has one row of each kind for each
queue, so that it has the same queues, jobs and keys. Both are on the same server or disk, and take
turns. The ratio is the empty one's median time divided by the full one's: 1 is the same, and 0.8 is
the target.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # private servers, and what fills a database

sys.path.insert(0, str(ROOT / "benchmarks"))

from contract.growth import QUEUES, Operations, Sizes, fill  # noqa: E402
from store import a_server  # type: ignore[import-not-found]  # noqa: E402
from tickwork._stores import Store, open_store  # noqa: E402

SIZE = 1_000_000
ROUNDS = 9
TARGET = 0.8


@contextlib.contextmanager
def databases(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the URLs of two empty databases."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="tickwork-growth-") as folder:
            yield f"sqlite:///{folder}/empty.db", f"sqlite:///{folder}/full.db"
        return
    with a_server(kind) as server:
        yield server.url(server.create_database()), server.url(server.create_database())


def seconds(operations: Operations, name: str) -> float:
    act = getattr(operations, name)()
    begun = time.perf_counter()
    act()
    spent = time.perf_counter() - begun
    operations.finish_all()
    return spent


def compare(kind: str, *, size: int, rounds: int) -> dict[str, float]:
    """Return the ratio for each operation."""
    ratios: dict[str, float] = {}
    with databases(kind) as urls, contextlib.ExitStack() as stack:
        stores: list[Store] = []
        for url in urls:
            store = open_store(url)
            stack.callback(store.close)
            store.install()
            stores.append(store)
        now = stores[0].database_time()
        begun = time.perf_counter()
        fill(kind, urls[0], Sizes.all_of(QUEUES), now=now)
        fill(kind, urls[1], Sizes.all_of(size), now=now)
        print(f"\n{kind}: {size:,} rows of each kind, in {time.perf_counter() - begun:.0f} s")
        empty, full = (Operations(store, now) for store in stores)
        for name in Operations.names():
            seconds(empty, name), seconds(full, name)  # warm up
            pairs = [(seconds(empty, name), seconds(full, name)) for _ in range(rounds)]
            before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratios[name] = before / after
            met = "met" if ratios[name] >= TARGET else "MISSED"
            print(
                f"{name.replace('_', ' '):16} empty {1000 * before:8.2f} ms  full "
                f"{1000 * after:8.2f} ms  ratio {ratios[name]:5.2f}  target {TARGET:4.2f}  {met}"
            )
        print(f"{kind}: {full.store.health()}")
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["sqlite", "postgres", "mariadb"])
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    for kind in options.kinds:
        compare(kind, size=options.size, rounds=options.rounds)


if __name__ == "__main__":
    main()
