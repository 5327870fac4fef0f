"""One process of many on one database: claims, "works", records, ticks, reaps, sweeps, cancels.

Started by ``test_many_processes``, and killed by it on the way. What happens is written to
a log outside the database, one file for each process: a start after the claim is committed,
an end before it is recorded. Stamps are nanoseconds of the machine's monotonic clock, which
all processes share; a line whose end is missing was being written when the process died.
"""

import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Self

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.job import JobSpec
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import (
    Canceled,
    Failed,
    Interrupted,
    Outcome,
    Skipped,
    Snoozed,
    Succeeded,
)
from tickwork._domain.runs.retry import Fixed
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.transitions import Transition, reap, settle
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.tick import keys_wanted, plan_tick
from tickwork._stores import Store, open_store
from tickwork._stores._sql.rows import micros
from tickwork._stores.contract import AddedRun, ClaimRequest, Expired, HeldClaim

SLOTS_BY_LIMIT: Final = {
    "job:resize": 12,  # changed during the test
    "account:charge": 1,
    "queue:mail": 24,
    "job:both": 12,
    "account:both": 2,
    "job/second:call": 300,
    "account/500ms:call": 40,
}
CHANGING: Final = "job:resize"
UNIQUE_KEYS: Final = 40
CANCELED_OF: Final = 53
"""One of so many runs is canceled, by the first process that reaches it."""

ATTEMPTS_MAX: Final = 3
BATCH: Final = 40
RETRY: Final = Fixed(attempts_max=ATTEMPTS_MAX, delay=timedelta(milliseconds=80))
LEASES: Final = (timedelta(seconds=2), timedelta(seconds=3), timedelta(seconds=5))
SLOW_OF: Final = 250
"""One of so many runs is slow, among the first 1,000: its worker stalls past its lease, and
finds that another worker holds the run."""

STALL_SECONDS_MAX: Final = 20.0
SLOW_SECONDS: Final = 1.5
MILLISECOND: Final = timedelta(milliseconds=1)

JOBS: Final = {"ticked": JobSpec(name="ticked", retry=RETRY)}
EVERY_SECOND: Final = Interval(length=timedelta(seconds=1), anchor=datetime(2026, 1, 1, tzinfo=UTC))


# ---------------------------------------------------------------- runs, by number


def run_id_of(number: int) -> RunId:
    return RunId(f"019cb0d2-0000-7000-8000-{number:012x}")


def number_of(run_id: RunId) -> int:
    return int(run_id[-12:], 16)


def numbered_run(number: int, *, now: datetime) -> NewRun:
    """The run of this number: always of the same job, queue, keys and priority."""
    kind, value = number % 15, number // 15
    job, queue = "plain", "default"
    keys: tuple[str, ...] = ()
    if kind == 0:
        job, keys = "resize", ("job:resize",)
    elif kind in {1, 2}:
        job, keys = "charge", (f"account:charge={value % 40}",)
    elif kind == 3:
        job, queue, keys = "mail", "mail", ("queue:mail",)
    elif kind == 4:
        job, queue, keys = "both", "mail", ("job:both", "queue:mail", f"account:both={value % 12}")
    elif kind == 5:
        job, keys = "call", ("job/second:call",)
    elif kind == 6:
        job, keys = "call", (f"account/500ms:call={value % 5}", "job/second:call", "queue:mail")
    if is_slow(number):
        job, queue, keys = "slow", "default", ()
    delay = MILLISECOND * (value % 2500) if value % 4 == 0 else MILLISECOND * 0
    return NewRun(
        id=run_id_of(number),
        job=job,
        queue=queue,
        priority=(50, 100, 100, 150)[value % 4],
        created_at=now,
        due_at=now + delay,
        attempts_max=ATTEMPTS_MAX,
        limit_keys=keys,
    )


def is_slow(number: int) -> bool:
    return number % SLOW_OF == 0 and number < 1000


def all_limit_keys() -> list[str]:
    charged = [f"account:charge={value}" for value in range(40)]
    both = [f"account:both={value}" for value in range(12)]
    return [*charged, *both, "job:resize", "queue:mail", "job:both"]


def outcome_of(claim: Claim) -> Outcome:
    """The outcome of this attempt: the same in every process."""
    if claim.job == "slow":
        return Succeeded()
    dice = (number_of(claim.run_id) * 7919 + claim.attempt * 104_729) % 100
    if dice < 8:
        return Failed("it does, now and then")
    if dice < 10:
        return Failed("it does for good", retry=False)
    if dice < 13 and claim.token == 1:
        return Snoozed(MILLISECOND * 100)
    if dice < 15 and claim.token <= 2:
        return Interrupted("a deploy")
    if dice < 17:
        return Skipped("not today")
    return Succeeded()


# ---------------------------------------------------------------- the log


class Log:
    """Appends lines of fields, each batch with one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *lines: Sequence[object]) -> None:
        if lines:
            os.write(
                self._file, "".join("\t".join(map(str, line)) + "\n" for line in lines).encode()
            )


def read_log(path: Path) -> Iterator[list[str]]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield line[:-1].split("\t")


def stamp() -> int:
    return time.monotonic_ns()


# ---------------------------------------------------------------- the process


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The options of a process, as JSON on its command line."""

    url: str
    folder: str
    seat: int  # a killed process is replaced by another on the same seat
    serial: int  # unique for each process
    runs: int  # that the test adds, numbered from 0
    uniques: int  # runs with unique keys that it adds
    seed: int

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def log(self) -> Path:
        return Path(self.folder) / f"{self.serial}.log"

    @property
    def has_added(self) -> Path:
        return Path(self.folder) / f"{self.serial}.added"

    @property
    def is_stalling(self) -> Path:
        return Path(self.folder) / f"{self.serial}.stalls"

    @property
    def is_over(self) -> Path:
        return Path(self.folder) / "over"

    @property
    def worker(self) -> WorkerId:
        return WorkerId(f"019cb0d2-0000-7000-8000-aaaa{self.serial:08x}")


class Moment(NamedTuple):
    """The database's time, and a stamp from just before it was read."""

    now: datetime
    stamp: int

    def stamp_of(self, at: datetime) -> int:
        """A stamp that is never later than this time of the database."""
        return self.stamp + (at - self.now) // timedelta(microseconds=1) * 1000


class StoreWorker:
    """The operations of a worker on a store, in one thread, more often than usual."""

    def __init__(self, orders: Orders, store: Store) -> None:
        self.orders = orders
        self.store = store
        self.log = Log(orders.log)
        self.random = random.Random(orders.seed)
        self.number = orders.serial * 1_000_000_000
        self.uniques_left = orders.uniques
        self.upkeep_at = 0.0
        self.slowest = 0

    def run(self) -> None:
        tags = 0
        # It ends when the test creates a file.
        while not self.orders.is_over.exists():
            self.maintain()
            self.add_uniques()
            self.cancel_some()
            tags += 1
            if not self.claim_and_work(f"{self.orders.serial}-{tags}"):
                time.sleep(self.random.uniform(0.002, 0.02))
        self.log.write(("slowest", self.slowest))

    def moment(self) -> Moment:
        before = stamp()
        return Moment(self.store.database_time(), before)

    # ------------------------------------------------------------ work

    def claim_and_work(self, tag: str) -> bool:
        moment = self.moment()
        lease = self.random.choice(LEASES)
        begun = stamp()
        claims = self.store.claim(
            self.wanted(),
            worker=self.orders.worker,
            tag=tag,
            now=moment.now,
            lease=lease,
            lease_by_job={"resize": LEASES[0], "slow": LEASES[0]},
        )
        started = stamp()
        self.slowest = max(self.slowest, started - begun)
        self.log.write(
            *(
                (
                    "start",
                    claim.run_id,
                    claim.token,
                    begun,
                    started,
                    moment.stamp_of(claim.lease_until),
                    " ".join(claim.limit_keys),
                    micros(moment.now),
                )
                for claim in claims
            )
        )
        if claims:
            self.work(claims, tag)
        return bool(claims)

    def wanted(self) -> ClaimRequest:
        dice = self.random.random()
        if dice < 0.1:
            return ClaimRequest(BATCH, queues=("mail",))
        if dice < 0.2:
            return ClaimRequest(BATCH, jobs=("plain", "slow", "charge", "ticked"))
        if dice < 0.3:
            return ClaimRequest(0, ahead=BATCH)
        return ClaimRequest(self.random.randint(1, BATCH))

    def work(self, claims: list[Claim], tag: str) -> None:
        to_cancel: set[RunId] = set()
        if self.random.random() < 0.2 and not any(claim.job == "slow" for claim in claims):
            to_cancel = self.beat(claims)
        if self.random.random() < 0.02:
            found = {
                claim.run_id for claim in self.store.find_claims(worker=self.orders.worker, tag=tag)
            }
            assert found == {claim.run_id for claim in claims}, "its own claims, by their tag"
        time.sleep(self.random.uniform(0, 0.004))
        slow = [claim for claim in claims if claim.job == "slow"]
        if any(claim.token == 1 for claim in slow):
            self.stall(slow)
        elif slow:
            time.sleep(SLOW_SECONDS)
        self.finish(claims, to_cancel)

    def stall(self, claims: list[Claim]) -> None:
        """Stall like a stopped process, until others have taken or ended one of these."""
        self.orders.is_stalling.touch()
        tokens = {claim.run_id: claim.token for claim in claims}
        give_up_at = time.monotonic() + STALL_SECONDS_MAX
        while time.monotonic() < give_up_at:
            time.sleep(0.1)
            runs = self.store.get_runs(list(tokens))
            if any(run.token > tokens[run.id] or run.is_finished for run in runs):
                break
        self.orders.is_stalling.unlink()

    def beat(self, claims: Iterable[Claim]) -> set[RunId]:
        moment = self.moment()
        until = moment.now + LEASES[0]
        held = [HeldClaim(claim.run_id, claim.token, moment.now) for claim in claims]
        beat = self.store.extend_leases(held, until=until)
        self.log.write(
            *(
                ("beat", one.run_id, one.token, moment.stamp_of(until))
                for one in held
                if one.run_id not in beat.lost
            )
        )
        return set(beat.cancel_requested)

    def finish(self, claims: Iterable[Claim], to_cancel: set[RunId]) -> None:
        now = self.store.database_time()
        steps = []
        for claim in claims:
            is_canceled = claim.run_id in to_cancel
            outcome = Canceled("as requested") if is_canceled else outcome_of(claim)
            steps.append(
                settle(
                    claim,
                    outcome,
                    now=now,
                    retry=RETRY,
                    random=0.5,
                    is_cancel_requested=is_canceled,
                )
            )
        ended = stamp()
        self.log.write(*(("end", *_attempt(step), ended, _status_of(step)) for step in steps))
        completed = [step for step in steps if _is_for_complete(step)]
        for step in completed:
            is_ours = self.store.complete(step.claim, now=now)
            self.log.write(("wrote", *_attempt(step), "accepted" if is_ours else "lost"))
        recorded = [step for step in steps if step not in completed]
        lost = set(self.store.record(recorded))
        if self.random.random() < 0.05:
            again = set(self.store.record(recorded, may_be_stored=True))
            # A run that waits for its next attempt may have been claimed since.
            assert {run for run in again - lost if _is_final(run, recorded)} == set(), "twice"
        self.log.write(
            *(
                ("wrote", *_attempt(step), "lost" if step.claim.run_id in lost else "accepted")
                for step in recorded
            )
        )

    # ------------------------------------------------------------ maintenance

    def maintain(self) -> None:
        """Stage, tick, reap, sweep and take turns, each process at times of its own."""
        if time.monotonic() < self.upkeep_at:
            return
        self.upkeep_at = time.monotonic() + self.random.uniform(0.1, 0.3)
        now = self.store.database_time()
        self.store.stage(now=now, limit=500)

        def decide(expired: Expired) -> Transition:
            return reap(
                expired.claim,
                has_started=expired.has_started,
                now=now,
                is_cancel_requested=expired.is_cancel_requested,
            )

        self.store.fire(
            now=now,
            limit=10,
            jobs=JOBS,
            keys_of=lambda rows: keys_wanted(rows, now=now, jobs=JOBS),
            plan=lambda rows, taken: plan_tick(
                rows, now=now, jobs=JOBS, rule_of=lambda _: EVERY_SECOND, taken=taken
            ),
        )
        taken_back = self.store.reap(now=now, limit=100, decide=decide)
        self.log.write(*(("reaped", *_attempt(step), _status_of(step)) for step in taken_back))
        self.store.sweep(now=now, limit=100)
        self.store.unblock_rated(now=self.store.database_time(), limit=100)

    def add_uniques(self) -> None:
        """Add runs whose unique keys others want, too."""
        if self.uniques_left <= 0:
            return
        now = self.store.database_time()
        runs = []
        for chosen in self.random.sample(range(UNIQUE_KEYS), 4):
            self.number += 1
            runs.append(
                NewRun(
                    id=run_id_of(self.number),
                    job="plain",
                    created_at=now,
                    due_at=now,
                    attempts_max=ATTEMPTS_MAX,
                    unique=UniqueKey(f"unique-{chosen}", None),
                )
            )
        keys = [run.unique.key if run.unique else "" for run in runs]
        self.log.write(*(("wants", run.id, key) for run, key in zip(runs, keys, strict=True)))
        answers = self.store.add_runs(runs)
        added = stamp()
        for run, key, answer in zip(runs, keys, answers, strict=True):
            assert answer.is_new == (answer.run_id == run.id), answer
            if answer.is_new:
                self.log.write(("added", run.id, key, added))
                self.uniques_left -= 1
        if self.random.random() < 0.1:
            ours = [run for run, answer in zip(runs, answers, strict=True) if answer.is_new]
            for run, answer in zip(
                ours, self.store.add_runs(ours, may_be_stored=True), strict=True
            ):
                assert answer == AddedRun(run.id, is_new=False), answer
        if self.uniques_left <= 0:
            self.orders.has_added.touch()

    def cancel_some(self) -> None:
        if self.random.random() > 0.2:
            return
        number = self.random.randrange(self.orders.runs // CANCELED_OF) * CANCELED_OF
        run_id = run_id_of(number)
        self.log.write(("canceling", run_id, stamp()))
        answer = self.store.cancel(run_id, now=self.store.database_time(), reason="not needed")
        self.log.write(("canceled", run_id, answer.value))


def _attempt(step: Transition) -> tuple[RunId, int]:
    return step.claim.run_id, step.claim.token


def _status_of(step: Transition) -> str:
    return step.to_status.value if step.is_final else "again"


def _is_final(run_id: RunId, steps: Iterable[Transition]) -> bool:
    return any(step.claim.run_id == run_id and step.is_final for step in steps)


def _is_for_complete(step: Transition) -> bool:
    return _status_of(step) == "completed" and number_of(step.claim.run_id) % 17 == 0


def main() -> None:
    orders = Orders.from_text(sys.argv[1])
    store = open_store(orders.url)
    try:
        StoreWorker(orders, store).run()
    finally:
        store.close()


if __name__ == "__main__":
    main()
