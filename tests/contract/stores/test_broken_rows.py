"""Rows that were edited by hand and cannot be read do not stop other rows."""

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pytest

from contract.builders import MINUTE, NOON, a_job, a_run, a_schedule, add, all_runs, ids
from contract.stores.conftest import ON_DISK, open_sqlite
from servers import mariadb
from tickwork._domain.identity import ScheduleId
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.status import RunStatus
from tickwork._domain.tick import TickPlan, keys_wanted, plan_tick
from tickwork.stores import open_store
from tickwork.stores.contract import RunFilter, Store
from tickwork.stores.mysql.store import MysqlStore
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.testing import ManualClock

NEXT_ID = iter(range(1, 1000))
EVERY_MINUTE = Interval(length=MINUTE, anchor=NOON)
CHECKS = "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass"


@pytest.fixture
def by_hand(store: Store) -> Callable[[str], None]:
    """Runs SQL as a person with a shell would, without constraints."""
    if isinstance(store, SqliteStore):

        def edit(text: str) -> None:
            with sqlite3.connect(store.path) as connection:
                connection.execute("PRAGMA ignore_check_constraints = ON")
                connection.execute(text)
            connection.close()

        return edit
    if isinstance(store, MysqlStore):
        return partial(edit_mariadb, store.url)
    assert isinstance(store, PostgresStore)
    url = store.url

    def edit_server(text: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for table in ("tickwork_run", "tickwork_history"):
                for row in connection.execute(CHECKS, (table,)).fetchall():
                    connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {row[0]}")
            connection.execute(text)

    return edit_server


def edit_mariadb(url: str, text: str) -> None:
    with mariadb.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION check_constraint_checks = OFF")
        cursor.execute(text)


# The reference keeps values, not rows: there is nothing to edit.
@pytest.fixture(params=ON_DISK)
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    if request.param == "sqlite":
        with open_sqlite(request, clock) as opened:
            yield opened
    else:
        # A database of its own: its constraints do not come back.
        server = open_store(request.getfixturevalue(f"{request.param}_url"))
        server.install()
        yield server
        server.close()


class TestRuns:
    """A run that cannot be understood is failed for good, with the reason on it."""

    @pytest.mark.parametrize(
        "edit",
        ["attempt = 7", "attempts_max = 0", "limit_keys = '[broken'", "crashes = -3"],
    )
    def test_a_claim_sets_it_aside_and_takes_the_others(self, store, worker, by_hand, edit):
        add(store, bad := a_run(priority=1), good := a_run())
        by_hand(f"UPDATE tickwork_run SET {edit} WHERE id = '{bad.id}'")

        assert ids(worker.claim()) == [good.id]

        found = store.get_run(bad.id)
        assert found.status is RunStatus.FAILED_PERMANENT
        assert "cannot be read" in found.reason
        assert found.outcome == "failed"

    def test_args_that_are_no_json_are_left_to_the_handler(self, store, worker, by_hand):
        add(store, bad := a_run())
        by_hand(f"UPDATE tickwork_run SET args = '{{broken' WHERE id = '{bad.id}'")

        [claim] = worker.claim()
        assert claim.args == "{broken"

    @pytest.mark.parametrize("edit", ["status = 'exploded'", "phase = 'lost'", "tags = '{'"])
    def test_a_list_shows_it_as_broken_and_shows_the_others(self, store, by_hand, edit):
        add(store, bad := a_run(), good := a_run())
        by_hand(f"UPDATE tickwork_run SET {edit} WHERE id = '{bad.id}'")

        found = {run.id: run for run in store.list_runs(RunFilter()).runs}

        assert found[good.id].status is RunStatus.PENDING
        assert "cannot be read" in found[bad.id].reason
        assert store.run_record(bad.id) is not None

    def test_an_unknown_phase_stops_no_claim(self, store, worker, by_hand):
        add(store, bad := a_run(priority=1), good := a_run())
        by_hand(f"UPDATE tickwork_run SET phase = 'lost' WHERE id = '{bad.id}'")

        assert ids(worker.claim()) == [good.id]

    def test_a_lease_that_ends_on_nonsense_stops_no_reaper(self, store, clock, worker, by_hand):
        add(store, bad := a_run(), good := a_run())
        worker.claim()
        by_hand(f"UPDATE tickwork_run SET attempts_max = 0 WHERE id = '{bad.id}'")
        clock.advance(minutes=10)

        worker.reap()

        assert store.get_run(good.id).status is RunStatus.PENDING
        assert store.get_run(bad.id).status is RunStatus.FAILED_PERMANENT


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
        "edit", ["rule = 'every blue moon'", "overlap = 'whatever'", "misfire = '?'", "jitter = -1"]
    )
    def test_a_tick_fires_the_others(self, store, clock, by_hand, edit):
        self.add_two(store)
        by_hand(f"UPDATE tickwork_schedule SET {edit} WHERE name = 'bad'")

        plan = self.tick(store, clock)

        assert [run.schedule for run in all_runs(store)] == ["good"]
        assert len(plan.unfired) == 1
        assert plan.unfired[0].reason
        assert store.get_schedule("", "bad").next_due_at == NOON

    def test_it_is_listed_with_the_others(self, store, by_hand):
        self.add_two(store)
        by_hand("UPDATE tickwork_schedule SET overlap = 'whatever' WHERE name = 'bad'")

        assert [row.spec.name for row in store.list_schedules()] == ["bad", "good"]

    def test_the_next_tick_is_not_stopped_either(self, store, clock, by_hand):
        self.add_two(store)
        by_hand("UPDATE tickwork_schedule SET rule = '' WHERE name = 'bad'")
        self.tick(store, clock)
        clock.advance(MINUTE)

        plan = self.tick(store, clock)

        assert [move.next_due_at is not None for move in plan.moves] == [True]
