"""The time of the import, and the memory of 5,000 definitions.

Each figure is the median of nine fresh interpreters.
"""

import statistics
import subprocess
import sys

ROUNDS = 9
DEFINITIONS = 5_000

IMPORT = """
import time
begun = time.perf_counter()
import tickwork
named = time.perf_counter()
tickwork.Tickwork
print(named - begun, time.perf_counter() - begun)
import sys
assert not {"psycopg", "pymysql", "sqlite3"} & set(sys.modules), "a driver was loaded"
"""

MEMORY = """
import resource
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
from tickwork import Tickwork
app = Tickwork("memory://")
def handler(account_id: int, kind: str = "daily") -> None: ...
loaded = peak()
for number in range({count}):
    app.schedule(f"job-{{number}}", handler).queue("reports").attempts(5).hourly_at(number % 60)
app.registry.definitions()
print(loaded - before, peak() - loaded, peak() - before)
"""


def medians(program: str) -> list[float]:
    rows = []
    for _ in range(ROUNDS):
        answer = subprocess.run(  # our own text
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        rows.append([float(number) for number in answer.stdout.split()])
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def main() -> None:
    name, face = medians(IMPORT)
    print(f"import tickwork                  {1000 * name:8.1f} ms  target < 100 ms, no driver")
    print(f"import tickwork, and Tickwork    {1000 * face:8.1f} ms")
    code, data, both = medians(MEMORY.format(count=DEFINITIONS))
    print(f"{DEFINITIONS:,} definitions: the code     {code:8.1f} MB")
    print(f"{DEFINITIONS:,} definitions: the data     {data:8.1f} MB")
    print(f"{DEFINITIONS:,} definitions: both         {both:8.1f} MB  target <= 50 MB")


if __name__ == "__main__":
    main()
