"""Values for the contract of stores, and a driver that uses a store as a worker does.

A test passes the values that matter to it; the builders fill in the others. Everything happens at
``NOON``, unless a test moves the clock. Ids count up, so runs that are created later sort later.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import JobSpec, ScheduleRow, ScheduleSpec
from tickwork._domain.runs.outcome import Outcome, Succeeded
from tickwork._domain.runs.retry import NO_RETRY, Fixed, RetryPolicy
from tickwork._domain.runs.run import Claim, NewRun, Run
from tickwork._domain.runs.status import Phase
from tickwork._domain.runs.transitions import Transition, reap, settle
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.tick import TickPlan, keys_wanted, plan_tick
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import (
    ClaimRequest,
    Expired,
    HeartbeatResult,
    HeldClaim,
    LockRow,
    RunFilter,
    Store,
    WorkerRow,
)
from tickwork.testing.clock import ManualClock

NOON: Final = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

ANN: Final = WorkerId("019cb0d2-0000-7000-8000-00000000a001")
BOB: Final = WorkerId("019cb0d2-0000-7000-8000-00000000b002")
UNKNOWN_ID: Final = RunId("019cb0d2-0000-7000-8000-ffffffffffff")

_numbers = count(1)


# ---------------------------------------------------------------- runs


def an_id() -> str:
    return f"019cb0d2-0000-7000-8000-{next(_numbers):012x}"


def a_run(**given: Any) -> NewRun:
    """A run that is due when it is created, unless the test passes another time."""
    created_at = given.get("created_at", NOON)
    facts = {
        "id": RunId(an_id()),
        "job": "send_email",
        "created_at": created_at,
        "due_at": created_at,
    }
    return NewRun(**facts | given)


def a_fired_run(schedule: str = "digest", nominal_at: datetime = NOON, **given: Any) -> NewRun:
    return a_run(schedule=schedule, nominal_at=nominal_at, **given)


def settled(
    claim: Claim,
    outcome: Outcome = Succeeded(),  # noqa: B008  # a value that never changes
    *,
    now: datetime = NOON,
    retry: RetryPolicy | None = None,
    **given: Any,
) -> Transition:
    """The transition of an outcome. A run with more attempts waits a minute for the next one."""
    if retry is None:
        retry = (
            Fixed(attempts_max=claim.attempts_max, delay=MINUTE)
            if claim.attempts_max > 1
            else NO_RETRY
        )
    return settle(claim, outcome, now=now, retry=retry, random=0.0, **given)


# ---------------------------------------------------------------- schedules


def a_job(name: str = "send_email", **given: Any) -> JobSpec:
    return JobSpec(name=name, **given)


def a_schedule(name: str = "digest", **given: Any) -> ScheduleSpec:
    facts = {"job": "send_email", "rule": "every minute"}
    return ScheduleSpec(name=name, **facts | given)


def added(
    store: Store,
    name: str = "digest",
    *,
    now: datetime = NOON,
    next_due_at: datetime | None = NOON,
    **given: Any,
) -> ScheduleRow:
    """Add a schedule that is due at noon."""
    spec = a_schedule(name, **given)
    return store.add_schedule(ScheduleId(an_id()), spec, now=now, next_due_at=next_due_at)


def tick(
    store: Store,
    clock: Clock,
    *jobs: JobSpec,
    limit: int = 100,
    every: timedelta = MINUTE,
    seen_after: datetime | None = None,
) -> TickPlan:
    """One tick, planned as the ticker does; every schedule fires each minute from noon on."""
    known = {job.name: job for job in jobs or (a_job(),)}
    now = clock.now()
    rule = Interval(length=every, anchor=NOON)
    return store.fire(
        now=now,
        limit=limit,
        jobs=known,
        keys_of=lambda rows: keys_wanted(rows, now=now, jobs=known),
        plan=lambda rows, taken: plan_tick(
            rows, now=now, jobs=known, rule_of=lambda _: rule, taken=taken
        ),
        seen_after=seen_after,
    )


# ---------------------------------------------------------------- the rest


def a_lock(owner: str = "ann", **given: Any) -> LockRow:
    facts: dict[str, Any] = {
        "name": "collect",
        "owner": owner,
        "host": f"{owner}.example.org",
        "pid": 4711,
        "acquired_at": NOON,
        "until": NOON + MINUTE,
    }
    return LockRow(**facts | given)


def a_worker_row(worker: WorkerId = ANN, **given: Any) -> WorkerRow:
    facts: dict[str, Any] = {
        "id": worker,
        "host": "ann.example.org",
        "pid": 4711,
        "boot_id": "b00t",
        "process_started": "12345",
        "started_at": NOON,
        "beat_at": NOON,
        "queues": None,
        "jobs": ("send_email",),
    }
    return WorkerRow(**facts | given)


class StoreDriver:
    """Uses a store as one worker does, at the time of the clock."""

    def __init__(self, store: Store, clock: Clock, worker: WorkerId = ANN) -> None:
        self.id = worker
        self.tag = ""
        self._store = store
        self._clock = clock

    def claim(
        self,
        limit: int = 10,
        *,
        tag: str | None = None,
        lease: timedelta = MINUTE,
        lease_by_job: dict[str, timedelta] | None = None,
        **wanted: Any,
    ) -> list[Claim]:
        self.tag = an_id() if tag is None else tag
        return self._store.claim(
            ClaimRequest(limit, **wanted),
            worker=self.id,
            tag=self.tag,
            now=self._clock.now(),
            lease=lease,
            lease_by_job=lease_by_job,
        )

    def claim_one(self, **given: Any) -> Claim:
        [claim] = self.claim(1, **given)
        return claim

    def start(self, *claims: Claim, until: datetime | None = None) -> HeartbeatResult:
        """Send a heartbeat for these claims, with the start of their handlers."""
        now = self._clock.now()
        held = [HeldClaim(claim.run_id, claim.token, now) for claim in claims]
        return self._store.extend_leases(held, until=until or now + MINUTE)

    def beat(self, *claims: Claim, until: datetime | None = None) -> HeartbeatResult:
        held = [HeldClaim(claim.run_id, claim.token) for claim in claims]
        return self._store.extend_leases(held, until=until or self._clock.now() + MINUTE)

    def record(
        self,
        claim: Claim,
        outcome: Outcome = Succeeded(),  # noqa: B008  # a value that never changes
        **given: Any,
    ) -> list[RunId]:
        return self._store.record([settled(claim, outcome, now=self._clock.now(), **given)])

    def reap(self, limit: int = 10) -> list[Transition]:
        now = self._clock.now()

        def decide(expired: Expired) -> Transition:
            return reap(
                expired.claim,
                has_started=expired.has_started,
                now=now,
                is_cancel_requested=expired.is_cancel_requested,
            )

        return self._store.reap(now=now, limit=limit, decide=decide)

    def run(self, limit: int = 10, **wanted: Any) -> list[RunId]:
        """Claim runs, and record a success for each."""
        claims = self.claim(limit, **wanted)
        for claim in claims:
            assert self.record(claim) == []
        return [claim.run_id for claim in claims]


# ---------------------------------------------------------------- looking


def ids(found: Sequence[NewRun | Run | Claim]) -> list[RunId]:
    return [one.run_id if isinstance(one, Claim) else one.id for one in found]


def the_run(store: Store, run: NewRun | Claim | RunId) -> Run:
    run_id = run.id if isinstance(run, NewRun) else run.run_id if isinstance(run, Claim) else run
    found = store.get_run(run_id)
    assert found is not None, run_id
    return found


def all_runs(store: Store, **where: Any) -> list[Run]:
    """Every run, unfinished or finished, the oldest first."""
    page = store.list_runs(RunFilter(**where), limit=1000)
    assert page.cursor is None, page.cursor
    return page.runs[::-1]


def in_phase(store: Store, phase: Phase) -> list[RunId]:
    return [run.id for run in all_runs(store) if run.phase is phase]


def add(store: Store, *runs: NewRun) -> None:
    """Add runs that do not exist yet."""
    answers = store.add_runs(runs)
    assert all(answer.is_new for answer in answers), answers


def crashed(store: Store, clock: ManualClock, *runs: NewRun) -> None:
    """Add runs, and let each of them crash its worker. This moves the clock by two minutes."""
    driver = StoreDriver(store, clock)
    add(store, *runs)
    driver.start(*driver.claim(len(runs)))
    clock.advance(minutes=2)
    driver.reap(len(runs))
    assert [the_run(store, run).crashes for run in runs] == [1] * len(runs)
