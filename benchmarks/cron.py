"""Cron beside croniter, cronsim and APScheduler 3: parse, next, iterate, match, list.

    make bench

The libraries take turns for several rounds, because the machine is noisy, and the medians of the
ratios within a round are compared. Time is processor time. "Cold" means that no text is parsed
twice, so that a cache by text does not help. tickwork has none.
"""

import functools
import gc
import importlib.metadata
import itertools
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter, croniter_range
from cronsim import CronSim

from tickwork._domain.schedules.cron import Cron

ROUNDS: Final = 9
BATCH_SECONDS: Final = 0.002  # how long one library works in its turn
ITERATE_COUNT: Final = 10_000
ITERATE_SECONDS: Final = 0.4

START: Final = datetime(2026, 1, 7, 10, 17, 23, tzinfo=UTC)
BERLIN: Final = ZoneInfo("Europe/Berlin")

EXPRESSIONS: Final = {
    "every minute": "* * * * *",
    "every 5 s": "*/5 * * * * *",
    "office hours": "*/5 9-17 * * MON-FRI",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "lists": "0,7,23,48 1,5,9,13,17,21 * * *",
    "weekly": "0 9 * * MON",
    "monthly": "0 0 1 * *",
    "last day": "0 0 L * *",
    "second Friday": "0 0 * * 5#2",
    "13th or Friday": "0 0 13 * 5",
    "29 February": "0 0 29 2 *",
}
# APScheduler has no seconds in crontab text, no L and no #, and reads the 13th *or*
# Friday as the 13th *and* Friday.
NOT_FOR_APSCHEDULER: Final = {"every 5 s", "last day", "second Friday", "13th or Friday"}
DENSE: Final = ["every minute", "every 5 s", "office hours"]

Task = Callable[[], object]

# ---------------------------------------------------------------- contenders


def variants(expr: str) -> Iterator[str]:
    """Give the same expression again and again, never with the same text."""
    for length in itertools.cycle(range(1, 400)):
        yield expr + " " * length


def as_croniter(expr: str, start: datetime) -> croniter:
    return croniter(expr, start, second_at_beginning=True)


def stepping_croniter(expr: str, start: datetime) -> Callable[[], Any]:
    return functools.partial(as_croniter(expr, start).get_next, datetime)


def stepping_cronsim(expr: str, start: datetime) -> Callable[[], Any]:
    return CronSim(expr, start).__next__


def as_apscheduler(expr: str, zone: tzinfo) -> Any:
    return CronTrigger.from_crontab(expr, timezone=zone)


def parse_tasks(texts: Mapping[str, Iterator[str]], zone: tzinfo) -> dict[str, Task]:
    return {
        "tickwork": lambda: Cron.parse(next(texts["tickwork"]), tz=zone),
        "croniter": lambda: as_croniter(next(texts["croniter"]), START),
        "cronsim": lambda: CronSim(next(texts["cronsim"]), START),
        "apscheduler": lambda: as_apscheduler(next(texts["apscheduler"]), zone),
    }


def cold_parse(expr: str) -> dict[str, Task]:
    return parse_tasks({name: variants(expr) for name in CONTENDERS}, UTC)


def repeated_parse(expr: str) -> dict[str, Task]:
    return parse_tasks({name: itertools.repeat(expr) for name in CONTENDERS}, UTC)


def next_in(zone: tzinfo) -> Callable[[str], dict[str, Task]]:
    """Walk from firing to firing, as many steps as `steps_of` says, in one call."""

    def tasks(expr: str) -> dict[str, Task]:
        start = START.astimezone(zone)
        found = {
            "tickwork": walking(Cron.parse(expr, tz=zone).next, start, steps_of(expr)),
            "croniter": iterating(lambda: stepping_croniter(expr, start), steps_of(expr)),
            "cronsim": iterating(lambda: stepping_cronsim(expr, start), steps_of(expr)),
            "apscheduler": walking(after_in_apscheduler(expr, zone), start, steps_of(expr)),
        }
        for task in found.values():
            task()  # fills the caches of zones and days
        return found

    return tasks


def steps_of(expr: str) -> int:
    # croniter and cronsim have to parse first. Quick expressions take more steps, so that
    # parsing is about a hundredth of the measured time.
    return 1_000 if expr.startswith("*") else 100


def walking(after: Callable[[datetime], Any], start: datetime, steps: int) -> Task:
    def task() -> None:
        moment = start
        for _ in itertools.repeat(None, steps):
            moment = after(moment)

    return task


def iterating(make: Callable[[], Callable[[], Any]], steps: int) -> Task:
    def task() -> None:
        step = make()
        for _ in itertools.repeat(None, steps):
            step()

    return task


def after_in_apscheduler(expr: str, zone: tzinfo) -> Callable[[datetime], Any]:
    try:
        trigger = as_apscheduler(expr, zone)
    except ValueError:
        return lambda moment: moment  # not measured: see NOT_FOR_APSCHEDULER
    return lambda moment: trigger.get_next_fire_time(moment, moment)


def matching(expr: str) -> dict[str, Task]:
    """Half of the instants match. cronsim has no matches(): it must parse and find the next."""
    firing = Cron.parse(expr).next(START)
    assert firing is not None
    moments = itertools.cycle([firing, firing + timedelta(seconds=1)])
    cron = Cron.parse(expr)

    def cronsim_matches() -> bool:
        moment = next(moments)
        return bool(next(CronSim(expr, moment - timedelta(seconds=1))) == moment)

    return {
        "tickwork": lambda: cron.matches(next(moments)),
        "croniter": lambda: croniter.match(expr, next(moments), second_at_beginning=True),
        "cronsim": cronsim_matches,
    }


CONTENDERS: Final = ("tickwork", "croniter", "cronsim", "apscheduler")

# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Rounds:
    """Seconds for one call, for each library and round."""

    taken: dict[str, list[float]]

    def median(self, contender: str) -> float | None:
        """Return the seconds of one call; None for a library that was not measured."""
        taken = self.taken.get(contender)
        return statistics.median(taken) if taken else None

    def ratio(self, *rivals: str) -> float:
        """Compare with the fastest of these, within each round, and take the median."""
        ratios: list[float] = [
            ours / min(theirs)
            for ours, *theirs in zip(
                *(self.taken[name] for name in ("tickwork", *rivals)), strict=True
            )
        ]
        return statistics.median(ratios)

    @property
    def rivals(self) -> list[str]:
        """Name the other libraries that were measured."""
        return [name for name in self.taken if name != "tickwork"]


Results = dict[str, Rounds]  # by the expression's name


def measured(
    make_tasks: Callable[[str], dict[str, Task]],
    names: Iterable[str] = EXPRESSIONS,
    calls: Callable[[str], int] = lambda _: 1,
) -> Results:
    """Measure every expression; a task may consist of several `calls`.

    A round goes through all expressions, so that the rounds of one expression are seconds
    apart, and a busy second of the machine spoils one of them only.
    """
    lanes = [
        Lane(name, contender, task, calibrated(task), calls(EXPRESSIONS[name]))
        for name in names
        for contender, task in make_tasks(EXPRESSIONS[name]).items()
        if not (contender == "apscheduler" and name in NOT_FOR_APSCHEDULER)
    ]
    results: Results = {name: Rounds({}) for name in names}
    for _ in range(ROUNDS):
        for lane in lanes:
            taken = timed(lane.task, lane.repeats) / lane.repeats / lane.calls
            results[lane.name].taken.setdefault(lane.contender, []).append(taken)
    return results


class Lane(NamedTuple):
    """The task of one library with one expression."""

    name: str
    contender: str
    task: Task
    repeats: int
    calls: int


def calibrated(task: Task) -> int:
    """Return how many calls fill a batch. The calls also warm up caches."""
    count = 1
    while (taken := timed(task, count)) < BATCH_SECONDS / 4:
        count *= 4
    return max(1, int(count * BATCH_SECONDS / taken))


def timed(task: Task, count: int) -> float:
    gc.collect(0)
    gc.disable()
    started = time.thread_time()
    for _ in itertools.repeat(None, count):
        task()
    taken = time.thread_time() - started
    gc.enable()
    return taken


def iterated() -> Results:
    """Seconds for each of 10,000 firings, or of as many as fit into 400 ms."""
    results: Results = {}
    for name, expr in EXPRESSIONS.items():
        count = affordable_count(expr)
        taken: dict[str, list[float]] = {}
        for _ in range(3):
            for contender, walk in walks(expr).items():
                if contender == "apscheduler" and name in NOT_FOR_APSCHEDULER:
                    continue
                started = time.thread_time()
                assert len(walk(count)) == count
                taken.setdefault(contender, []).append((time.thread_time() - started) / count)
        results[name] = Rounds(taken)
    return results


def affordable_count(expr: str) -> int:
    """Return 10,000, or as many as the slower of croniter and cronsim finds in 400 ms."""
    if expr.endswith("29 2 *"):
        return 100  # four centuries
    found = []
    for step in (stepping_croniter(expr, START), stepping_cronsim(expr, START)):
        steps, until = 0, time.thread_time() + ITERATE_SECONDS / 10
        while time.thread_time() < until:
            step()
            steps += 1
        found.append(steps * 10)
    return min(*found, ITERATE_COUNT)


def walks(expr: str) -> dict[str, Callable[[int], Sequence[Any]]]:
    """Give each contender its own fastest public way to list the next firings."""

    def by(step: Callable[[], Any]) -> Callable[[int], list[Any]]:
        return lambda count: [step() for _ in range(count)]

    return {
        "tickwork": lambda count: Cron.parse(expr).take(count, START),
        "croniter": by(stepping_croniter(expr, START)),
        "cronsim": by(stepping_cronsim(expr, START)),
        "apscheduler": lambda count: list(firings_of_apscheduler(expr, count)),
    }


def firings_of_apscheduler(expr: str, count: int) -> Iterator[datetime]:
    after, moment = after_in_apscheduler(expr, UTC), START
    for _ in range(count):
        moment = after(moment)
        yield moment


def listing(expr: str) -> dict[str, Task]:
    """List half a day, with both ends."""
    cron, end = Cron.parse(expr), START + timedelta(hours=12)

    def by_cronsim() -> object:
        return list(itertools.takewhile(lambda moment: moment <= end, CronSim(expr, START)))

    return {
        "tickwork": lambda: list(cron.between(START, end)),
        "croniter": lambda: list(croniter_range(START, end, expr, second_at_beginning=True)),
        "cronsim": by_cronsim,
    }


def listed_by(expr: str) -> int:
    return len(list(Cron.parse(expr).between(START, START + timedelta(hours=12))))


# ---------------------------------------------------------------- reporting


def show(title: str, results: Results) -> None:
    print(f"\n{title}\n")
    header = "".join(f"{name:>13}" for name in CONTENDERS)
    print(f"{'µs each':16}{header}{'of best rival':>16}")
    for name, rounds in results.items():
        cells = "".join(f"{micros(rounds.median(contender)):>13}" for contender in CONTENDERS)
        print(f"{name:16}{cells}{rounds.ratio(*rounds.rivals):>16.3f}")


def micros(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.2f}"


@dataclass(frozen=True)
class Target:
    """A ratio to reach, in every one of the named expressions."""

    what: str
    at_most: float
    rivals: tuple[str, ...]  # the fastest of these
    results: Results
    names: tuple[str, ...] = tuple(EXPRESSIONS)

    def judged(self) -> str:
        """Say whether it was reached, and where it was furthest from it."""
        ratios = {name: self.results[name].ratio(*self.rivals) for name in self.names}
        worst = max(ratios, key=ratios.__getitem__)
        verdict = "met" if ratios[worst] <= self.at_most else "MISSED"
        met = sum(ratio <= self.at_most for ratio in ratios.values())
        return (
            f"{verdict:8}{self.what:52}{self.at_most:6.2f}{ratios[worst]:9.3f}"
            f"  {worst}; {met} of {len(ratios)} met"
        )


def main() -> None:
    started = time.perf_counter()
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("croniter", "cronsim", "apscheduler")
    )
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {versions}")
    print(f"Medians of {ROUNDS} rounds in turn, ratios within each round; - where a rival cannot.")

    cold, repeated = measured(cold_parse), measured(repeated_parse)
    next_utc, next_zoned = (measured(next_in(zone), calls=steps_of) for zone in (UTC, BERLIN))
    iterate, match = iterated(), measured(matching)
    dense = measured(listing, DENSE, calls=listed_by)

    show("Parse, cold (no text twice)", cold)
    show("Parse, the same text again and again", repeated)
    show("next, UTC", next_utc)
    show("next, Europe/Berlin", next_zoned)
    show(f"Iterate {ITERATE_COUNT:,} firings, or as many as fit into 400 ms, UTC", iterate)
    show("matches, UTC (cronsim: parse and next)", match)
    show("List half a day, UTC (croniter: croniter_range)", dense)

    both = ("croniter", "cronsim")
    targets = [
        Target(
            "next, UTC, every minute, of cronsim", 0.5, ("cronsim",), next_utc, ("every minute",)
        ),
        Target("next, UTC, daily, of cronsim", 0.2, ("cronsim",), next_utc, ("daily",)),
        Target("next, UTC, weekly, of cronsim", 0.2, ("cronsim",), next_utc, ("weekly",)),
        Target("parse, cold, of cronsim", 1.0, ("cronsim",), cold),
        Target("iterate, of the faster of croniter and cronsim", 0.4, both, iterate),
        Target("matches, of cronsim's parse and next", 0.05, ("cronsim",), match),
        Target(
            "list half a dense day, of croniter_range", 0.02, ("croniter",), dense, tuple(DENSE)
        ),
    ]
    print("\nTargets\n")
    print(f"{'':8}{'':52}{'≤':>6}{'worst':>9}  where")
    for target in targets:
        print(target.judged())
    print(f"\nMeasured in {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
