"""Claims on PostgreSQL while a transaction is held: how much they read, and what they find."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from contract.builders import NOON, a_run, settled
from contract.stores.conftest import open_postgres
from servers.postgres import PostgresServer
from tickwork._domain.eras import NOTHING_KNOWN
from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.outcome import Failed
from tickwork._domain.runs.retry import Fixed
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.transitions import reap
from tickwork._stores._sql.era_memory import FLOOR_MARGIN, EraMemory
from tickwork._stores._sql.operations import eras as era_operations
from tickwork._stores._sql.queries import ERAS_MAX
from tickwork._stores._sql.rows import micros
from tickwork._stores.contract import ClaimRequest, ReapDecision
from tickwork._stores.postgres.store import PostgresStore
from tickwork.errors import StoreError

pytestmark = pytest.mark.servers("postgres")

MINUTE = timedelta(minutes=1)
LIMIT = "job:send_email"
WORKER = WorkerId("019b76da-a800-7000-8000-00000000ba4e")


@pytest.fixture
def store(request, clock) -> Iterator[PostgresStore]:
    with open_postgres(request, clock) as store:
        assert isinstance(store, PostgresStore)
        memory = memory_of(store)
        memory.__init__()  # type: ignore[misc]  # as of a new store
        yield store


@contextmanager
def held(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that keeps every row that dies from now on."""
    with psycopg.connect(store.url) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM tickwork_run")
        yield connection
        connection.rollback()


@contextmanager
def opened(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    """A caller's transaction that has a number."""
    with psycopg.connect(store.url) as connection:
        connection.execute("SELECT txid_current()")
        yield connection


def memory_of(store: PostgresStore) -> EraMemory:
    assert store.query.eras is not None
    return store.query.eras


def ranked(priority: int, **given: Any) -> NewRun:
    """A run whose claim shows its priority."""
    return a_run(priority=priority, args=str(priority), **given)


def ranks(claims: list[Claim]) -> list[int]:
    return [int(found.args) for found in claims]


def claim(store: PostgresStore, limit: int = 1, *jobs: str) -> list[Claim]:
    wanted = ClaimRequest(limit, jobs=jobs or None)
    return store.claim(wanted, worker=WORKER, tag="", now=NOON, lease=MINUTE)


def work_off(store: PostgresStore, count: int, *, batch: int = 50) -> None:
    for _ in range(count // batch):
        store.add_runs([a_run() for _ in range(batch)])
        claims = claim(store, batch)
        assert len(claims) == batch
        store.record([settled(claim) for claim in claims])


def move_boundary(store: PostgresStore) -> None:
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("SELECT setval('tickwork_era', txid_current() + 1)")


class TestWhileASnapshotIsHeld:
    def test_a_claim_reads_no_dead_rows_of_old_eras(self, store):
        memory_of(store).check_seconds = 0.0
        with held(store):
            moves = -memory_of(store).moves
            work_off(store, 4000)
            moves += memory_of(store).moves
            claim(store)
            memory = memory_of(store).map
            with psycopg.connect(store.url) as connection:
                [[plan]] = connection.execute(
                    "EXPLAIN (ANALYZE, FORMAT JSON, BUFFERS) SELECT id FROM tickwork_run"
                    " WHERE phase = 'ready' AND era = %s ORDER BY priority, due_at, id LIMIT 9",
                    [memory.boundary],
                )

        assert moves > 5
        assert memory.is_simple
        assert plan[0]["Plan"]["Shared Hit Blocks"] < 300, plan

    def test_without_dead_rows_the_boundary_stays(self, store):
        memory_of(store).check_seconds = 0.0
        moves = memory_of(store).moves

        store.add_runs([a_run(job="other") for _ in range(1000)])
        work_off(store, 500)

        assert memory_of(store).moves == moves
        assert memory_of(store).map.is_simple


class TestLateWriters:
    """A transaction that is open while the boundary moves."""

    def test_its_runs_start_right_after_its_commit_and_in_order(self, store):
        claim(store)
        with opened(store) as connection:
            for _ in range(3):
                store.using(connection).add_runs([late := ranked(10)])
                move_boundary(store)
                store.add_runs([ranked(50), ranked(50)])
                assert ranks(claim(store)) == [50]
            connection.commit()

        found = claim(store, 6)

        assert ranks(found) == [10, 10, 10, 50, 50, 50]
        assert late.id in {run.run_id for run in found}

    def test_what_it_rolls_back_is_never_found(self, store):
        claim(store)
        with opened(store) as connection:
            store.using(connection).add_runs([a_run()])
            move_boundary(store)
            assert claim(store) == []
            connection.rollback()

        assert claim(store) == []
        assert memory_of(store).map.is_simple

    @pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
    def test_at_every_isolation_level_it_writes_into_an_era_that_is_read(self, store, level):
        claim(store)
        with psycopg.connect(store.url) as connection:
            connection.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
            connection.execute("SELECT count(*) FROM tickwork_run")
            move_boundary(store)
            assert claim(store) == []  # the worker knows the new boundary
            store.using(connection).add_runs([a_run()])
            connection.commit()

        assert len(claim(store)) == 1

    def test_rows_of_a_program_that_knows_no_eras_are_found(self, store):
        claim(store)
        move_boundary(store)
        assert claim(store) == []
        with psycopg.connect(store.url) as connection:
            connection.execute(
                "INSERT INTO tickwork_run (id, tenant, job, queue, priority, status, phase, due_at,"
                " args, attempts_max, created_at) VALUES"
                " (gen_random_uuid(), '', 'a', 'default', 1, 'pending', 'ready', 1, '{}', 1, 1)"
            )

        assert len(claim(store)) == 1


class TestRunsThatBecomeReadyAgain:
    def test_a_retry_with_an_old_due_time_is_found(self, store):
        store.add_runs([a_run(attempts_max=3)])
        [found] = claim(store)
        move_boundary(store)
        assert claim(store) == []
        retry = Fixed(attempts_max=3, delay=timedelta(0))
        store.record([settled(found, retry=retry, outcome=Failed("no"))])

        assert len(claim(store)) == 1

    def test_a_run_that_was_moved_is_found(self, store):
        run = a_run(due_at=NOON + MINUTE)
        store.add_runs([run])
        move_boundary(store)
        assert claim(store) == []
        store.reschedule(run.id, due_at=NOON, now=NOON)

        assert len(claim(store)) == 1

    def test_a_run_whose_time_has_come_is_found(self, store):
        store.add_runs([a_run(due_at=NOON + MINUTE)])
        move_boundary(store)
        assert claim(store) == []
        store.stage(now=NOON + MINUTE, limit=10)

        assert len(claim(store)) == 1


class TestManyOldEras:
    """Runs that no worker claims are left in each era."""

    def leave_one_in_each(self, store: PostgresStore, count: int) -> None:
        memory_of(store).look_seconds = 0.0
        for number in range(count):
            store.add_runs([a_run(job="unknown"), ranked(number % 3, job="known")])
            move_boundary(store)
            claim(store, 1, "none")

    def test_they_are_gathered(self, store):
        self.leave_one_in_each(store, 4 * ERAS_MAX)

        assert len(memory_of(store).map.rest) <= ERAS_MAX
        assert len(claim(store, 200, "unknown")) == 4 * ERAS_MAX

    def test_eras_that_are_too_large_to_gather_are_claimed_in_order(self, store, monkeypatch):
        monkeypatch.setattr(era_operations, "GATHERED_SIZE_MAX", 1)
        self.leave_one_in_each(store, 4 * ERAS_MAX)

        assert len(memory_of(store).map.rest) > 3 * ERAS_MAX
        priorities = [ranks(claim(store, 1, "known")) for _ in range(4 * ERAS_MAX)]
        assert priorities == sorted(priorities)
        assert claim(store, 1, "known") == []
        assert len(claim(store, 200, "unknown")) == 4 * ERAS_MAX

    def test_readers_list_runs_in_the_order_of_claims(self, store):
        self.leave_one_in_each(store, 20)

        due = store.due_runs(ClaimRequest(5), now=NOON)

        assert [run.priority for run in due] == [0] * 5
        assert store.ready_pairs() == [("default", "known"), ("default", "unknown")]


class TestSlots:
    """The slots of a limit, while the dead ones stay."""

    def take(self, store: PostgresStore) -> list[Claim]:
        store.add_runs([a_run(limit_keys=(LIMIT,)) for _ in range(3)])
        return claim(store, 5)

    def test_they_are_counted_from_the_first_live_one_on(self, store):
        store.set_limits({LIMIT: 2})
        with held(store):
            for _ in range(5):
                first, second = self.take(store)
                store.record([settled(first), settled(second)])
                [third] = claim(store, 5)
                store.record([settled(third)])

            numbers = memory_of(store).first_slots
            assert numbers[LIMIT] > 10
            with psycopg.connect(store.url) as connection:
                rows = connection.execute("SELECT count(*) FROM tickwork_slot").fetchall()
            assert rows == [(0,)]
            assert len(self.take(store)) == 2

    def test_those_that_a_failed_transaction_freed_still_count(self, store):
        store.set_limits({LIMIT: 2})
        first, second = self.take(store)
        with psycopg.connect(store.url, autocommit=True) as connection:
            # The counts of ended runs are written after the slots are freed.
            connection.execute("ALTER TABLE tickwork_rollup RENAME TO hidden")
            with pytest.raises(StoreError):
                store.record([settled(first), settled(second)])
            connection.execute("ALTER TABLE hidden RENAME TO tickwork_rollup")
        store.add_runs([a_run(limit_keys=(LIMIT,))])

        assert claim(store, 5) == []

    def test_a_key_whose_gate_is_locked_teaches_nothing(self, store):
        store.set_limits({LIMIT: 2})
        with psycopg.connect(store.url) as connection:
            connection.execute("SELECT FROM tickwork_gate FOR UPDATE")
            connection.execute(
                "INSERT INTO tickwork_slot (run, key) VALUES (gen_random_uuid(), %s)", [LIMIT]
            )
            with psycopg.connect(store.url, autocommit=True) as other:
                other.execute("SELECT nextval('tickwork_slot_number')")
            assert self.take(store) == []
            connection.commit()

        assert LIMIT not in memory_of(store).first_slots
        assert len(claim(store, 5)) == 1


class TestTimes:
    """The indexes of waiting runs and of leases, while they begin with many dead entries."""

    def test_dead_leases_are_not_read_each_time_and_no_expired_one_is_missed(self, store):
        later = NOON + 2 * MINUTE
        with held(store):
            work_off(store, 500)
            assert store.reap(now=later, limit=10, decide=give_back(later)) == []
            leases = memory_of(store).leases
            assert leases.lowest == micros(later) - FLOOR_MARGIN
            store.add_runs([a_run()])
            [late] = claim(store)  # its lease expired before the floor: a clock was set

            leases._full_at = 0.0

            [reaped] = store.reap(now=later, limit=10, decide=give_back(later))
            assert reaped.claim.run_id == late.run_id

    def test_dead_waiting_runs_are_not_read_each_time_and_no_due_one_is_missed(self, store):
        later = NOON + 2 * MINUTE
        with held(store):
            store.add_runs([a_run(due_at=NOON + MINUTE) for _ in range(300)])
            assert store.stage(now=later, limit=500) == 300
            assert store.next_due(now=later).due_at is None
            waiting = memory_of(store).waiting
            assert waiting.lowest == micros(later) - FLOOR_MARGIN
            store.add_runs([a_run(due_at=later)])
            assert store.next_due(now=later).due_at == later
            store.add_runs([a_run(due_at=NOON + MINUTE)])  # by a clock that is behind

            waiting._full_at = 0.0

            assert store.next_due(now=later).due_at == NOON + MINUTE
            assert store.stage(now=later, limit=500) == 2


def give_back(now: datetime) -> ReapDecision:
    return lambda expired: reap(expired.claim, has_started=False, now=now)


class TestLostConnections:
    def test_a_new_connection_begins_anew(self, store):
        claim(store)
        assert memory_of(store).map is not NOTHING_KNOWN

        store.close()
        with store._pool.acquire():
            assert memory_of(store).map is NOTHING_KNOWN

    def test_once_a_minute_a_claim_looks_from_the_beginning(self, store):
        claim(store)
        move_boundary(store)
        claim(store)
        with psycopg.connect(store.url) as connection:
            run = a_run()
            store.using(connection).add_runs([run])
            connection.execute("UPDATE tickwork_run SET era = 1")  # by hand
        assert claim(store) == []

        memory_of(store).renew_seconds = 0.0

        assert len(claim(store)) == 1


# ---------------------------------------------------------------- tables of another server


FAR = 10**12


def make_foreign(store: PostgresStore) -> None:
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("SELECT setval('tickwork_era', %s)", [FAR])
        connection.execute("UPDATE tickwork_run SET era = %s - 7", [FAR])
    memory_of(store).forget()


def eras_of(store: PostgresStore) -> tuple[int, int, int]:
    with psycopg.connect(store.url) as connection:
        rows = connection.execute(
            "SELECT txid_current(), (SELECT last_value FROM tickwork_era),"
            " (SELECT coalesce(max(era), 0) FROM tickwork_run WHERE phase = 'ready')"
        ).fetchall()
    return rows[0]


class TestTablesOfAnotherServer:
    """The transaction numbers of a new server are far below the boundary that was restored."""

    def test_until_it_is_noticed_every_run_is_found_in_order(self, store):
        store.add_runs([ranked(50)])
        make_foreign(store)
        claim(store, 1, "none")
        store.add_runs([ranked(10), ranked(90)])

        assert ranks(claim(store, 5)) == [10, 50, 90]

    def test_a_worker_notices_it(self, store):
        store.add_runs([ranked(50)])
        make_foreign(store)

        store.sweep(now=NOON, limit=10)

        number, boundary, last = eras_of(store)
        assert last <= boundary <= number
        store.add_runs([ranked(10)])
        assert ranks(claim(store, 5)) == [10, 50]
        assert memory_of(store).map.is_simple

    def test_a_sequence_that_was_reset_loses_no_run(self, store):
        store.add_runs([ranked(50)])
        assert claim(store, 1, "none") == []
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute("ALTER SEQUENCE tickwork_era RESTART")
        store.add_runs([ranked(10)])
        assert ranks(claim(store)) == [10]
        store.add_runs([ranked(20)])
        assert ranks(claim(store, 2)) == [20, 50]

        store.sweep(now=NOON, limit=10)
        claim(store)

        assert memory_of(store).map.is_simple

    def test_an_installation_notices_it(self, store):
        store.add_runs([a_run()])
        make_foreign(store)

        store.install()

        number, boundary, last = eras_of(store)
        assert last <= boundary <= number

    def test_runs_copied_under_another_prefix_are_found(self, store, postgres_databases):
        store.add_runs([ranked(50)])
        make_foreign(store)
        copied = PostgresStore(store.url, prefix="copied_")
        copied.install()
        with psycopg.connect(store.url) as connection:
            connection.execute("INSERT INTO copied_run SELECT * FROM tickwork_run")
        copied.add_runs([ranked(90), ranked(10)])

        assert ranks(claim(copied, 5)) == [10, 50, 90]
        copied.sweep(now=NOON, limit=10)
        with psycopg.connect(store.url, autocommit=True) as connection:
            [[names]] = connection.execute(
                "SELECT string_agg('DROP ' || CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN"
                " 'VIEW' ELSE 'TABLE' END || ' IF EXISTS ' || relname || ' CASCADE', ';')"
                " FROM pg_class WHERE relname LIKE 'copied%' AND relkind IN ('r', 'S', 'v')"
            )
            connection.execute(names.encode())
        copied.close()


def test_a_dump_is_restored_into_a_fresh_server(postgres_url):
    store = PostgresStore(postgres_url)
    store.install()
    store.add_runs([ranked(priority) for priority in (50, 10)])
    make_foreign(store)
    with PostgresServer(fsync=False) as fresh:
        database = fresh.create_database()
        dump = [str(fresh.programs / "pg_dump"), "--dbname", postgres_url]
        restore = [str(fresh.programs / "psql"), "-v", "ON_ERROR_STOP=1", "-q", fresh.url(database)]
        text = subprocess.run(dump, capture_output=True, check=True).stdout
        subprocess.run(restore, input=text, capture_output=True, check=True)
        restored = PostgresStore(fresh.url(database))
        restored.add_runs([ranked(30)])

        assert ranks(claim(restored, 2)) == [10, 30]
        restored.sweep(now=NOON, limit=10)

        number, boundary, last = eras_of(restored)
        assert last <= boundary <= number
        assert ranks(claim(restored, 2)) == [50]
        restored.close()
    store.close()
