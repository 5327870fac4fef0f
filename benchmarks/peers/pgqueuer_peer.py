# mypy: ignore-errors
"""PgQueuer, measured from inside its own environment: prints one JSON object.

    python pgqueuer_peer.py URL COUNT

Its rate is from the first to the last start of a handler, which favours it: what it writes
afterwards does not count.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

LINE = b"012345678901234567890123"


async def main(url: str, count: int) -> dict[str, float]:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    figures: dict[str, float] = {}

    begun = time.perf_counter()
    for first in range(0, count, 1000):
        await queries.enqueue(["noop"] * 1000, [str(first).encode()] * 1000, [0] * 1000)
    figures["dispatch_many"] = count / (time.perf_counter() - begun)

    with tempfile.TemporaryFile() as file:
        starts: list[float] = []
        figures["drain"] = await drained(url, count, file.fileno(), starts)

    begun = time.perf_counter()
    for _ in range(300):
        await queries.enqueue("noop", b"1")
    figures["dispatch_one"] = 300 / (time.perf_counter() - begun)
    figures.update(await latencies(url, queries))
    return figures


async def drained(url: str, count: int, file: int, starts: list[float]) -> float:
    app = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @app.entrypoint("noop")
    async def noop(_: Any) -> None:
        starts.append(time.perf_counter())
        os.write(file, LINE)
        if len(starts) >= count:
            app.shutdown.set()

    await app.run(batch_size=500)
    return (len(starts) - 1) / (starts[-1] - starts[0])


async def latencies(url: str, queries: Queries) -> dict[str, float]:
    app = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))
    heard: asyncio.Queue[float] = asyncio.Queue()

    @app.entrypoint("noop")
    async def noop(_: Any) -> None:
        heard.put_nowait(time.perf_counter())

    worker = asyncio.create_task(app.run(batch_size=10))
    await asyncio.sleep(1)
    while not heard.empty():
        heard.get_nowait()
    found = []
    for _ in range(100):
        begun = time.perf_counter()
        await queries.enqueue("noop", b"1")
        found.append(await asyncio.wait_for(heard.get(), 10) - begun)
        await asyncio.sleep(0.02)
    app.shutdown.set()
    await worker
    found.sort()
    return {"latency_p50": statistics.median(found), "latency_p99": found[98]}


if __name__ == "__main__":
    uvloop.install()
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2])))))
