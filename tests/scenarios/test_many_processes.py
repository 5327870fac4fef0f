"""Eight processes on one database, some of them killed: their logs are consistent.

The checker knows only what the processes wrote down beside the database, and what the
tables say in the end.
"""

import os
import random
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest

from scenarios import store_worker
from scenarios.store_worker import (
    CHANGING,
    EVERY_SECOND,
    SLOTS_BY_LIMIT,
    Log,
    Orders,
    all_limit_keys,
    numbered_run,
    read_log,
    stamp,
)
from tickwork._domain.identity import RunId, ScheduleId
from tickwork._domain.job import Misfire, Overlap, ScheduleRow, ScheduleSpec
from tickwork._domain.limits.limits import (
    is_kept_between_attempts,
    limit_of,
    one_at_a_time,
    slots_in,
)
from tickwork._domain.limits.rates import is_rate, window_of
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores import Store, open_store
from tickwork._stores._sql.rows import EPOCH
from tickwork._stores.contract import RunFilter

SEATS = 8
FAIR_SHARE_MIN = 0.02
"""The least part of an equal share that each seat must have done. Among a few thousand runs,
kills and stalls make most of the difference."""
FAIR_SHARE_MIN_LONG = 0.2
SLOWEST_MAX_SECONDS = 10.0
SECONDS_MAX = 105.0

TESTS_FOLDER = Path(__file__).parent.parent
FOREVER = 1 << 62
MICROSECOND = timedelta(microseconds=1)
RATES = ["account/500ms:call=0", "job/second:call"]


# ---------------------------------------------------------------- the processes


class Crew:
    """Eight seats, a process on each; a killed process is replaced."""

    def __init__(self, url: str, folder: Path, *, runs: int, seed: int = 1) -> None:
        self.url = url
        self.folder = folder
        self.runs = runs
        self.random = random.Random(seed)
        self.log = Log(folder / "crew.log")
        self.orders: dict[int, Orders] = {}  # by serial
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # by seat, those that live
        self.serials: dict[int, int] = {}
        self.kills = 0

    def __enter__(self) -> Self:
        for seat in range(SEATS):
            self.start(seat)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, seat: int) -> None:
        serial = len(self.orders) + 1
        orders = self.orders[serial] = Orders(
            url=self.url,
            folder=str(self.folder),
            seat=seat,
            serial=serial,
            runs=self.runs,
            uniques=self.runs // 10 // SEATS,
            seed=self.random.getrandbits(32),
        )
        paths = [str(TESTS_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        with (self.folder / f"{serial}.stderr").open("wb") as stderr:
            self.processes[seat] = subprocess.Popen(
                [sys.executable, store_worker.__file__, orders.to_text()],
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self.serials[seat] = serial

    def kill(self, store: Store) -> None:
        """Kill one with SIGKILL; half of the time its leases are released at once.

        Not one that stalls: it is to wake up, and to find that it has lost its runs.
        """
        seat = self.random.choice(
            [
                seat
                for seat, serial in self.serials.items()
                if not self.orders[serial].is_stalling.exists()
            ]
        )
        process, orders = self.processes.pop(seat), self.orders[self.serials[seat]]
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, self.stderr_of(orders.serial)
        self.log.write(("kill", orders.serial, stamp()))
        if self.random.random() < 0.5:
            store.release_worker(orders.worker, now=store.database_time())
        self.kills += 1
        self.start(seat)

    def change_limit(self, store: Store) -> None:
        slots = self.random.choice([4, 12, 24])
        before = stamp()
        store.change_limit(CHANGING, slots, now=store.database_time())
        self.log.write(("limit", CHANGING, slots, before, stamp()))

    def is_done(self, store: Store) -> bool:
        for seat, process in self.processes.items():
            assert process.poll() is None, self.stderr_of(self.serials[seat])
        has_added = all(self.orders[serial].has_added.exists() for serial in self.serials.values())
        is_ticking = store.next_firing_at() is not None
        return has_added and not is_ticking and not any(store.count_runs().by_phase.values())

    def dismiss(self) -> None:
        (self.folder / "over").touch()
        for seat, process in self.processes.items():
            assert process.wait(timeout=30) == 0, self.stderr_of(self.serials[seat])
        for serial in self.orders:
            assert self.stderr_of(serial) == "", self.stderr_of(serial)
        self.processes.clear()

    def stderr_of(self, serial: int) -> str:
        return (self.folder / f"{serial}.stderr").read_text(encoding="utf-8")


def work_through(
    url: str, folder: Path, *, runs: int, kills: int, seconds_max: float
) -> tuple[Crew, "Tables"]:
    """Have a crew process all runs, and wait for its end."""
    store = open_store(url)
    store.install()
    store.set_limits(SLOTS_BY_LIMIT)
    add_schedules(store)
    with Crew(url, folder, runs=runs) as crew:
        for first in range(0, runs, 500):
            now = store.database_time()
            numbers = range(first, min(first + 500, runs))
            answers = store.add_runs([numbered_run(number, now=now) for number in numbers])
            crew.log.write(*(("added", answer.run_id, "", stamp()) for answer in answers))
        give_up_at = time.monotonic() + seconds_max
        rounds = 0
        while crew.kills < kills or not crew.is_done(store):
            assert time.monotonic() < give_up_at, store.count_runs()
            time.sleep(0.3)
            crew.change_limit(store)
            rounds += 1
            if crew.kills < kills and rounds % 3 == 0:
                crew.kill(store)
        crew.dismiss()
    tables = Tables.of(store)
    store.close()
    return crew, tables


def add_schedules(store: Store) -> None:
    """Schedules that fire each second for a while, and allow overlaps."""
    now = store.database_time()
    for number, overlap in enumerate(list(Overlap) * 6):
        spec = ScheduleSpec(
            name=f"schedule {number}",
            job="ticked",
            rule="every second",
            overlap=overlap,
            misfire=Misfire.ALL,
            until=now + timedelta(seconds=8),
        )
        store.add_schedule(
            ScheduleId(f"019cb0d2-0000-7000-8000-bbbb{number:08x}"),
            spec,
            now=now,
            next_due_at=EVERY_SECOND.next_after(now),
        )


# ---------------------------------------------------------------- tables and logs


@dataclass
class Tables:
    """The tables at the end."""

    runs: list[Run]
    slots_taken: int = 0
    schedules: list[ScheduleRow] = field(default_factory=list)

    @classmethod
    def of(cls, store: Store) -> Self:
        runs: list[Run] = []
        cursor: str | None = ""
        while cursor is not None:
            page = store.list_runs(RunFilter(), cursor=cursor or None, limit=1000)
            runs += page.runs
            cursor = page.cursor
        schedules = store.list_schedules()
        keys = [*all_limit_keys(), *(one_at_a_time(row.id) for row in schedules)]
        return cls(runs, sum(store.count_taken(keys).values()), schedules)


@dataclass
class Attempt:
    """One start from the log. Its stamps bound the time at which the lease was valid."""

    run: str
    token: int
    serial: int
    begun: int  # before the claim
    start: int  # after it was committed
    lease: int
    keys: list[str]
    end: int = FOREVER  # before it was recorded
    status: str = ""  # the status that it recorded
    verdict: str = ""  # whether the store accepted it
    killed: int = FOREVER
    at: int = 0  # the database's time of the claim

    @property
    def valid_until(self) -> int:
        return min(self.lease, self.end, self.killed)


@dataclass
class Change:
    name: str
    slots: int
    before: int
    after: int


@dataclass
class Story:
    """The contents of all logs."""

    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    added: dict[str, tuple[str, int]] = field(default_factory=dict)  # key and stamp, by run
    wanted: set[str] = field(default_factory=set)
    canceling: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    changes: list[Change] = field(default_factory=list)
    slowest: float = 0.0
    accepted_by_serial: Counter[int] = field(default_factory=Counter)

    @classmethod
    def read(cls, folder: Path) -> Self:
        story = cls()
        for path in sorted(folder.glob("*.log")):
            serial = int(path.stem) if path.stem.isdigit() else 0
            for line in read_log(path):
                story.add_line(serial, *line)
        # Last, because each process knows only its own attempts.
        killed = {int(line[1]): int(line[2]) for line in _lines(folder / "crew.log", "kill")}
        for attempt in story.attempts.values():
            attempt.killed = killed.get(attempt.serial, FOREVER)
        return story

    def add_line(self, serial: int, word: str, *rest: str) -> None:
        match word, rest:
            case "start", (run, token, begun, start, lease, keys, at):
                attempt = Attempt(
                    *(run, int(token), serial, int(begun), int(start), int(lease), keys.split()),
                    at=int(at),
                )
                assert (run, attempt.token) not in self.attempts, f"claimed twice: {attempt}"
                self.attempts[run, attempt.token] = attempt
            case "beat", (run, token, lease):
                attempt = self.attempts[run, int(token)]
                attempt.lease = max(attempt.lease, int(lease))
            case "end", (run, token, end, as_what):
                attempt = self.attempts[run, int(token)]
                attempt.end, attempt.status = int(end), as_what
            case "wrote", (run, token, verdict):
                self.attempts[run, int(token)].verdict = verdict
                self.accepted_by_serial[serial] += verdict == "accepted"
            case "wants", (run, _):
                self.wanted.add(run)
            case "added", (run, key, at):
                self.added[run] = (key, int(at))
                self.wanted.add(run)
            case "canceling", (run, at):
                self.canceling[run].append(int(at))
            case "limit", (name, slots, before, after):
                self.changes.append(Change(name, int(slots), int(before), int(after)))
            case "slowest", (nanoseconds,):
                self.slowest = max(self.slowest, int(nanoseconds) / 1e9)
            case "canceled" | "reaped" | "kill", _:
                pass
            case _:
                raise AssertionError((word, rest))


def _lines(path: Path, word: str) -> Iterator[list[str]]:
    return (line for line in read_log(path) if line[0] == word) if path.exists() else iter(())


# ---------------------------------------------------------------- the checker


def problems(story: Story, tables: Tables) -> list[str]:
    """All violations."""
    return [
        *_lost_or_left(story, tables),
        *_finished_wrongly(story, tables),
        *_overlapping(story),
        *_over_limits(story),
        *_over_rates(story),
        *_not_unique(story),
        *_fired_wrongly(tables),
    ]


def _lost_or_left(story: Story, tables: Tables) -> Iterator[str]:
    counted = Counter[str](run.id for run in tables.runs)
    for run_id, times in counted.items():
        if times > 1:
            yield f"{run_id} exists {times} times"
    for run_id in sorted(story.added.keys() - counted.keys()):
        yield f"{run_id} is lost"
    for run in tables.runs:
        if run.schedule is None and run.id not in story.wanted:
            yield f"{run.id} was never added"
        if not run.is_finished:
            yield f"{run.id} is left {run.phase} on {run.blocked_on}"
    if tables.slots_taken:
        yield f"{tables.slots_taken} slots leaked"


def _finished_wrongly(story: Story, tables: Tables) -> Iterator[str]:
    final_tokens: dict[str, list[int]] = defaultdict(list)
    last_tokens: dict[str, int] = {}
    for (run_id, token), attempt in story.attempts.items():
        last_tokens[run_id] = max(token, last_tokens.get(run_id, 0))
        if attempt.verdict == "accepted" and attempt.status != "again":
            final_tokens[run_id].append(token)
    for run in tables.runs:
        tokens = final_tokens[run.id]
        if len(tokens) > 1:
            yield f"{run.id} was finished {len(tokens)} times"
        if any(token != run.token for token in tokens):
            yield f"{run.id} was finished as {tokens}, and is kept as {run.token}"
        if last_tokens.get(run.id, 0) > run.token:
            yield f"{run.id} was claimed after its end"
        if not _is_explained(run, story):
            yield f"{run.id} is {run.status} (token {run.token}), and no process recorded it"


def _is_explained(run: Run, story: Story) -> bool:
    attempt = story.attempts.get((run.id, run.token))
    if attempt is not None and attempt.status == run.status and attempt.verdict != "lost":
        return True
    if run.status is RunStatus.CANCELED:
        return bool(story.canceling[run.id]) or run.cancel_requested_at is not None
    if run.status is RunStatus.SKIPPED and run.schedule is not None and run.token == 0:
        return True  # a ticker skipped it: the overlap policy
    # The reaper ended it, after its third worker.
    return run.status is RunStatus.FAILED_PERMANENT and run.crashes >= 3


def _overlapping(story: Story) -> Iterator[str]:
    before: Attempt | None = None
    for _, attempt in sorted(story.attempts.items()):
        if before is not None and before.run == attempt.run and before.valid_until > attempt.start:
            yield f"{attempt.run}: tokens {before.token} and {attempt.token} were valid at once"
        before = attempt


def _over_limits(story: Story) -> Iterator[str]:
    by_key: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in story.attempts.values():
        # A start that was logged after its lease expired proves nothing.
        if attempt.valid_until > attempt.start:
            for key in slots_in(attempt.keys):
                by_key[key].append(attempt)
    for key, attempts in by_key.items():
        starts = sorted(attempt.start for attempt in attempts)
        ends = sorted(attempt.valid_until for attempt in attempts)
        for attempt in attempts:
            # Started by then, minus ended before.
            at = attempt.start
            running = bisect_right(starts, at) - bisect_right(ends, at - 1)
            allowed = (
                1
                if is_kept_between_attempts(key)
                else _slots_during(story.changes, limit_of(key), attempt.begun, at)
            )
            if running > allowed:
                yield f"{key}: {running} at once, and {allowed} are allowed ({attempt})"


def _over_rates(story: Story) -> Iterator[str]:
    """More starts than the rate allows, in any window."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for attempt in story.attempts.values():
        for key in filter(is_rate, attempt.keys):
            by_key[key].append(attempt.at)
    for key, starts in by_key.items():
        starts.sort()
        allowed, window = SLOTS_BY_LIMIT[limit_of(key)], window_of(key) // MICROSECOND
        for first, after in zip(starts, starts[allowed:], strict=False):
            if after - first < window:
                yield f"{key}: {allowed + 1} starts within {after - first} us"


def _slots_during(changes: Iterable[Change], name: str, begun: int, at: int) -> int:
    """The highest limit during a claim.

    The last claim saw all the others: the limit at that moment counts,
    and it came between this claim's beginning and its start.
    """
    slots, since = SLOTS_BY_LIMIT[name], 0
    most = 0
    for change in changes:
        if change.name == name:
            if since <= at and begun <= change.after:
                most = max(most, slots)
            slots, since = change.slots, change.before
    return max(most, slots) if since <= at else most


def _not_unique(story: Story) -> Iterator[str]:
    """Two runs of one key that were both unfinished at some moment."""
    spans_by_run: dict[str, tuple[int, int]] = {}
    for attempt in story.attempts.values():
        if attempt.verdict != "lost":
            first, last = spans_by_run.get(attempt.run, (FOREVER, 0))
            known = attempt.start if attempt.end == FOREVER else attempt.end
            spans_by_run[attempt.run] = (min(first, attempt.start), max(last, known))
    by_key: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for run_id, (key, added) in story.added.items():
        if key and run_id in spans_by_run:
            # The process that added it may have logged it after others had worked on it.
            first, last = spans_by_run[run_id]
            by_key[key].append((min(first, added), last, run_id))
    for key, spans in by_key.items():
        spans.sort()
        for (_, until, one), (since, _, other) in pairwise(spans):
            if since < until:
                yield f"{key} was held by {one} and {other} at once"


def _fired_wrongly(tables: Tables) -> Iterator[str]:
    """Every instant of a schedule gave one run, or is counted in one row with a reason."""
    runs_by_schedule: dict[str, list[Run]] = defaultdict(list)
    for run in tables.runs:
        if run.schedule is not None:
            runs_by_schedule[run.schedule].append(run)
    for row in tables.schedules:
        runs = runs_by_schedule[row.spec.name]
        first, last = EVERY_SECOND.next_after(row.created_at), row.last_fired_at
        assert first is not None
        due = 0 if last is None else EVERY_SECOND.count_between(first, last)
        fired = sum(run.instants for run in runs)
        if fired != due:
            yield f"{row.spec.name}: {due} instants, and {fired} runs"
        if len({run.nominal_at for run in runs}) < len(runs):
            yield f"{row.spec.name}: an instant was fired twice"
        if row.next_due_at is not None or due == 0:
            yield f"{row.spec.name} stands still"


def unfair(story: Story, crew: Crew, *, share_min: float) -> list[str]:
    accepted = Counter[int]()
    for serial, count in story.accepted_by_serial.items():
        accepted[crew.orders[serial].seat] += count
    share = share_min * accepted.total() / SEATS
    return [f"seat {seat}: {accepted[seat]}" for seat in range(SEATS) if accepted[seat] < share]


# ---------------------------------------------------------------- the tests

RUNS_BY_KIND = {"sqlite": 20_000, "postgres": 20_000, "mariadb": 3_000}
"""What two cores do in less than half a minute; the long variant does more."""

SERVERS = {"postgres", "mariadb"}
KINDS = [
    pytest.param(kind, marks=[pytest.mark.servers(kind)] if kind in SERVERS else [])
    for kind in RUNS_BY_KIND
]


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    if kind in SERVERS:
        url: str = request.getfixturevalue(f"{kind}_url")
        return url
    # A killed process is not a power cut: the system keeps what it has written.
    return f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db?synchronous=NORMAL"


class TestManyProcesses:
    """Eight processes share a database without a violation, while some are killed."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_there_is_no_violation(self, kind, request, tmp_path):
        self.check(url_of(kind, request), tmp_path, runs=RUNS_BY_KIND[kind], kills=8)

    @pytest.mark.long
    @pytest.mark.parametrize("kind", KINDS)
    def test_for_longer(self, kind, request, tmp_path):
        url = url_of(kind, request)
        self.check(
            url,
            tmp_path,
            runs=60_000,
            kills=60,
            seconds_max=900,
            share_min=FAIR_SHARE_MIN_LONG,
        )

    def check(
        self,
        url: str,
        folder: Path,
        *,
        runs: int,
        kills: int,
        seconds_max: float = SECONDS_MAX,
        share_min: float = FAIR_SHARE_MIN,
    ) -> None:
        folder = folder / "logs"
        folder.mkdir()

        crew, tables = work_through(url, folder, runs=runs, kills=kills, seconds_max=seconds_max)

        story = Story.read(folder)
        assert len(tables.runs) >= runs
        assert any(attempt.verdict == "lost" for attempt in story.attempts.values())
        assert problems(story, tables) == []
        assert {key for attempt in story.attempts.values() for key in attempt.keys} >= set(RATES)
        assert unfair(story, crew, share_min=share_min) == []
        assert story.slowest < SLOWEST_MAX_SECONDS


# ---------------------------------------------------------------- the checker is checked


def a_start(run: str = "one", token: int = 1, at: int = 0, **fields: Any) -> Attempt:
    facts: dict[str, Any] = {"serial": 1, "begun": at, "start": at, "lease": at + 100, "keys": []}
    facts["at"] = at
    return Attempt(run, token, **facts | {"end": at + 10, "status": "completed"} | fields)


def a_story(*attempts: Attempt, **fields: Any) -> Story:
    added = {attempt.run: ("", 0) for attempt in attempts}
    return Story(
        attempts={(attempt.run, attempt.token): attempt for attempt in attempts},
        **{"added": added, "wanted": set(added)} | fields,
    )


def an_ended(run: str = "one", token: int = 1, **fields: Any) -> Run:
    facts: dict[str, Any] = {
        "status": RunStatus.COMPLETED,
        "phase": None,
        "created_at": EPOCH,
        "due_at": EPOCH,
        "ended_at": EPOCH,
    }
    return Run(id=RunId(run), job="plain", token=token, **facts | fields)


def a_change(slots: int, before: int, after: int) -> Change:
    return Change(CHANGING, slots, before, after)


class TestChecker:
    """It finds each violation, and none in a clean log."""

    def test_a_clean_log(self):
        assert problems(a_story(a_start()), Tables([an_ended()])) == []

    def test_a_run_is_lost(self):
        assert problems(a_story(a_start()), Tables([])) == ["one is lost"]

    def test_a_run_was_never_added(self):
        story = a_story(a_start(), wanted={"two"}, added={})

        assert problems(story, Tables([an_ended()])) == ["one was never added"]

    def test_a_run_exists_twice(self):
        [found] = problems(a_story(a_start()), Tables([an_ended(), an_ended()]))

        assert found == "one exists 2 times"

    def test_a_run_is_unfinished(self):
        left = an_ended(status=RunStatus.PENDING, phase=Phase.READY, token=0, ended_at=None)

        assert "one is left ready on None" in problems(a_story(a_start()), Tables([left]))

    def test_a_slot_leaked(self):
        assert problems(a_story(), Tables([], slots_taken=1)) == ["1 slots leaked"]

    def test_a_run_is_finished_twice(self):
        first, second = a_start(verdict="accepted"), a_start(token=2, at=20, verdict="accepted")

        found = problems(a_story(first, second), Tables([an_ended(token=2)]))

        assert "one was finished 2 times" in found

    def test_a_run_is_finished_by_a_worker_that_lost_it(self):
        first, second = a_start(verdict="accepted"), a_start(token=2, at=20, status="again")

        found = problems(a_story(first, second), Tables([an_ended(token=1)]))

        assert "one was claimed after its end" in found

    def test_a_run_is_finished_by_no_process(self):
        [found] = problems(a_story(a_start(status="again")), Tables([an_ended()]))

        assert "no process recorded it" in found

    @pytest.mark.parametrize(
        ("first", "is_clean"),
        [
            ({"end": 5}, True),
            ({"end": 30}, False),
            ({"end": 30, "lease": 15}, True),
            ({"end": FOREVER, "lease": 30}, False),
            ({"end": FOREVER, "lease": 30, "killed": 15}, True),
        ],
    )
    def test_two_workers_hold_a_run_at_once(self, first, is_clean):
        story = a_story(a_start(**first, status="again"), a_start(token=2, at=20))

        assert (problems(story, Tables([an_ended(token=2)])) == []) is is_clean

    @pytest.mark.parametrize(("second_at", "is_clean"), [(5, False), (10, False), (11, True)])
    def test_a_limit_is_exceeded(self, second_at, is_clean):
        keys = ["account:charge=1"]
        story = a_story(a_start(keys=keys), a_start("two", at=second_at, keys=keys))

        found = problems(story, Tables([an_ended(), an_ended("two")]))

        assert (found == []) is is_clean

    @pytest.mark.parametrize(
        ("changes", "is_clean"),
        [
            ([], True),
            ([a_change(1, 3, 4)], False),
            ([a_change(1, 3, 7)], True),  # it may have come after the claim
            ([a_change(1, 1, 2), a_change(2, 5, 9)], True),  # and this before it
            ([a_change(1, 1, 2), a_change(2, 9, 10)], False),
        ],
    )
    def test_a_limit_that_changes(self, changes, is_clean):
        second = a_start("two", at=8, begun=6, keys=[CHANGING])
        story = a_story(a_start(keys=[CHANGING]), second, changes=changes)

        found = problems(story, Tables([an_ended(), an_ended("two")]))

        assert (found == []) is is_clean

    @pytest.mark.parametrize(("last_at", "is_clean"), [(499_999, False), (500_000, True)])
    def test_a_rate_is_exceeded(self, last_at, is_clean):
        times = [*range(40), last_at]
        story = a_story(*(a_start(f"at {at}", at=at, keys=RATES[:1]) for at in times))

        found = problems(story, Tables([an_ended(f"at {at}") for at in times]))

        assert (found == []) is is_clean

    @pytest.mark.parametrize(
        ("instants", "is_clean"), [([1, 1], True), ([1], False), ([1, 2], False), ([2], True)]
    )
    def test_an_instant_gives_no_run_or_two(self, instants, is_clean):
        spec = ScheduleSpec(name="digest", job="ticked", rule="every second")
        row = ScheduleRow(
            id=ScheduleId("schedule"),
            spec=spec,
            created_at=EVERY_SECOND.anchor,
            next_due_at=None,
            last_fired_at=EVERY_SECOND.anchor + timedelta(seconds=2),
        )
        runs = [
            an_ended(
                f"run {number}",
                token=0,
                status=RunStatus.SKIPPED,
                schedule="digest",
                nominal_at=EVERY_SECOND.anchor + timedelta(seconds=number + 1),
                instants=count,
            )
            for number, count in enumerate(instants)
        ]

        assert (problems(Story(), Tables(runs, schedules=[row])) == []) is is_clean

    @pytest.mark.parametrize(("second_at", "is_clean"), [(5, False), (11, True)])
    def test_a_unique_key_is_held_twice(self, second_at, is_clean):
        added = {"one": ("key", 0), "two": ("key", second_at)}
        story = a_story(a_start(), a_start("two", at=second_at), added=added)

        found = problems(story, Tables([an_ended(), an_ended("two")]))

        assert (found == []) is is_clean
