"""How long a test waits for a month of a schedule, through the code that a worker runs.

    .venv/bin/python benchmarks/travel.py

``testing.travel`` moves a clock from one due time to the next, and ticks, claims, executes and
records at each. The budget is in processor time, which other processes do not disturb.
"""

import time
from typing import NamedTuple

from tickwork import Tickwork, testing


class Case(NamedTuple):
    """A schedule, and how long its month may take."""

    every: str
    firings: int
    budget: float  # seconds


CASES = [Case("hourly", 30 * 24, 1.0), Case("every_minute", 30 * 24 * 60, 20.0)]


def month_of(every: str) -> tuple[float, float, int]:
    """Processor seconds, wall-clock seconds, and the number of attempts."""
    with Tickwork("memory://", clock=testing.ManualClock()) as app:
        getattr(app.schedule("report", lambda: None), every)()
        begun, seen = time.process_time(), time.monotonic()
        done = testing.travel(app, days=30)
        return time.process_time() - begun, time.monotonic() - seen, len(done)


def main() -> None:
    print("a month of          firings   cpu s   wall s   us each   budget")
    for case in CASES:
        seconds, wall, count = month_of(case.every)
        assert count == case.firings, count
        verdict = "met" if seconds < case.budget else "MISSED"
        print(
            f"{case.every:<20}{count:>7}  {seconds:>6.2f}  {wall:>7.2f}"
            f"  {seconds / count * 1e6:>8.0f}   {case.budget:g} s {verdict}"
        )


if __name__ == "__main__":
    main()
