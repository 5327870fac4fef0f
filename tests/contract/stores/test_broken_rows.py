"""Rows that were edited by hand: the database refuses what makes no sense in any row.

Rows that it accepts and that cannot be read do not stop other rows.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import psycopg
import pymysql
import pytest

from contract.builders import (
    MINUTE,
    NOON,
    UNKNOWN_ID,
    StoreDriver,
    a_job,
    a_lock,
    a_run,
    a_schedule,
    a_worker_row,
    add,
    added,
    all_runs,
    ids,
    settled,
)
from contract.stores.conftest import ON_DISK, STORES
from servers import choice, mariadb
from tickwork._domain.identity import ScheduleId
from tickwork._domain.runs.outcome import Failed
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.tick import TickPlan, keys_wanted, plan_tick
from tickwork._stores._sql.operations import claim as claim_operation
from tickwork._stores.contract import LogLine, Pause, PauseKind, RunFilter, Store
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.testing import ManualClock

NEXT_ID = iter(range(1, 1000))
EVERY_MINUTE = Interval(length=MINUTE, anchor=NOON)
DRIVER_ERRORS = (sqlite3.IntegrityError, psycopg.DataError, psycopg.IntegrityError, pymysql.Error)


@pytest.fixture
def by_hand(store: Store) -> Callable[[str], None]:
    """Runs SQL as a person with a shell would."""
    if isinstance(store, SqliteStore):
        return partial(edit_sqlite, store.path)
    if isinstance(store, MysqlStore):
        return partial(edit_mariadb, store.url)
    assert isinstance(store, PostgresStore)
    url = store.url

    def edit(text: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(text.encode())

    return edit


def edit_sqlite(path: str, text: str, *, first: str = "") -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(first)
        connection.execute(text)


def edit_mariadb(url: str, text: str, *, first: str = "DO 0") -> None:
    with mariadb.connect(url) as connection:
        connection.execute(first)
        connection.execute(text)


def edit_unchecked(store: Store, text: str) -> None:
    """Run SQL as a person who disabled the constraints of the tables."""
    if isinstance(store, SqliteStore):
        edit_sqlite(store.path, text, first="PRAGMA ignore_check_constraints = ON")
    else:
        assert isinstance(store, MysqlStore)
        edit_mariadb(store.url, text, first="SET SESSION check_constraint_checks = OFF")


# The reference keeps values, not rows: there is nothing to edit.
@pytest.fixture(params=ON_DISK)
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with STORES[request.param](request, clock) as opened:
        yield opened


REFUSED = {
    "run": [
        *("status = 'exploded'", "status = 'completed'", "phase = 'lost'", "phase = 'blocked'"),
        *("phase = 'running'", "status = 'running'", "blocked_on = 'x'", "lease_until = 1"),
        *("attempt = -1", "attempts_max = 0", "crashes = -3", "postponements = -1", "token = -1"),
    ],
    "history": ["status = 'pending'", "status = ''", "outcome = 'exploded'", "instants = 0"],
    "attempt": ["outcome = 'exploded'", "token = -1", "attempt = -1"],
    "log": ["line = -1"],
    "limit": ["slots = -1", "override = -1"],
    "schedule": [
        *("overlap = 'whatever'", "misfire = '?'", "origin = 'moon'", "tags = '['"),
        *("jitter = -1", "grace = -1", "revision = 0", "expires = 0", "expect_within = -1"),
    ],
    "job": ["failures = -1"],
    "pause": ["kind = 'moon'"],
    "worker": ["jobs = 'x'", "queues = '['", "pid = -1", "slots = -1", "running = -1"],
    "lock": ["pid = -1"],
    "rate": ["number = -1", "opened = -7"],
    "start": ["number = -1"],
}
"""Edits of each table that the database refuses."""


class TestChecks:
    """The database refuses what no row of a table can have."""

    KEY = "job/minute:send_email"

    @pytest.fixture
    def filled(self, store: Store, clock: ManualClock, worker: StoreDriver) -> None:
        """A row in each table."""
        store.set_limits({"job:other": 2, self.KEY: 5})
        store.beat_worker(a_worker_row(worker.id))
        store.pause(Pause(PauseKind.QUEUE, "emails", NOON))
        store.acquire_lock(a_lock(), now=NOON)
        added(store, "digest")
        add(store, run := a_run(limit_keys=(self.KEY,), attempts_max=2))
        store.append_logs({run.id: [LogLine(NOON, "INFO", "x", "y")]}, lines_max=9)
        [claim] = worker.claim()
        worker.record(claim, Failed("no", retry=False))
        add(store, a_run())

    @pytest.mark.parametrize(
        ("table", "edit"), [(table, edit) for table, edits in REFUSED.items() for edit in edits]
    )
    @pytest.mark.usefixtures("filled")
    def test_an_edit_is_refused(self, by_hand, table, edit):
        by_hand(f"UPDATE tickwork_{table} SET {edit} WHERE 1 = 0")  # the column exists

        with pytest.raises(DRIVER_ERRORS):
            by_hand(f"UPDATE tickwork_{table} SET {edit}")

    @pytest.mark.parametrize(
        "edit", ["next_due_at = 1.5", "next_due_at = 'noon'", "rule = x'00'", "grace = 'a'"]
    )
    @pytest.mark.usefixtures("filled")
    def test_a_column_of_sqlite_has_a_type(self, store, by_hand, edit):
        if not isinstance(store, SqliteStore):
            pytest.skip("The columns of servers have types.")
        with pytest.raises(sqlite3.IntegrityError, match="cannot store"):
            by_hand(f"UPDATE tickwork_schedule SET {edit}")


class TestRuns:
    """A run that cannot be understood is failed for good, with the reason on it."""

    @pytest.mark.parametrize(
        "edit",
        [
            *("attempt = 7", "postponements = 2147483647"),
            *("limit_keys = '[broken'", "limit_keys = '[1]'", "limit_keys = '[null]'"),
            *("""limit_keys = '["a", "a"]'""", "limit_keys = '{}'", "limit_keys = '7'"),
            *("""limit_keys = '["job/eon:x"]'""", "token = 2147483647"),
            *("schedule = 'digest'", "nominal_at = 5", "crashes = 2147483647"),
            *("due_at = -9223372036854775808", "expires_at = 9223372036854775807"),
        ],
    )
    def test_a_claim_sets_it_aside_and_takes_the_others(self, store, worker, by_hand, edit):
        add(store, bad := a_run(priority=1), good := a_run())
        by_hand(f"UPDATE tickwork_run SET {edit} WHERE id = '{bad.id}'")

        assert ids(worker.claim()) == [good.id]

        found = store.get_run(bad.id)
        assert found.status is RunStatus.FAILED_PERMANENT
        assert "cannot be read" in found.reason
        assert found.outcome == "failed"

    def test_its_slots_are_free_again(self, store, clock, worker, by_hand):
        store.set_limits({"job:send_email": 1})
        add(store, bad := a_run(limit_keys=("job:send_email",), attempts_max=2, priority=1))
        [claim] = worker.claim()
        by_hand(f"UPDATE tickwork_run SET attempt = 7 WHERE id = '{bad.id}'")
        add(store, good := a_run(limit_keys=("job:send_email",)))
        assert worker.claim() == []
        clock.advance(minutes=10)

        worker.reap()
        store.sweep(now=clock.now(), limit=10)

        assert store.get_run(bad.id).status is RunStatus.FAILED_PERMANENT
        assert ids(worker.claim()) == [good.id]
        assert claim.run_id == bad.id

    @pytest.mark.parametrize("count", [1, 2, 7])
    def test_a_row_that_the_database_rejects_is_found_by_halves(self, store, worker, count):
        if isinstance(store, PostgresStore) or choice.chosen() == "mysql":
            pytest.skip("Its constraints cannot be disabled for one session.")
        add(store, *(runs := [a_run(priority=number) for number in range(8)]))
        for run in (bad := runs[:count]):
            # Ready and blocked: the claim of it violates a constraint.
            edit_unchecked(store, f"UPDATE tickwork_run SET blocked_on = 'x' WHERE id = '{run.id}'")

        assert ids(worker.claim()) == ids(runs[count:])

        for run in bad:
            assert store.get_run(run.id).status is RunStatus.FAILED_PERMANENT

    def test_an_error_that_all_runs_have_is_the_fault_of_none(self, store, worker, monkeypatch):
        add(store, *(runs := [a_run() for _ in range(3)]))

        def fail(*args: object, **options: object) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(claim_operation, "_take", fail)
            with pytest.raises(RuntimeError, match="a bug"):
                worker.claim()

        assert ids(worker.claim()) == ids(runs)

    def test_a_run_that_waits_for_what_is_no_key_goes_on(self, store, clock, worker, by_hand):
        store.set_limits({"job:send_email": 1})
        add(store, *(a_run(limit_keys=("job:send_email",)) for _ in range(2)))
        worker.claim()
        by_hand("UPDATE tickwork_run SET blocked_on = 'job/eon:x' WHERE blocked_on IS NOT NULL")

        assert store.sweep(now=clock.now(), limit=10) == 1

    def test_an_end_that_cannot_be_written_is_no_loop(self, store, worker, by_hand):
        # The same id is in the history already, as of a firing that was set back.
        add(store, first := a_run(), second := a_run())
        claims = {claim.run_id: claim for claim in worker.claim()}
        worker.record(claims[first.id])
        by_hand(f"UPDATE tickwork_history SET id = '{second.id}' WHERE id = '{first.id}'")
        failed = settled(claims[second.id], Failed("it cannot be written", retry=False))

        assert store.record([failed]) == []

        assert store.pending_work().lease_until is None

    @pytest.mark.parametrize("column", ["args", "tenant", "queue", "limit_keys", "target"])
    def test_a_text_that_is_no_unicode(self, store, worker, by_hand, column):
        if not isinstance(store, SqliteStore):
            pytest.skip("Its texts are Unicode.")
        add(store, bad := a_run(priority=1), good := a_run())
        by_hand(f"UPDATE tickwork_run SET {column} = CAST(x'ff' AS TEXT) WHERE id = '{bad.id}'")

        assert good.id in ids(worker.claim())
        assert {run.id for run in store.get_runs([bad.id, good.id])} == {bad.id, good.id}

    def test_args_that_are_no_json_are_left_to_the_handler(self, store, worker, by_hand):
        add(store, bad := a_run())
        by_hand(f"UPDATE tickwork_run SET args = '{{broken' WHERE id = '{bad.id}'")

        [claim] = worker.claim()
        assert claim.args == "{broken"

    @pytest.mark.parametrize("edit", ["due_at = 9223372036854775807", "tags = '{'"])
    def test_a_list_shows_it_as_broken_and_shows_the_others(self, store, by_hand, edit):
        add(store, bad := a_run(), good := a_run())
        by_hand(f"UPDATE tickwork_run SET {edit} WHERE id = '{bad.id}'")

        found = {run.id: run for run in store.list_runs(RunFilter()).runs}

        assert found[good.id].status is RunStatus.PENDING
        assert "cannot be read" in found[bad.id].reason
        assert store.run_record(bad.id) is not None

    def test_a_lease_that_ends_on_nonsense_stops_no_reaper(self, store, clock, worker, by_hand):
        add(store, bad := a_run(), good := a_run())
        worker.claim()
        by_hand(f"UPDATE tickwork_run SET attempt = 7 WHERE id = '{bad.id}'")
        clock.advance(minutes=10)

        worker.reap()

        assert store.get_run(good.id).status is RunStatus.PENDING
        assert store.get_run(bad.id).status is RunStatus.FAILED_PERMANENT


class TestLimits:
    """A number of slots that makes no sense does not count."""

    def test_without_a_valid_override_the_limit_of_the_code_applies(self, store, worker, by_hand):
        store.set_limits({"job:send_email": 2})
        by_hand("UPDATE tickwork_limit SET override = 2147483647")
        add(store, *(runs := [a_run(limit_keys=("job:send_email",)) for _ in range(4)]))

        claims = worker.claim()

        assert len(claims) == 2
        for claim in claims:  # each unblocks the next one
            worker.record(claim)
        assert len(worker.claim()) == 2
        assert {run.id for run in runs}
        assert [row.in_force for row in store.list_limits()] == [2]
        assert [fault.key for fault in store.find_faults(limit=10)] == ["job:send_email"]

    def test_without_any_valid_number_it_has_one_slot(self, store, worker, by_hand):
        store.set_limits({"job:send_email": 2})
        by_hand("UPDATE tickwork_limit SET slots = 2147483647, override = 2147483647")
        add(store, *(a_run(limit_keys=("job:send_email",)) for _ in range(4)))

        [claim] = worker.claim()

        worker.record(claim)
        assert len(worker.claim()) == 1

    def test_a_slot_of_a_run_that_does_not_exist_is_free_again(self, store, clock, worker, by_hand):
        store.set_limits({"job:send_email": 1})
        by_hand(f"INSERT INTO tickwork_slot VALUES ('{UNKNOWN_ID}', 'job:send_email')")
        add(store, run := a_run(limit_keys=("job:send_email",)))
        assert worker.claim() == []

        store.sweep(now=clock.now(), limit=10)

        assert ids(worker.claim()) == [run.id]

    def test_the_slot_of_a_run_that_is_running_stays(self, store, clock, worker):
        store.set_limits({"job:send_email": 1})
        add(store, *(a_run(limit_keys=("job:send_email",)) for _ in range(2)))
        worker.claim()

        store.sweep(now=clock.now(), limit=10)

        assert store.count_taken(["job:send_email"]) == {"job:send_email": 1}
        assert worker.claim() == []

    def test_gates_that_are_missing_are_added_again(self, store, clock, worker, by_hand):
        store.set_limits({"job:send_email": 1})
        add(store, run := a_run(limit_keys=("job:send_email",)))
        by_hand("DELETE FROM tickwork_gate WHERE gate < 1000")
        by_hand("UPDATE tickwork_gate SET gate = gate + 5000")

        store.sweep(now=clock.now(), limit=10)

        assert ids(worker.claim()) == [run.id]
        by_hand("DELETE FROM tickwork_gate WHERE gate >= 5000")  # the tables are used again

    def test_a_slot_that_is_taken_already(self, store, worker, by_hand):
        store.set_limits({"job:send_email": 2})
        add(store, run := a_run(limit_keys=("job:send_email",)))
        by_hand(f"INSERT INTO tickwork_slot VALUES ('{run.id}', 'job:send_email')")

        assert ids(worker.claim()) == [run.id]


class TestRates:
    """The state of a rate that makes no sense is deleted: the key starts anew."""

    KEY = "job/minute:send_email"

    @pytest.mark.parametrize(
        "edit",
        [
            *("number = 9223372036854775807", "number = 0", "opened = 2147483647"),
            *("next_start_at = 9000000000000000", "next_start_at = -9223372036854775808"),
            *("idle_at = 9223372036854775807", "idle_at = -9223372036854775808"),
        ],
    )
    def test_runs_go_on(self, store, clock, worker, by_hand, edit):
        store.set_limits({self.KEY: 2})
        add(store, *(a_run(limit_keys=(self.KEY,)) for _ in range(4)))
        assert len(worker.claim()) == 2
        by_hand(f"UPDATE tickwork_rate SET {edit}")
        add(store, other := a_run(job="other"))

        assert other.id in ids(worker.claim())

        claimed = 0
        for _ in range(8):
            clock.advance(seconds=30)
            store.sweep(now=clock.now(), limit=10)
            store.unblock_rated(now=clock.now(), limit=10)
            claimed += len(worker.claim())
        assert claimed == 2

    @pytest.mark.parametrize("key", ["job/eon:x", "no rate", ""])
    def test_what_is_no_key_of_a_rate(self, store, clock, by_hand, key):
        by_hand(f"INSERT INTO tickwork_rate VALUES ('{key}', 1, 1, 1, 0)")

        store.unblock_rated(now=clock.now(), limit=10)

        assert store.pending_work().next_start_at is None

    def test_starts_that_exist_already(self, store, clock, worker, by_hand):
        store.set_limits({self.KEY: 5})
        by_hand(f"INSERT INTO tickwork_start VALUES ('{self.KEY}', 1, 0)")
        add(store, run := a_run(limit_keys=(self.KEY,)))

        assert ids(worker.claim()) == [run.id]


class TestJobs:
    def test_a_number_of_failures_that_cannot_grow(self, store, worker, by_hand):
        add(store, a_run(), a_run())
        first, second = worker.claim()
        worker.record(first, Failed("no", retry=False))
        by_hand("UPDATE tickwork_job SET failures = 2147483647")

        worker.record(second, Failed("no", retry=False))

        assert store.get_run(second.run_id).status is RunStatus.FAILED_PERMANENT


class TestLists:
    """What can be read of a row is listed, and the row is reported."""

    def test_workers_pauses_and_jobs(self, store, clock, worker, by_hand):
        store.beat_worker(a_worker_row(worker.id))
        store.pause(Pause(PauseKind.QUEUE, "emails", NOON))
        add(store, run := a_run(attempts_max=2))
        store.append_logs({run.id: [LogLine(NOON, "INFO", "x", "y")]}, lines_max=9)
        [claim] = worker.claim()
        worker.record(claim, Failed("no"))
        by_hand("UPDATE tickwork_worker SET jobs = '7', beat_at = 9223372036854775807")
        by_hand("UPDATE tickwork_pause SET until = 9223372036854775807")
        by_hand("UPDATE tickwork_job SET last_run_at = 9223372036854775807")
        by_hand("UPDATE tickwork_attempt SET started_at = 9223372036854775807")
        by_hand("UPDATE tickwork_log SET at = 9223372036854775807")

        assert [row.jobs for row in store.list_workers()] == [()]
        assert [row.name for row in store.list_pauses()] == ["emails"]
        assert [row.name for row in store.list_jobs()] == ["send_email"]
        record = store.run_record(run.id)
        assert [attempt.error for attempt in record.attempts] == ["no"]
        assert [line.message for line in record.log] == ["y"]
        found = {(fault.table, fault.key) for fault in store.find_faults(limit=10)}
        assert found == {
            ("tickwork_worker", worker.id),
            ("tickwork_pause", "emails"),
            ("tickwork_job", "send_email"),
        }

    def test_runs_and_schedules(self, store, by_hand):
        add(store, run := a_run())
        added(store, "digest")
        by_hand("UPDATE tickwork_run SET tags = '['")
        by_hand("UPDATE tickwork_schedule SET last_fired_at = 9223372036854775807, tags = '7'")

        found = {(fault.table, fault.key) for fault in store.find_faults(limit=10)}

        assert found == {("tickwork_run", run.id), ("tickwork_schedule", "digest")}
        [schedule] = store.list_schedules()
        assert "cannot be read" in schedule.fault

    @pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
    def test_what_is_due_next(self, store, by_hand, value):
        add(store, a_run(due_at=NOON + MINUTE))
        added(store, "digest")
        by_hand(f"UPDATE tickwork_run SET due_at = {value}")
        by_hand(f"UPDATE tickwork_schedule SET next_due_at = {value}")

        assert store.pending_work().due_at is not None
        assert store.next_firing_at() is not None


class TestSchedules:
    """A schedule that cannot be understood is set unfired by a tick, and stays as it is."""

    def tick(self, store: Store, clock: ManualClock) -> TickPlan:
        """A tick that reads the rules of the rows, as a worker does."""
        now, jobs = clock.now(), {"send_email": a_job()}
        return store.fire(
            now=now,
            limit=100,
            jobs=None,
            keys_of=lambda due: keys_wanted(due, now=now, jobs=jobs),
            plan=lambda due, taken: plan_tick(
                due,
                now=now,
                jobs=jobs,
                rule_of=lambda row: from_text(row.spec.rule),
                taken=taken,
            ),
        )

    def add_two(self, store: Store) -> None:
        for name in ("bad", "good"):
            store.add_schedule(
                ScheduleId(f"019cb0d2-0000-7000-8000-0000{next(NEXT_ID):08x}"),
                a_schedule(name=name, rule=EVERY_MINUTE.to_text()),
                now=NOON,
                next_due_at=NOON,
            )

    @pytest.mark.parametrize(
        "edit",
        [
            *("rule = 'every blue moon'", "jitter = 9223372036854775807"),
            *("grace = 9223372036854775807", "priority = 2147483647", "tags = '[1]'"),
            *("last_fired_at = 9223372036854775807", "created_at = -9223372036854775808"),
        ],
    )
    def test_a_tick_fires_the_others(self, store, clock, by_hand, edit):
        self.add_two(store)
        by_hand(f"UPDATE tickwork_schedule SET {edit} WHERE name = 'bad'")

        plan = self.tick(store, clock)

        assert [run.schedule for run in all_runs(store)] == ["good"]
        assert len(plan.unfired) == 1
        assert plan.unfired[0].reason
        assert store.get_schedule("", "bad").next_due_at == NOON

    @pytest.mark.parametrize(
        "edit",
        [
            "skip_last_at = NULL",
            "skip_reason = NULL",
            "skip_id = '019cb0d2-0000-7000-8000-00000000dead'",
        ],
    )
    def test_a_mark_of_skips_that_makes_no_sense(self, store, clock, by_hand, edit):
        self.add_two(store)
        self.tick(store, clock)  # its run is not finished, so that the next firings are skipped
        clock.advance(MINUTE)
        self.tick(store, clock)
        by_hand(f"UPDATE tickwork_schedule SET {edit} WHERE name = 'bad'")
        clock.advance(MINUTE)

        plan = self.tick(store, clock)

        assert len(plan.moves) == len(plan.skips) == 2
        assert plan.unfired == []

    def test_a_row_of_skips_that_cannot_count_more(self, store, clock, by_hand):
        self.add_two(store)
        self.tick(store, clock)
        clock.advance(MINUTE)
        self.tick(store, clock)
        by_hand("UPDATE tickwork_history SET instants = 2147483647")
        clock.advance(MINUTE)

        assert len(self.tick(store, clock).moves) == 2

    def test_a_schedule_that_was_set_back_makes_no_run_twice(self, store, clock, by_hand):
        self.add_two(store)
        by_hand("UPDATE tickwork_schedule SET overlap = 'allow'")
        self.tick(store, clock)
        by_hand(
            "UPDATE tickwork_schedule SET last_fired_at = NULL, next_due_at = "
            f"{int(NOON.timestamp()) * 1_000_000} WHERE name = 'bad'"
        )
        clock.advance(MINUTE)

        plan = self.tick(store, clock)

        assert sorted(str(run.schedule) for run in plan.runs) == ["bad", "good"]
        found = sorted(str(run.schedule) for run in all_runs(store))
        assert found == ["bad", "bad", "good", "good"]

    def test_it_is_listed_with_the_others(self, store, by_hand):
        self.add_two(store)
        by_hand("UPDATE tickwork_schedule SET grace = 9223372036854775807 WHERE name = 'bad'")

        assert [row.spec.name for row in store.list_schedules()] == ["bad", "good"]

    def test_the_next_tick_is_not_stopped_either(self, store, clock, by_hand):
        self.add_two(store)
        by_hand("UPDATE tickwork_schedule SET rule = '' WHERE name = 'bad'")
        self.tick(store, clock)
        clock.advance(MINUTE)

        plan = self.tick(store, clock)

        assert [move.next_due_at is not None for move in plan.moves] == [True]
