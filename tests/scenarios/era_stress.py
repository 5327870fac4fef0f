"""Dispatchers, workers and faults on one PostgreSQL database, with tiny thresholds of eras.

A reader holds a snapshot all the time, so that no dead row is removed. Some dispatchers commit
late, some roll back, and one holds its transaction open and dispatches in it now and then. Attempts
fail, and get old due times. Backends of workers are killed.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import psycopg

from contract.builders import a_run
from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.transitions import Transition, reap
from tickwork._kernel.clock import SystemClock
from tickwork._stores.contract import ClaimRequest
from tickwork._stores.postgres.store import PostgresStore
from tickwork.errors import StoreError

CLOCK: Final = SystemClock()
LEASE: Final = timedelta(seconds=2)
IDLE_CLAIMS: Final = 20
PATIENCE: Final = 60.0
WORKER: Final = WorkerId("019b76da-a800-7000-8000-00000000ba4e")
BEST: Final = """
SELECT priority, due_at, id::text FROM tickwork_run
WHERE phase = 'ready' ORDER BY priority, due_at, id LIMIT 1
"""


@dataclass
class StressReport:
    """What happened. ``faults`` is empty if every promise was kept."""

    dispatched: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    false_empty: int = 0
    wrong_order: int = 0
    left: dict[str, int] = field(default_factory=dict)
    stored: int = 0
    moves: int = 0
    kills: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        found = []
        if self.errors:
            found.append(self.errors[0])
        if self.left:
            found.append(f"runs were left behind: {self.left}")
        if self.stored != self.dispatched:
            found.append(f"{self.dispatched} were dispatched, {self.stored} finished")
        if any(count > 1 for count in self.finished.values()):
            found.append("a run finished twice")
        if self.false_empty:
            found.append(f"{self.false_empty} claims were empty although runs were ready")
        if self.wrong_order:
            found.append(f"{self.wrong_order} claims were not in order")
        return found


class EraStress:
    """One run of the stress. ``claimers=1`` checks the order of each claim, too."""

    def __init__(
        self, url: str, *, seed: int, seconds: float, claimers: int, has_kills: bool = True
    ):
        self.url = url
        self.seconds = seconds
        self.claimers = claimers
        self.has_kills = has_kills
        self.random = random.Random(seed)
        self.report = StressReport()
        self._stop_dispatching = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> StressReport:
        dispatchers = [self._dispatch] * 3 + [self._dispatch_late]
        others = [self._claim] * self.claimers + [self._hold]
        if self.has_kills:
            others.append(self._kill)
        writing = self._start(dispatchers)
        working = self._start(others)
        time.sleep(self.seconds)
        self._stop_dispatching.set()
        for thread in writing:
            thread.join(PATIENCE)
        self._stop.set()
        for thread in working:
            thread.join(PATIENCE)
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT phase, count(*) FROM tickwork_run GROUP BY 1")
            self.report.left = dict(rows.fetchall())
            [(self.report.stored,)] = connection.execute("SELECT count(*) FROM tickwork_history")
        return self.report

    def _start(self, parts: Sequence[Callable[[random.Random], None]]) -> list[threading.Thread]:
        threads = []
        for part in parts:
            rng = random.Random(self.random.random())
            threads.append(threading.Thread(target=self._guard, args=(part, rng), daemon=True))
            threads[-1].start()
        return threads

    def _guard(self, part: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            part(rng)
        except Exception as error:  # noqa: BLE001  # a thread must not end without a report
            self.report.errors.append(f"{part.__name__}: {error!r}")

    def _some_runs(self, rng: random.Random, count: int) -> list[Any]:
        now = CLOCK.now()
        priority = rng.choice((10, 50, 90))
        return [
            a_run(created_at=now, due_at=now, priority=priority, attempts_max=9)
            for _ in range(count)
        ]

    # ------------------------------------------------------------ threads

    def _dispatch(self, rng: random.Random) -> None:
        store = PostgresStore(self.url)
        with psycopg.connect(self.url) as connection:
            while not self._stop_dispatching.is_set():
                runs = self._some_runs(rng, rng.choice((1, 1, 1, 3, 20)))
                is_slow = rng.random() < 0.15
                if is_slow and rng.random() < 0.5:
                    connection.execute("SELECT txid_current()")
                    time.sleep(rng.random() * 0.1)
                store.using(connection).add_runs(runs)
                if is_slow:
                    time.sleep(rng.random() * 0.1)
                if rng.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                    with self._lock:
                        self.report.dispatched += len(runs)
                if rng.random() < 0.3:
                    time.sleep(0.003)
        store.close()

    def _dispatch_late(self, rng: random.Random) -> None:
        store = PostgresStore(self.url)
        with psycopg.connect(self.url) as connection:
            while not self._stop_dispatching.is_set():
                connection.execute("SELECT txid_current()")
                count = 0
                for _ in range(rng.choice((1, 2, 5))):
                    self._stop_dispatching.wait(0.2)
                    store.using(connection).add_runs(self._some_runs(rng, 3))
                    count += 3
                connection.commit()
                with self._lock:
                    self.report.dispatched += count
        store.close()

    def _hold(self, _: random.Random) -> None:
        while not self._stop.is_set():
            with psycopg.connect(self.url) as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                connection.execute("SELECT count(*) FROM tickwork_run")
                self._stop.wait(10.0)

    def _kill(self, rng: random.Random) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self._stop_dispatching.wait(0.2 + rng.random()):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'claimer' ORDER BY random() LIMIT 1"
                )
                self.report.kills += 1

    def _claim(self, rng: random.Random) -> None:
        mark = "&" if "?" in self.url else "?"
        store = PostgresStore(f"{self.url}{mark}application_name=claimer")
        memory = store.query.eras
        assert memory is not None
        memory.dead_max, memory.check_seconds, memory.look_seconds = 8, 0.005, 0.002
        memory.renew_seconds = 1e9  # a bug must not be hidden by it
        is_alone = self.claimers == 1
        idle = number = 0
        with psycopg.connect(self.url, autocommit=True) as own:
            while idle < IDLE_CLAIMS:
                number += 1
                best = own.execute(BEST).fetchone() if is_alone else None
                now = CLOCK.now()
                try:
                    claims = store.claim(
                        ClaimRequest(rng.choice((1, 5, 16))),
                        worker=WORKER,
                        tag=f"{id(store)}-{number}",
                        now=now,
                        lease=LEASE,
                    )
                except StoreError:
                    best = None
                    claims = []
                if best is not None:
                    self._check_order(own, best, [claim.run_id for claim in claims])
                if not claims:
                    idle += self._stop.is_set() and not self._take_back(store)
                    time.sleep(0.003)
                    continue
                idle = 0
                self._record(store, rng, claims)
        self.report.moves += memory.moves
        store.close()

    def _check_order(self, own: Any, best: tuple[Any, ...], ids: list[str]) -> None:
        if not ids:
            self.report.false_empty += 1
            return
        rows = own.execute(
            "SELECT priority, due_at, id::text FROM tickwork_run WHERE id = ANY (%s::uuid[])", [ids]
        ).fetchall()
        if rows and min(rows) > best:
            self.report.wrong_order += 1

    def _take_back(self, store: PostgresStore) -> bool:
        """Return runs whose claim was lost with its connection; whether any may come back."""
        now = CLOCK.now()
        with suppress(StoreError):
            store.reap(
                now=now,
                limit=100,
                decide=lambda expired: reap(expired.claim, has_started=False, now=now),
            )
            store.stage(now=now, limit=100)
            counts = store.count_runs().by_phase
            return counts[Phase.RUNNING] + counts[Phase.WAITING] > 0
        return True

    def _record(self, store: PostgresStore, rng: random.Random, claims: list[Any]) -> None:
        now = CLOCK.now()
        steps = []
        for claim in claims:
            if rng.random() < 0.1 and claim.attempt < 3:
                due_at = now - timedelta(seconds=rng.choice((0, 0, 5)))
                steps.append(
                    Transition(claim, RunStatus.FAILED, OutcomeKind.FAILED, now, now, due_at=due_at)
                )
            else:
                steps.append(
                    Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, now, now)
                )
        try:
            lost = set(store.record(steps))
        except StoreError:
            return
        for step in steps:
            if step.due_at is None and step.claim.run_id not in lost:
                with self._lock:
                    self.report.finished[step.claim.run_id] += 1
