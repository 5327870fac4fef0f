"""Every query of the hot path goes by its index, whatever the statistics say."""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from contract.builders import ANN, NOON, an_id
from tickwork._domain.eras import EraMap, FirstRun, Front
from tickwork._stores._sql.operations.eras import view_known
from tickwork._stores._sql.queries import ERAS_MAX
from tickwork._stores._sql.rows import micros
from tickwork._stores._sql.statement import Statement
from tickwork._stores.postgres import connection as connection_module
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.postgres.values import Message, messages

NOW = 1_772_452_800_000_000

FILL = """
INSERT INTO tickwork_run (
    id, tenant, job, queue, priority, status, phase, due_at, args, attempts_max, token, lease_until,
    worker, overlap_key, blocked_on, schedule, nominal_at, created_at
)
SELECT gen_random_uuid(), '', 'job' || n %% 20, 'queue' || n %% 5, n %% 3,
       CASE WHEN phase = 'running' THEN 'running' ELSE 'pending' END, phase,
       1772452800000000 + (CASE WHEN phase = 'waiting' THEN 1 ELSE -1 END) * n * 1000,
       '{}', 1, 1,
       CASE WHEN phase = 'running' THEN 1772452800000000 + n * 1000 END,
       CASE WHEN phase = 'running' THEN %(worker)s::uuid END,
       CASE WHEN n %% 7 = 0 THEN 'held:' || phase || n END,
       CASE WHEN phase = 'blocked' THEN 'job:job' || n %% 20 || '=' || n %% 100 END,
       CASE WHEN n %% 11 = 0 THEN 'schedule' || n %% 50 END,
       CASE WHEN n %% 11 = 0 THEN n END,
       1772452800000000
FROM (VALUES ('ready'), ('waiting'), ('blocked'), ('running')) AS phases (phase)
CROSS JOIN generate_series(1, 1500) AS n;
INSERT INTO tickwork_history (
    id, tenant, job, queue, priority, status, due_at, args, attempt, attempts_max, crashes,
    postponements, token, created_at, ended_at, outcome, reason
)
SELECT gen_random_uuid(), '', 'job' || n %% 20, 'queue', 1, 'completed', n, '{}', 1, 1, 0, 0, 1, n,
       n, 'succeeded', ''
FROM generate_series(1, 10000) AS n;
INSERT INTO tickwork_slot (run, key)
SELECT gen_random_uuid(), 'job:job' || n %% 20 || '=' || n %% 100
FROM generate_series(1, 10000) AS n;
INSERT INTO tickwork_unique (key, run, until)
SELECT 'key' || n, gen_random_uuid(), CASE WHEN n %% 2 = 0 THEN n END
FROM generate_series(1, 10000) AS n;
INSERT INTO tickwork_schedule (
    id, tenant, name, job, rule, zone, args, overlap, misfire, grace, jitter, origin, created_at,
    next_due_at
)
SELECT gen_random_uuid(), '', 'schedule' || n, 'job' || n %% 20, '', '', '{}', 'skip', 'one', 0, 0,
       'code', n, 1772452800000000 + n
FROM generate_series(1, 10000) AS n;
INSERT INTO tickwork_rate (key, number, idle_at, next_start_at, opened)
SELECT 'job/minute:job' || n, 100, 1772452800000000 + n,
       CASE WHEN n %% 5 = 0 THEN 1772452800000000 + n END, 0
FROM generate_series(1, 2000) AS n;
INSERT INTO tickwork_start (key, number, at)
SELECT 'job/minute:job' || n %% 200, 1 + n / 200, 1772452800000000 + n
FROM generate_series(1, 20000) AS n;
UPDATE tickwork_run SET expires_at = due_at + 1000 WHERE phase = 'blocked' AND priority = 1;
"""
RATES = [f"job/minute:job{n}" for n in range(50)]

ALL_OF_A_KIND = """
INSERT INTO tickwork_run (
    id, tenant, job, queue, priority, status, phase, due_at, args, attempts_max, created_at
)
SELECT gen_random_uuid(), '', 'job1', 'queue1', 1, 'pending', 'ready', n, '{}', 1, n
FROM generate_series(1, 5000) AS n
"""

WANTED: dict[str, Any] = {
    "queues": None,
    "jobs": ["job1", "job2"],
    "is_ahead": 0,
    "now": NOW,
    "limit": 500,
}
FINISHED = (1, "completed", 0, 0, None, NOW, "succeeded", None, "")
REPLACED = ("queue1", 1, "ready", NOW, None, "{}", None, 1, None, None, None, None)
RETURNED = (1, "failed", "waiting", NOW, 0, 0, 0, None, "", 0)


def some(count: int = 500) -> list[str]:
    return [an_id() for _ in range(count)]


def many(*values: Any, count: int = 500) -> list[tuple[Any, ...]]:
    """Rows that differ in their id alone."""
    return [(run_id, *values) for run_id in some(count)]


FIRSTS: dict[str, Any] = {
    "eras": [1, 2],
    "priorities": [1, 1],
    "due_ats": [0, 0],
    "ids": [an_id(), an_id()],
}


def heads(count: int) -> dict[str, Any]:
    """The parameters of a claim that merges so many eras."""
    rest = tuple(FirstRun(1, 0, 0, an_id()) for _ in range(count - 1))
    return view_known(EraMap(1, (Front(1, 9, frozenset({7, 8})),), rest)).params


# What is run, with which values, and which index must serve it.
SPAN = ["", "schedule1", NOW, NOW + 9, some(1)[0]]

HOT: list[tuple[str, dict[str, Any], str]] = [
    ("pick_ready", WANTED | heads(1) | {"head_size": 2000}, "tickwork_run_ready"),
    ("count_head", heads(1) | {"head_size": 2000}, "tickwork_run_ready"),
    (
        "look_at_eras",
        {"lows": [1], "highs": [9], "late": ["7"], **FIRSTS},
        "Index Only Scan using tickwork_run_ready",
    ),
    ("count_eras", {"cap": 100, **FIRSTS}, "tickwork_run_ready"),
    ("gather_eras", {"cap": 100, **FIRSTS}, "tickwork_run_ready"),
    ("list_eras", {"low": 1}, "tickwork_run_ready"),
    ("ready_pairs", {"eras": [1, 2]}, "tickwork_run_pairs"),
    ("pick_by_pairs", WANTED | {"pairs": [["queue1", "job1", 1]]}, "tickwork_run_pairs"),
    ("queue_phases", {"limit": 9}, "tickwork_run_pairs"),
    ("queue_phases", {"limit": 9}, "tickwork_run_hidden"),
    ("count_phases", {"pairs": [["queue1", "ready"]], "cap": 99}, "tickwork_run_pairs"),
    ("count_phases", {"pairs": [["queue1", "blocked"]], "cap": 99}, "tickwork_run_hidden"),
    ("count_running", {"cap": 99}, "tickwork_run_lease"),
    (
        "take_runs",
        {"ids": some(), "tag": "", "worker": ANN, "lease_until": NOW, "started_at": None},
        "tickwork_run_pkey",
    ),
    ("due_runs", WANTED, "Index Scan using tickwork_run_"),
    ("lock_claimable", WANTED | {"id": an_id()}, "tickwork_run_pkey"),
    (
        "take_run",
        {"id": an_id(), "tag": "", "worker": ANN, "lease_until": NOW, "started_at": NOW},
        "tickwork_run_pkey",
    ),
    ("completed_runs", {"ids": some(100)}, "tickwork_history_pkey"),
    ("find_claims", {"worker": ANN, "tag": ""}, "tickwork_run_lease"),
    ("stage_runs", {"now": NOW, "limit": 1000, "lowest": 0}, "tickwork_run_waiting"),
    ("next_due", {"lowest": 0}, "tickwork_run_waiting"),
    ("next_due", {"lowest": 0}, "tickwork_rate_next_start"),
    ("pending_work", {}, "tickwork_run_lease"),
    ("pending_work", {}, "tickwork_run_blocked"),
    ("pending_work", {}, "Index Only Scan using tickwork_run_"),
    ("find_ids", {"ids": some(100)}, "tickwork_history_pkey"),
    ("protect_keys", {"many": [(f"key{n}", an_id(), None, NOW) for n in range(9)]}, "unique_pkey"),
    ("key_holders", {"keys": ["key1", "key2"], "now": NOW}, "tickwork_unique_pkey"),
    ("overlap_holders", {"keys": ["held:1", "held:2"]}, "tickwork_run_overlap"),
    ("lock_waiting", {"ids": some(100)}, "tickwork_run_pkey"),
    ("replace_runs", {"many": many(*REPLACED)}, "tickwork_run_pkey"),
    ("replace_runs", {"many": many(*REPLACED, count=1)}, "tickwork_run_pkey"),
    (
        "taken_keys",
        {"keys": ["held:1", "held:2"], "others": ["key1"], "now": NOW},
        "tickwork_run_overlap",
    ),
    ("finish_runs", {"many": many(*FINISHED)}, "tickwork_run_pkey"),
    ("finish_runs", {"many": many(*FINISHED, count=1)}, "tickwork_run_pkey"),
    ("finish_plain", {"many": many(1, None, NOW, None)}, "tickwork_run_pkey"),
    ("finish_plain", {"many": many(1, None, NOW, None, count=1)}, "tickwork_run_pkey"),
    ("return_runs", {"many": many(*RETURNED)}, "tickwork_run_pkey"),
    ("return_runs", {"many": many(*RETURNED, count=1)}, "tickwork_run_pkey"),
    ("insert_attempts", {"many": many(1, 1, "failed", None, NOW, "", "")}, "tickwork_run_pkey"),
    ("lock_running", {"ids": some()}, "tickwork_run_pkey"),
    ("held_rows", {"ids": some()}, "tickwork_run_pkey"),
    (
        "extend_leases",
        {"many": [(NOW, None, run_id, 1) for run_id in some()]},
        "tickwork_run_pkey",
    ),
    ("free_keys", {"ids": some(100), "now": NOW}, "tickwork_unique_run"),
    ("find_finished", {"ids": some(100)}, "tickwork_history_pkey"),
    ("expired_runs", {"now": NOW, "limit": 500, "lowest": 0}, "tickwork_run_lease"),
    ("release_worker", {"worker": ANN, "now": NOW}, "tickwork_run_lease"),
    ("held_slots", {"ids": some()}, "tickwork_slot_pkey"),
    ("count_slots", {"keys": ["job:job1=1"]}, "tickwork_slot_key"),
    (
        "slots_and_limits",
        {"keys": ["job:job1=1", "job:job2=2"], "numbers": [0, 7]},
        "tickwork_slot_key",
    ),
    ("delete_slots", {"many": many("job:job1=1")}, "Tid Scan on tickwork_slot"),
    ("block_runs", {"many": [("key", run_id) for run_id in some()]}, "tickwork_run_pkey"),
    ("unblock", {"many": [(f"job:job1={n}", 10) for n in range(10)]}, "tickwork_run_blocked"),
    ("keys_blocked", {"limit": 100, "after": ""}, "tickwork_run_blocked"),
    ("keys_blocked_by", {"name": "job:job1"}, "tickwork_run_blocked"),
    ("lock_gates", {"gates": [1, 2, 3]}, "tickwork_gate_pkey"),
    ("try_gates", {"gates": [1, 2, 3]}, "tickwork_gate_pkey"),
    ("pending_work", {}, "tickwork_rate_next_start"),
    ("read_rates", {"wanted": [[key, 50, 10] for key in RATES]}, "tickwork_rate_pkey"),
    ("read_rates", {"wanted": [[key, 50, 10] for key in RATES]}, "tickwork_start_pkey"),
    ("forget_starts", {"many": [(key, 50) for key in RATES]}, "tickwork_start_pkey"),
    ("due_turns", {"now": NOW, "limit": 10}, "tickwork_rate_next_start"),
    ("keys_waiting", {"keys": RATES}, "tickwork_run_"),
    ("read_turns", {"keys": RATES[:1]}, "tickwork_rate_"),
    ("unblock_expired", {"many": [("job:job1=1", NOW, 9)]}, "tickwork_run_expiring"),
    ("unblock_expired", {"many": [(key, NOW, 9) for key in RATES]}, "tickwork_run_expiring"),
    ("queue_position", {"id": an_id(), "cap": 100}, "tickwork_run_blocked"),
    ("idle_rates", {"before": NOW, "limit": 10}, "tickwork_rate_idle"),
    ("delete_rates", {"keys": RATES[:5], "before": NOW}, "tickwork_start_pkey"),
    (
        "due_schedules",
        {"now": NOW, "jobs": ["job1"], "seen_after": 7, "limit": 100, "head_size": 400},
        "tickwork_schedule_due",
    ),
    ("count_due", {"now": NOW, "head_size": 400}, "tickwork_schedule_"),
    (
        "due_by_job",
        {"now": NOW, "jobs": ["job1", "job2"], "seen_after": 7, "limit": 100},
        "tickwork_schedule_job_due",
    ),
    ("next_firing", {"seen_after": 7}, "tickwork_schedule_due"),
    ("next_firing_of", {"jobs": ["job1", "job2"], "seen_after": 7}, "tickwork_schedule_job_due"),
    ("scheduled_jobs", {}, "tickwork_schedule_job"),
    ("get_schedules", {"names": [["", f"schedule{n}"] for n in range(500)]}, "tenant_name_key"),
    ("lock_marks", {"names": [["", f"schedule{n}"] for n in range(500)]}, "tenant_name_key"),
    ("skip_marks", {"names": [["", f"schedule{n}"] for n in range(500)]}, "tenant_name_key"),
    ("skip_marks", {"names": [["", "schedule1"]]}, "tickwork_run_schedule"),
    ("skip_marks", {"names": [["", "schedule1"]]}, "tickwork_history_schedule"),
    ("firings_between", {"spans": [SPAN]}, "tickwork_run_schedule"),
    ("firings_between", {"spans": [SPAN]}, "tickwork_history_schedule"),
    ("count_logs", {"ids": some(100)}, "tickwork_log_pkey"),
    ("move_schedules", {"many": many(NOW, NOW, NOW, count=50)}, "tickwork_schedule_pkey"),
    ("move_schedules", {"many": many(NOW, NOW, NOW, count=2000)}, "tickwork_schedule_pkey"),
    (
        "move_together",
        {"ids": some(2000), "due_at": NOW, "next_due_at": NOW + 1, "last_fired_at": NOW},
        "tickwork_schedule_pkey",
    ),
    ("runs_of_schedules", {"names": [["", "a"]], "limit": 9}, "tickwork_run_schedule"),
    ("request_cancel_of_schedules", {"many": [(NOW, "a", "")]}, "tickwork_run_schedule"),
    (
        "list_ended",
        {"after": 50, "after_id": some(1)[0], "before": 100, "limit": 100},
        "tickwork_history_ended",
    ),
    ("lock_ended", {"ids": some(100)}, "tickwork_history_pkey"),
    ("clear_results", {"ids": some(100), "reason": ""}, "tickwork_history_pkey"),
    ("old_runs", {"before": 100, "limit": 100}, "tickwork_history_ended"),
    ("prune_runs", {"ids": some(100)}, "tickwork_history_pkey"),
    ("prune_keys", {"before": 100, "limit": 100}, "tickwork_unique_until"),
]


TABLES = ("run", "history", "slot", "unique", "schedule", "rate", "start")
STATISTICS = ("never analyzed", "analyzed when empty", "when all was of a kind", "up to date")


@pytest.fixture(scope="class", params=STATISTICS)
def store(request: pytest.FixtureRequest, postgres_databases: Any) -> Iterator[PostgresStore]:
    """A store with thousands of rows of every kind, and statistics that fit or do not."""
    database = postgres_databases.create_database()
    store = PostgresStore(postgres_databases.url(database))
    store.install()
    with psycopg.connect(store.url, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(
                f"ALTER TABLE tickwork_{table} SET (autovacuum_enabled = false)".encode()
            )
        if request.param == "analyzed when empty":
            connection.execute("ANALYZE")
        if request.param == "when all was of a kind":
            connection.execute(ALL_OF_A_KIND)
            connection.execute("ANALYZE")
            connection.execute("TRUNCATE tickwork_run")
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute(FILL, {"worker": ANN})
        if request.param == "up to date":
            connection.execute("ANALYZE")
    yield store
    store.close()
    postgres_databases.drop_database(database)


def plans(store: PostgresStore, statement: Statement, *, explain: bytes = b"EXPLAIN ") -> str:
    """How the server would run it, under the settings of a transaction that writes."""
    found: list[str] = []
    with store._pool.acquire() as connection, connection.transaction():
        for message in messages(statement):
            connection._begin(statement.name)
            connection._unsent.append(Message(explain + message.text, message.values))
            result = connection._send()[-1]
            found.extend(
                (result.get_value(row, 0) or b"").decode()[:200] for row in range(result.ntuples)
            )
    return "\n".join(found)


class TestPlans:
    """Every query of the hot path goes by its index, whatever the statistics say."""

    @pytest.mark.parametrize(("name", "values", "index"), HOT, ids=[name for name, _, _ in HOT])
    def test_it_goes_by_its_index(self, store, name, values, index):
        plan = plans(store, store.query(name, **values))

        assert index in plan, plan
        for table in TABLES:
            assert f"Seq Scan on tickwork_{table} " not in plan, plan

    @pytest.mark.parametrize(
        "name", ["pick_ready", "stage_runs", "expired_runs", "due_schedules", "due_turns"]
    )
    def test_it_sorts_nothing(self, store, name):
        [values] = [values for other, values, _ in HOT if other == name]

        plan = plans(store, store.query(name, **values))

        assert "Sort" not in plan, plan

    def test_a_claim_reads_no_more_than_its_look(self, store):
        # A bitmap scan would collect all ready runs before it returns the first.
        [values] = [values for other, values, _ in HOT if other == "pick_ready"]

        assert "Bitmap" not in plans(store, store.query("pick_ready", **values))

    @pytest.mark.parametrize("count", [2, ERAS_MAX])
    def test_it_merges_eras_without_a_sort(self, store, count):
        values = WANTED | heads(count) | {"head_size": 2000}

        plan = plans(store, store.query.for_eras("pick_ready", count, **values))

        assert "Merge Append" in plan, plan
        assert plan.count("Index Scan using tickwork_run_ready") == count, plan
        assert "Sort  (" not in plan, plan

    def test_a_claim_by_pairs_does_not_walk_through_those_of_others(self, store):
        [values] = [values for other, values, _ in HOT if other == "pick_by_pairs"]

        assert "tickwork_run_ready" not in plans(store, store.query("pick_by_pairs", **values))

    def test_a_tick_looks_at_nothing_that_is_paused(self, store):
        [values] = [values for other, values, _ in HOT if other == "due_schedules"]
        with psycopg.connect(store.url) as connection:
            connection.execute("UPDATE tickwork_schedule SET paused_at = 1, next_due_at = 1")
            connection.commit()

        plan = plans(store, store.query("due_schedules", **values), explain=b"EXPLAIN ANALYZE ")

        assert "tickwork_schedule_due" in plan
        assert "Rows Removed" not in plan, plan


PREPARED = tuple(
    (name, values, index)
    for name, values, index in HOT
    if name in connection_module._PREPARED and name not in {"count_head", "look_at_eras"}
)


@pytest.fixture(scope="module")
def plan_by_name(postgres_databases: Any) -> Iterator[dict[str, str]]:
    database = postgres_databases.create_database()
    store = PostgresStore(postgres_databases.url(database))
    store.install()
    with psycopg.connect(store.url, autocommit=True) as other:
        # Nothing in it, and known to have nothing in it: anything seems to cost nothing.
        other.execute("VACUUM ANALYZE")
    plans: dict[str, str] = {}
    with store._pool.acquire() as connection:
        for phase in ("prepare", "explain"):
            if phase == "explain":
                with (
                    psycopg.connect(store.url, autocommit=True) as other,
                    psycopg.ClientCursor(other) as cursor,
                ):
                    cursor.execute(FILL, {"worker": ANN})
            with connection.transaction():
                connection._begin("")
                connection._unsent.append(
                    Message(b"SET LOCAL plan_cache_mode = force_generic_plan")
                )
                for name, values, _ in PREPARED:
                    [message] = messages(store.query(name, **values))
                    if phase == "prepare":
                        connection._to_prepare.add(message.text)
                        connection._unsent.append(message)
                        connection._send()
                    else:
                        plans[f"{name} {len(values)}"] = explained(connection, message)
    yield plans
    store.close()
    postgres_databases.drop_database(database)


def explained(connection: Any, message: Message) -> str:
    values = ", ".join(
        "NULL" if value is None else f"'{value.decode()}'" for value in message.values or ()
    )
    name = connection._name_by_text[message.text].decode()
    connection._unsent.append(Message(f"EXPLAIN EXECUTE {name} ({values})".encode()))
    result = connection._send()[-1]
    return "\n".join(
        (result.get_value(row, 0) or b"").decode()[:200] for row in range(result.ntuples)
    )


class TestPreparedPlans:
    """A plan that was made while there was nothing is still good when there is a lot."""

    @pytest.mark.parametrize(
        ("name", "values", "index"), PREPARED, ids=[name for name, _, _ in PREPARED]
    )
    def test_it_goes_by_its_index(self, plan_by_name, name, values, index):
        plan = plan_by_name[f"{name} {len(values)}"]

        assert re.search(r"\$\d", plan), plan  # a plan for any values
        assert index in plan, plan
        assert "Seq Scan" not in plan, plan
        assert "Sort" not in plan, plan
        # Each of 500 beside each of 500: the only loops are those that look up one row each time.
        assert "Nested Loop" not in plan or name == "pick_ready", plan


def test_the_times_of_this_file_are_those_of_the_suite():
    assert micros(NOON) == NOW
