"""A store on SQL gives the same results as the independent store, for random operations.

Hypothesis draws operations of the store contract. The same ones are called on the store of the
folder oracle, in plain Python, and on a store on SQL. After each operation both have returned the
same result and show the same state, and the promises of `DESIGN.md` hold.

Where the contract leaves a choice (for example which of two equal runs is unblocked first), the
test passes a limit that is large enough for all rows, so that there is no choice. Every comparison
is exact.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from contract.builders import ANN, BOB, HOUR, MINUTE, NOON, SECOND, a_job, a_schedule
from oracle.store import OracleStore
from servers import mariadb
from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import (
    JobSpec,
    Misfire,
    Overlap,
    ScheduleOrigin,
    ScheduleRow,
    ScheduleSpec,
)
from tickwork._domain.limits.limits import (
    Limit,
    Unique,
    UniqueKey,
    is_kept_between_attempts,
    keys_needed,
    limit_of,
    one_at_a_time,
    slots_in,
)
from tickwork._domain.limits.rates import is_rate, window_of
from tickwork._domain.runs.outcome import (
    Canceled,
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Postponed,
    Skipped,
    Snoozed,
    Succeeded,
    Suspended,
)
from tickwork._domain.runs.retry import NO_RETRY, Fixed
from tickwork._domain.runs.run import Claim, NewRun, Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._domain.runs.transitions import Transition, reap, settle
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.tick import TickPlan, keys_wanted, plan_tick
from tickwork._stores import Store, open_store
from tickwork._stores._sql.operations import claim as claim_operation
from tickwork._stores._sql.operations import schedules as schedules_operation
from tickwork._stores.contract import (
    ClaimRequest,
    Expired,
    HeldClaim,
    LogLine,
    Pause,
    PauseKind,
    Pruned,
    RunFilter,
    RunRecord,
)
from tickwork.testing import ManualClock

T = TypeVar("T")

CAT: Final = WorkerId("019cb0d2-0000-7000-8000-00000000c003")
ALL: Final = 1000
"""More than there ever is."""

JOB_KEY, QUEUE_KEY = "job:mail", "queue:slow"
ACCOUNTS: Final = ("account:mail=1", "account:mail=2")
RATE, RATES = "queue/minute:slow", ("account/1m30s:mail=1", "account/1m30s:mail=2")
LIMITS: Final = (JOB_KEY, QUEUE_KEY, "account:mail", RATE, "account/1m30s:mail")
RULE: Final = Interval(length=MINUTE, anchor=NOON)

JOBS: Final[dict[str, JobSpec]] = {
    "mail": a_job("mail", retry=Fixed(attempts_max=2, delay=MINUTE), limits=(Limit(1),)),
    "resize": a_job("resize", queue="slow", unique=Unique()),
    "plain": a_job("plain", crashes_max=2),
}


# ---------------------------------------------------------------- operations


def delays(*more: timedelta) -> st.SearchStrategy[timedelta]:
    return st.sampled_from([timedelta(0), timedelta(0), SECOND * 30, MINUTE * 3, *more])


class RunPlan(NamedTuple):
    """A run that is yet to get its id and its times."""

    delay: timedelta
    unique: tuple[str, timedelta | None] | None
    expires: timedelta | None
    given: dict[str, Any]


run_plans: Final = st.builds(
    RunPlan,
    delay=delays(),
    unique=st.none() | st.tuples(st.sampled_from("ab"), st.sampled_from([None, MINUTE * 2])),
    expires=st.sampled_from([None, None, None, MINUTE]),
    given=st.fixed_dictionaries(
        {
            "job": st.sampled_from(["mail", "resize"]),
            "queue": st.sampled_from(["default", "slow"]),
            "priority": st.sampled_from([10, 100]),
            "tenant": st.sampled_from(["", "", "", "acme"]),
            "attempts_max": st.integers(1, 3),
            "limit_keys": st.sampled_from(
                [
                    (),
                    (),
                    (JOB_KEY,),
                    (QUEUE_KEY,),
                    ACCOUNTS[:1],
                    ACCOUNTS[1:],
                    (JOB_KEY, ACCOUNTS[0]),
                    (QUEUE_KEY, JOB_KEY),
                    (RATE,),
                    (RATE,),
                    RATES[:1],
                    RATES[1:],
                    (RATE, JOB_KEY),
                    (QUEUE_KEY, *RATES[:1]),
                ]
            ),
            "overlap_key": st.sampled_from([None, None, None, "held:x", "waiting:y"]),
            "tags": st.sampled_from([(), ("red",)]),
            "args": st.sampled_from(["{}", '{"to": "zoé"}']),
        }
    ),
)

outcomes: Final[st.SearchStrategy[Outcome]] = st.sampled_from(
    [
        Succeeded(),
        Succeeded(),
        Succeeded('"done"', "a note"),
        Failed("no"),
        Failed("no", "Traceback…", retry=True),
        Failed("never", retry=False),
        Failed("not yet", delay=MINUTE * 5),
        Snoozed(MINUTE),
        Snoozed(timedelta(0), "at once"),
        Suspended(NOON + MINUTE, "sleeps"),
        Skipped("closed"),
        Skipped("holiday"),
        Postponed("not now"),
        Interrupted(),
        Canceled("as requested"),
        Crashed("it died"),
        Crashed("it died", has_started=False),
    ]
)

workers: Final = st.sampled_from([ANN, BOB, CAT])

ActionTable: TypeAlias = dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]]

ALWAYS: Final[ActionTable] = {
    "time_passes": (
        9,
        {
            "length": st.sampled_from([SECOND, SECOND * 30, MINUTE, MINUTE * 3, MINUTE * 5, HOUR]),
            "upkeep": st.sampled_from(
                [
                    ("stage",),
                    ("stage", "reap"),
                    ("sweep",),
                    ("unblock_rated",),
                    ("unblock_rated", "stage"),
                    (),
                ]
            ),
        },
    ),
    "add_runs": (
        9,
        {
            "plans": st.lists(run_plans, min_size=1, max_size=6),
            "is_doubted": st.booleans(),
        },
    ),
    "claim": (
        14,
        {
            "worker": workers,
            "limit": st.sampled_from([1, 2, 3, ALL, ALL]),
            "queues": st.sampled_from([None, None, None, ("default",), ("slow", "unheard of")]),
            "jobs": st.sampled_from([None, None, None, ("mail", "plain"), ("resize",)]),
            "is_ahead": st.sampled_from([False, False, False, False, True]),
            "lease": st.sampled_from([SECOND * 30, MINUTE * 2]),
            "looks_short": st.booleans(),
        },
    ),
    "worker_died": (1, {"worker": workers}),
    "prune": (
        2,
        {
            "age": st.sampled_from([timedelta(0), MINUTE, HOUR]),
            "with_definitions": st.booleans(),
        },
    ),
    "prune_some": (
        1,
        {"age": st.sampled_from([timedelta(0), MINUTE]), "count": st.integers(1, 3)},
    ),
    "pause": (
        2,
        {
            "kind": st.sampled_from(PauseKind),
            "name": st.sampled_from(["default", "slow", "mail", "resize"]),
            "length": st.sampled_from([None, MINUTE]),
            "is_pausing": st.sampled_from([False, False, True]),
        },
    ),
    "change_limit": (
        4,
        {
            "name": st.sampled_from(LIMITS),
            "slots": st.sampled_from([None, 0, 1, 1, 2, 3]),
            "by_code": st.booleans(),
        },
    ),
    "add_schedule": (
        2,
        {
            "job": st.sampled_from(sorted(JOBS)),
            "overlap": st.sampled_from(Overlap),
            "misfire": st.sampled_from(Misfire),
            "tenant": st.sampled_from(["", "", "", "acme"]),
            "origin": st.sampled_from(ScheduleOrigin),
            "lives": st.sampled_from([None, None, MINUTE * 10]),
        },
    ),
}
FIRE: Final[dict[str, st.SearchStrategy[Any]]] = {
    "jobs": st.sampled_from([None, tuple(JOBS), ("mail",), ("resize", "plain")]),
    "wait": st.sampled_from([timedelta(0), MINUTE, MINUTE, MINUTE * 4]),
    "retire_after": st.sampled_from([None, None, MINUTE * 5]),
    "looks_short": st.booleans(),
}
TENDING: Final = ("pause", "pause for a while", "resume", "resume", "cancel", "stamp")


class StoresAgree(RuleBasedStateMachine):
    """Calls the same operations on both stores, and compares their results."""

    def __init__(self, opened: Callable[[], Store]) -> None:
        super().__init__()
        self.clock = ManualClock(NOON)
        self.oracle = OracleStore(self.clock)
        self.sql = opened()
        self.runs: list[RunId] = []
        self.claims: list[Claim] = []  # of now and of long ago
        self.schedules: list[ScheduleRow] = []  # of now and of long ago
        self.records: list[list[Transition]] = []
        self.numbers = 0
        self.tokens: dict[RunId, int] = {}
        self.finished: dict[RunId, Run] = {}
        self.pruned: set[RunId] = set()
        self.doubted: list[list[NewRun]] = []
        self.finished_runs: dict[RunId, Run] = {}
        self.starts: dict[str, list[datetime]] = {}  # by the key of a rate, since it was changed

    # ------------------------------------------------------------ what comes next

    @initialize(slots=st.lists(st.integers(0, 2), min_size=len(LIMITS), max_size=len(LIMITS)))
    def begin(self, slots: list[int]) -> None:
        self.both(lambda store: store.set_limits(dict(zip(LIMITS, slots, strict=True))))

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        """Take one of the possible actions, by weight, so that most of them have an effect.

        There is one rule for all actions: with one rule for each, Hypothesis leaves out half of
        the rules in each example, and then few runs are claimed and recorded.
        """
        possible = self.possible_actions()
        names = [name for name, (weight, _) in possible.items() for _ in range(weight)]
        name = data.draw(st.sampled_from(names), label="what")
        given = data.draw(st.fixed_dictionaries(possible[name][1]), label="how")
        getattr(self, name)(**given)

    def possible_actions(self) -> ActionTable:
        """The actions that are possible now: the weight of each, and its arguments."""
        found = dict(ALWAYS)
        if self.doubted:
            found["add_runs_again"] = (2, {})
        if self.runs:
            runs = st.sampled_from(self.runs[-20:])
            found["cancel"] = (2, {"run_id": runs})
            found["reschedule"] = (2, {"run_id": runs, "delay": delays(-MINUTE)})
            found["claim_run"] = (3, {"run_id": runs, "worker": workers})
        if self.claims:
            claims = self.some_claims()
            ended = st.lists(st.tuples(claims, outcomes, st.booleans()), min_size=1, max_size=5)
            is_canceling = st.sampled_from([False, False, False, False, True])
            found["record"] = (16, {"ended": ended, "is_cancel_requested": is_canceling})
            lengths = st.sampled_from([SECOND, MINUTE * 2])
            found["extend"] = (
                4,
                {"claim": claims, "length": lengths, "has_started": st.booleans()},
            )
            found["say"] = (1, {"claim": claims, "progress": st.sampled_from([None, "half"])})
            found["complete"] = (2, {"claim": claims})
            several = st.lists(claims, min_size=1, max_size=3, unique_by=lambda each: each.run_id)
            found["after_complete"] = (2, {"claims": several})
        if self.records:
            found["record_again"] = (3, {"steps": st.sampled_from(self.records[-5:])})
        if self.schedules:
            rows = st.sampled_from(self.schedules[-6:])
            found["fire"] = (8, FIRE)
            found["change_schedule"] = (1, {"row": rows, "overlap": st.sampled_from(Overlap)})
            found["tend_schedule"] = (2, {"row": rows, "change": st.sampled_from(TENDING)})
        return found

    def some_claims(self) -> st.SearchStrategy[Claim]:
        """Those that hold, more often than others."""
        token_by_run = {run.id: run.token for run in self.in_phases(Phase.RUNNING)}
        holding = [claim for claim in self.claims if token_by_run.get(claim.run_id) == claim.token]
        recent = st.sampled_from(self.claims[-12:])
        return st.one_of(st.sampled_from(holding), recent) if holding else recent

    # ------------------------------------------------------------ helpers

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def both(self, act: Callable[[Store], T]) -> T:
        expected, found = act(self.oracle), act(self.sql)
        assert found == expected, difference(expected, found)
        return found

    def a_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def an_id(self) -> str:
        return f"019cb0d2-0000-7000-8000-{self.a_number():012x}"

    def run_of(self, run_id: RunId) -> Run | None:
        return self.oracle.get_run(run_id)

    def in_phases(self, *phases: Phase) -> list[Run]:
        return [run for run in every_run(self.oracle) if run.phase in phases]

    # ------------------------------------------------------------ time

    def time_passes(self, length: timedelta, upkeep: tuple[str, ...]) -> None:
        self.clock.advance(length)
        for name in upkeep:
            getattr(self, name)()

    # ------------------------------------------------------------ runs in

    def add_runs(self, plans: list[RunPlan], is_doubted: bool) -> None:
        batch = [self.new_run(plan) for plan in plans]
        self.both(lambda store: store.add_runs(batch))
        self.runs += [run.id for run in batch]
        if is_doubted:
            self.doubted.append(batch)

    def add_runs_again(self) -> None:
        # What was pruned is unknown, and would be added anew.
        kept = [run for run in self.doubted.pop() if run.id not in self.pruned]
        self.both(lambda store: store.add_runs(kept, may_be_stored=True))

    def new_run(self, plan: RunPlan) -> NewRun:
        unique = None
        if plan.unique is not None:
            key, window = plan.unique
            unique = UniqueKey(key, None if window is None else self.now + window)
        due_at = self.now + plan.delay
        return NewRun(
            id=RunId(self.an_id()),
            created_at=self.now,
            due_at=due_at,
            unique=unique,
            expires_at=None if plan.expires is None else due_at + plan.expires,
            **plan.given,
        )

    def stage(self) -> None:
        self.both(lambda store: store.stage(now=self.now, limit=ALL))

    # ------------------------------------------------------------ claims

    def claim(
        self,
        *,
        worker: WorkerId,
        limit: int,
        queues: tuple[str, ...] | None,
        jobs: tuple[str, ...] | None,
        is_ahead: bool,
        lease: timedelta,
        looks_short: bool,
    ) -> None:
        waiting = self.in_phases(Phase.READY, Phase.BLOCKED)
        crashed = [run for run in waiting if run.crashes]
        is_tangled = any(len(run.limit_keys) > 1 for run in waiting)
        if is_tangled and len(crashed) > 1 and any(run.limit_keys for run in crashed):
            return  # which of those that crashed comes first is free
        if is_tangled or len(crashed) > 1:
            limit = ALL
        wanted = ClaimRequest(limit, queues, jobs)
        tag = f"tag {self.a_number()}"

        def claim_all(store: Store) -> list[Claim]:
            """Until there is no more, or enough: how much comes at once is free."""
            found: list[Claim] = []
            while len(found) < limit:
                left = limit - len(found)
                more = store.claim(
                    wanted._replace(limit=0, ahead=left)
                    if is_ahead
                    else wanted._replace(limit=left),
                    worker=worker,
                    tag=tag,
                    now=self.now,
                    lease=lease,
                    lease_by_job={"resize": HOUR},
                )
                if not more:
                    break
                found += more
            return sorted(found)

        with looking(short=looks_short and not is_ahead):
            claims = self.both(claim_all)
        assert len(claims) <= limit
        self.both(lambda store: store.find_claims(worker=worker, tag=tag))
        self.check_limits(claims)
        self.claims += claims

    def claim_run(self, run_id: RunId, worker: WorkerId) -> None:
        tag = f"tag {self.a_number()}"
        claim = self.both(
            lambda store: store.claim_run(
                run_id, worker=worker, tag=tag, now=self.now, lease=MINUTE
            )
        )
        if claim is not None:
            self.check_limits([claim])
            self.claims.append(claim)

    def check_limits(self, claims: list[Claim]) -> None:
        """No run was unblocked for a limit that is full."""
        slots_by_limit = {row.name: row.in_force for row in self.sql.list_limits()}
        for claim in claims:
            taken = self.sql.count_taken(claim.limit_keys)
            self.check_rates(claim, slots_by_limit)
            for key in slots_in(claim.limit_keys):
                slots = 1 if is_kept_between_attempts(key) else slots_by_limit.get(limit_of(key), 0)
                assert slots == 0 or taken[key] <= slots, (key, taken, slots)

    def check_rates(self, claim: Claim, slots_by_limit: dict[str, int]) -> None:
        """Nor was there a start too many in the time that has just passed."""
        for key in keys_needed(claim.limit_keys, expires_at=claim.expires_at, now=self.now):
            if not is_rate(key):
                continue
            starts = self.starts.setdefault(key, [])
            starts.append(self.now)
            recent = [at for at in starts if self.now - at < window_of(key)]
            slots = slots_by_limit.get(limit_of(key), 0)
            assert slots == 0 or len(recent) <= slots, (key, recent, slots)

    def extend(self, claim: Claim, length: timedelta, has_started: bool) -> None:
        held = [HeldClaim(claim.run_id, claim.token, self.now if has_started else None)]
        self.both(lambda store: store.extend_leases(held, until=self.now + length))

    def worker_died(self, worker: WorkerId) -> None:
        self.both(lambda store: store.release_worker(worker, now=self.now))

    def say(self, claim: Claim, progress: str | None) -> None:
        self.both(lambda store: store.save_progress(claim, progress=progress, checkpoint="7"))
        name = "charge" if progress is None else "ship"
        step = Step(name, 0, StepKind.STEP, StepState.DONE, claim.token, self.now, value=progress)
        self.both(lambda store: store.save_steps(claim, [step]))
        self.both(lambda store: store.load_steps(claim.run_id))
        if progress is not None:
            lines = [LogLine(self.now, "INFO", "mail", f"line {self.a_number()}")] * 2
            logs = dict.fromkeys([claim.run_id, *self.runs[-2:]], lines)
            self.both(lambda store: store.append_logs(logs, lines_max=3))

    # ------------------------------------------------------------ ends

    def record(self, ended: list[tuple[Claim, Outcome, bool]], is_cancel_requested: bool) -> None:
        steps: dict[RunId, Transition] = {}
        for claim, outcome, has_started in ended:
            run = self.run_of(claim.run_id)
            if run is not None and run.is_finished and run.token == claim.token:
                continue  # it was finished by this very claim: whether that is a loss is free
            if isinstance(outcome, Postponed) and (is_cancel_requested or claim.expires_at):
                continue
            policy = Fixed(attempts_max=claim.attempts_max, delay=MINUTE)
            steps[claim.run_id] = settle(
                claim,
                outcome,
                now=self.now,
                retry=policy if claim.attempts_max > 1 else NO_RETRY,
                random=0.0,
                started_at=self.now if has_started else None,
                is_cancel_requested=is_cancel_requested,
            )
        self.both(lambda store: store.record(list(steps.values())))
        self.records.append(list(steps.values()))

    def record_again(self, steps: list[Transition]) -> None:
        kept = [step for step in steps if step.claim.run_id not in self.pruned]
        self.both(lambda store: store.record(kept, may_be_stored=True))

    def complete(self, claim: Claim) -> None:
        self.both(lambda store: store.complete(claim, now=self.now, result='"done"'))

    def after_complete(self, claims: list[Claim]) -> None:
        self.both(lambda store: store.after_complete(claims))

    def reap(self) -> None:
        def decide(expired: Expired) -> Transition:
            step = reap(
                expired.claim,
                has_started=expired.has_started,
                now=self.now,
                crashes_max=2,
                is_cancel_requested=expired.is_cancel_requested,
            )
            # The same for all: which of them is a job's last error is free.
            return step._replace(reason=f"{expired.worker} is gone")

        self.both(lambda store: sorted(store.reap(now=self.now, limit=ALL, decide=decide)))

    def cancel(self, run_id: RunId) -> None:
        self.both(lambda store: store.cancel(run_id, now=self.now, reason="not needed"))

    def reschedule(self, run_id: RunId, delay: timedelta) -> None:
        due_at = self.now + delay
        self.both(lambda store: store.reschedule(run_id, due_at=due_at, now=self.now))

    def sweep(self) -> None:
        self.both(lambda store: store.sweep(now=self.now, limit=ALL))

    def unblock_rated(self) -> None:
        self.both(lambda store: store.unblock_rated(now=self.now, limit=ALL))

    def prune(self, age: timedelta, with_definitions: bool) -> None:
        before = {run.id for run in every_run(self.oracle)}
        tenants = {run.tenant for run in every_run(self.oracle)}
        tenants |= {job.tenant for job in self.oracle.list_jobs()}
        # A job that one tenant uses and another does not: whose row goes is free.
        is_thorough = with_definitions and tenants <= {""}

        def act(store: Store) -> Pruned:
            return store.prune(before=self.now - age, limit=ALL, with_definitions=is_thorough)

        self.both(act)
        # A repeat that comes after its key's window was pruned: who holds the key is free.
        self.doubted.clear()
        self.pruned |= before - {run.id for run in every_run(self.oracle)}

    def prune_some(self, age: timedelta, count: int) -> None:
        """Delete the oldest finished runs, and clear the result of the one after them."""
        found = self.both(
            lambda store: store.list_ended(after=None, before=self.now - age, limit=count + 1)
        )
        ids = [run.id for run in found]
        self.both(lambda store: store.delete_runs(ids[:count]))
        self.both(lambda store: store.clear_results(ids[count:], reason="expired"))
        self.pruned |= set(ids[:count])
        for run_id in ids:
            self.finished.pop(run_id, None)

    # ------------------------------------------------------------ what people do

    def pause(self, kind: PauseKind, name: str, length: timedelta | None, is_pausing: bool) -> None:
        until = None if length is None else self.now + length
        if is_pausing:
            self.both(lambda store: store.pause(Pause(kind, name, self.now, "why", until)))
        else:
            self.both(lambda store: store.resume(kind, name))

    def change_limit(self, name: str, slots: int | None, by_code: bool) -> None:
        before = {row.name: row.slots for row in self.oracle.list_limits()}
        self.starts = {key: at for key, at in self.starts.items() if limit_of(key) != name}
        if by_code and slots is not None:
            # Setting the same value is no change: a store may unblock runs then or not.
            other = slots + 1 if before.get(name) == slots else slots
            self.both(lambda store: store.set_limits({name: other}))
        else:
            self.both(lambda store: store.change_limit(name, slots, now=self.now))

    # ------------------------------------------------------------ schedules

    def add_schedule(
        self,
        *,
        job: str,
        overlap: Overlap,
        misfire: Misfire,
        tenant: str,
        origin: ScheduleOrigin,
        lives: timedelta | None,
    ) -> None:
        number = self.a_number()
        spec = a_schedule(
            f"schedule {number}",
            job=job,
            args=f'{{"number": {number}}}',  # no two want one unique key in the same tick
            overlap=overlap,
            misfire=misfire,
            tenant=tenant,
            origin=origin,
            until=None if lives is None else self.now + lives,
        )
        schedule_id = ScheduleId(self.an_id())
        row = self.both(
            lambda store: store.add_schedule(
                schedule_id, spec, now=self.now, next_due_at=self.next_instant()
            )
        )
        self.schedules.append(row)

    def next_instant(self) -> datetime:
        found = RULE.next_after(self.now)
        assert found is not None
        return found

    def change_schedule(self, row: ScheduleRow, overlap: Overlap) -> None:
        """With a current row or an old one; an old one changes nothing."""
        given = {
            name: getattr(row.spec, name) for name in ("name", "job", "rule", "tenant", "args")
        }
        # Never twice the same: whether that is a change is free.
        spec = ScheduleSpec(**given, overlap=overlap, zone=f"Area/{self.a_number()}")
        changed = self.both(
            lambda store: store.change_schedule(
                row, spec, now=self.now, next_due_at=self.next_instant()
            )
        )
        if changed is not None:
            self.schedules.append(changed)

    def tend_schedule(self, row: ScheduleRow, change: str) -> None:
        def act(store: Store) -> Any:
            match change:
                case "pause":
                    return store.pause_schedule(row.id, now=self.now, note="why")
                case "pause for a while":
                    until = self.now + MINUTE
                    return store.pause_schedule(
                        row.id, now=self.now, until=until, next_due_at=RULE.next_after(until)
                    )
                case "resume":
                    return store.resume_schedule(row.id, next_due_at=self.next_instant())
                case "cancel":
                    store.remove_schedule(row.id)
                    spec = row.spec
                    return store.cancel_schedule(spec.tenant, spec.name, now=self.now, reason="off")
                case _:
                    return store.stamp_seen(jobs=[row.spec.job], schedules=[row.id], now=self.now)

        self.both(act)

    def fire(
        self,
        *,
        jobs: tuple[str, ...] | None,
        wait: timedelta,
        retire_after: timedelta | None,
        looks_short: bool,
    ) -> None:
        self.clock.advance(wait)
        seen_after = None if retire_after is None else self.now - retire_after
        self.both(lambda store: store.next_firing_at(jobs=jobs, seen_after=seen_after))
        known = JOBS if jobs is None else {name: JOBS[name] for name in jobs}

        def act(store: Store) -> TickPlan:
            return store.fire(
                now=self.now,
                limit=ALL,
                jobs=None if jobs is None else known,
                keys_of=lambda rows: keys_wanted(rows, now=self.now, jobs=known),
                plan=lambda rows, taken: plan_tick(
                    rows, now=self.now, jobs=known, rule_of=lambda _: RULE, taken=taken
                ),
                seen_after=seen_after,
            )

        with looking(short=looks_short):
            self.runs += [run.id for run in self.both(act).runs]

    # ------------------------------------------------------------ what must be so

    @invariant()
    def both_show_the_same(self) -> None:
        self.both(every_run)
        self.both(lambda store: store.list_schedules())
        self.both(lambda store: store.list_jobs())
        self.both(lambda store: store.list_pauses())
        self.both(lambda store: store.list_limits())
        self.both(lambda store: store.count_runs())
        self.both(lambda store: store.count_taken(self.keys()))
        self.both(lambda store: store.pending_work())
        self.both(lambda store: store.next_firing_at())
        self.both(lambda store: store.scheduled_jobs())
        self.both(lambda store: store.ready_pairs())

    def keys(self) -> list[str]:
        own = [one_at_a_time(row.id) for row in self.oracle.list_schedules()]
        return [JOB_KEY, QUEUE_KEY, *ACCOUNTS, RATE, *own]

    @invariant()
    def slots_belong_to_those_who_may_have_them(self) -> None:
        runs = {run.id: run for run in every_run(self.sql)}
        keys = sorted({key for run in runs.values() for key in run.limit_keys})
        holders = {key: self.both(partial(holders_of, key=key)) for key in keys}
        for key, held_by in holders.items():
            for run_id in held_by:
                run = runs[run_id]
                assert not run.is_finished, run
                assert run.status is RunStatus.RUNNING or is_kept_between_attempts(key), run
            if is_kept_between_attempts(key):
                assert len(held_by) <= 1, (key, held_by)
        for run in runs.values():
            if run.status is RunStatus.RUNNING:
                assert all(run.id in holders[key] for key in slots_in(run.limit_keys)), run

    @invariant()
    def a_run_that_waits_for_a_rate_has_a_turn(self) -> None:
        blocked = [run for run in self.in_phases(Phase.BLOCKED) if is_rate(run.blocked_on or "")]
        turns = self.both(lambda store: [store.find_turn(run.id) for run in blocked])
        slots_by_limit = {row.name: row.in_force for row in self.sql.list_limits()}
        for run, turn in zip(blocked, turns, strict=True):
            # Where nothing is limited any more, the next call of unblock_rated() unblocks them.
            assert turn is not None or not slots_by_limit[limit_of(run.blocked_on or "")], run

    @invariant()
    def runs_only_move_on(self) -> None:
        runs = every_run(self.sql)
        assert len({run.id for run in runs}) == len(runs), "in one table, not in both"
        for run in runs:
            assert run.token >= self.tokens.get(run.id, 0), run
            self.tokens[run.id] = run.token
            if run.id in self.finished:
                self.check_it_rests(self.finished[run.id], run)
            if run.is_finished:
                self.finished[run.id] = run

    def check_it_rests(self, before: Run, run: Run) -> None:
        if run.status is RunStatus.SKIPPED:
            # Equal skips that follow are counted in the same row.
            assert run.instants >= before.instants, run
        else:
            assert run == before

    @invariant()
    def run_records_are_the_same(self) -> None:
        """Compare the records of the runs that have changed."""
        for run in every_run(self.oracle):
            if self.finished_runs.get(run.id) != run:
                self.finished_runs[run.id] = run
                self.both(partial(run_record_of, run_id=run.id))

    def teardown(self) -> None:
        self.sql.close()


def difference(expected: Any, found: Any) -> str:
    """Only what differs: two lists of runs are long."""
    if isinstance(expected, list) and isinstance(found, list):
        missing = [one for one in expected if one not in found]
        surplus = [one for one in found if one not in expected]
        if missing or surplus:
            expected, found = missing, surplus
    return f"\nindependent: {expected}\non SQL:    {found}"


def every_run(store: Store) -> list[Run]:
    page = store.list_runs(RunFilter(), limit=100_000)
    assert page.cursor is None
    return page.runs


def holders_of(store: Store, key: str) -> list[RunId]:
    return store.slot_holders(key, limit=ALL)


def run_record_of(store: Store, run_id: RunId) -> RunRecord | None:
    return store.run_record(run_id)


@contextmanager
def looking(*, short: bool) -> Iterator[None]:
    """Let claims and ticks look at the head of their index only, and then go by queue and job."""
    with pytest.MonkeyPatch.context() as patch:
        if short:
            patch.setattr(claim_operation, "HEAD_FACTORS", (1, 2))
            patch.setattr(claim_operation, "HEAD_MIN", 1)
            patch.setattr(schedules_operation, "HEAD_MIN", 1)
        # A tick asks for all there is: its look would be as long.
        patch.setattr(
            schedules_operation, "HEAD_FACTOR", 0 if short else schedules_operation.HEAD_FACTOR
        )
        yield


# ---------------------------------------------------------------- the stores


def empty_sqlite(url: str) -> None:
    path = url.removeprefix("sqlite:///").partition("?")[0]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (name,) in found.fetchall():
            if name not in {"tickwork_meta", "tickwork_gate"}:
                connection.execute(f"DELETE FROM {name}")
        connection.execute("COMMIT")


def empty_postgres(url: str) -> None:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (name,) in found.fetchall():
            if name not in {"tickwork_meta", "tickwork_gate"}:
                connection.execute(f"DELETE FROM {name}".encode())


EMPTY: Final = {"sqlite": empty_sqlite, "postgres": empty_postgres, "mariadb": mariadb.empty}
EXAMPLES: Final = {"sqlite": 60, "postgres": 25, "mariadb": 8}
"""What takes less than half a minute."""

KINDS: Final = [
    pytest.param(kind, marks=[] if kind == "sqlite" else [pytest.mark.servers(kind)])
    for kind in EXAMPLES
]


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db?synchronous=NORMAL"
    url: str = request.getfixturevalue(f"{kind}_url")
    return url


@pytest.mark.parametrize("kind", KINDS)
class TestStoresAgree:
    """A store on SQL answers, and shows, what the independent store does."""

    @pytest.mark.timeout(400)  # on a busy machine
    def test_whatever_is_done(self, kind, request):
        # A failure is shown as it was found: making it small may take longer than a test may.
        stages = [Stage.reuse, Stage.generate]
        self.compare(kind, request, examples=EXAMPLES[kind], stages=stages)

    @pytest.mark.long
    def test_for_longer(self, kind, request):
        stages = [Stage.reuse, Stage.generate, Stage.shrink]
        self.compare(kind, request, examples=20 * EXAMPLES[kind], stages=stages)

    def compare(
        self, kind: str, request: pytest.FixtureRequest, *, examples: int, stages: list[Stage]
    ) -> None:
        url = url_of(kind, request)
        store = open_store(url)
        store.install()
        store.close()

        def machine() -> StoresAgree:
            EMPTY[kind](url)
            return StoresAgree(lambda: open_store(url))

        run_state_machine_as_test(
            machine,  # type: ignore[arg-type]  # whatever makes one will do
            settings=settings(
                max_examples=examples,
                phases=stages,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
