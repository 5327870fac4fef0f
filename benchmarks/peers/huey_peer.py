# mypy: ignore-errors
"""Huey on SQLite, measured from inside its own environment: prints one JSON object.

python huey_peer.py FOLDER COUNT
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from huey import SqliteHuey
from huey.consumer import Consumer

LINE = b"012345678901234567890123"


def main(folder: str, count: int) -> dict[str, float]:
    huey = SqliteHuey(filename=str(Path(folder) / "huey.db"), fsync=True, results=False)
    figures: dict[str, float] = {}
    starts: list[float] = []
    file = tempfile.TemporaryFile()  # noqa: SIM115  # until the process ends

    @huey.task()
    def noop(_: int) -> None:
        starts.append(time.perf_counter())
        os.write(file.fileno(), LINE)

    begun = time.perf_counter()
    for number in range(count):
        noop(number)
    figures["dispatch_one"] = count / (time.perf_counter() - begun)

    consumer = Consumer(huey, workers=4, periodic=False, initial_delay=0.01, max_delay=0.01)
    consumer.start()
    while len(starts) < count:
        time.sleep(0.01)
    figures["drain"] = (count - 1) / (starts[count - 1] - starts[0])

    found = []
    time.sleep(0.5)
    for number in range(100):
        before = len(starts)
        begun = time.perf_counter()
        noop(number)
        while len(starts) == before:
            time.sleep(0.0005)
        found.append(starts[-1] - begun)
        time.sleep(0.02)
    found.sort()
    figures["latency_p50"], figures["latency_p99"] = statistics.median(found), found[98]
    threading.Thread(target=consumer.stop, daemon=True).start()
    return figures


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))), flush=True)
    os._exit(0)  # its threads need not be waited for
