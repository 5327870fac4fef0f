"""Every query of the hot path goes by its index on MariaDB, whatever the statistics say."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from contract.builders import ANN, an_id
from contract.stores.test_postgres_plans import HOT as QUERIES
from contract.stores.test_postgres_plans import NOW, some
from servers import mariadb
from tickwork._stores._sql.statement import Rows, Statement
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.mysql.values import template

TABLES = ("run", "history", "slot", "unique", "schedule")

NUMBERS = (
    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {})"
)
FILL = [
    "SET SESSION /*M! max_recursive_iterations */ /*!80017 cte_max_recursion_depth */ = 20000",
    f"""
INSERT INTO tickwork_run (
    id, tenant, job, queue, priority, status, phase, due_at, args, attempts_max, token, lease_until,
    worker, overlap_key, blocked_on, schedule, nominal_at, created_at
)
{NUMBERS.format(1500)}
SELECT uuid(), '', concat('job', n % 20), concat('queue', n % 5), n % 3,
       CASE WHEN phase = 'running' THEN 'running' ELSE 'pending' END, phase,
       {NOW} + (CASE WHEN phase = 'waiting' THEN 1 ELSE -1 END) * n * 1000,
       '{{}}', 1, 1,
       CASE WHEN phase = 'running' THEN {NOW} + n * 1000 END,
       CASE WHEN phase = 'running' THEN '{ANN}' END,
       CASE WHEN n % 7 = 0 THEN concat('held:', phase, n) END,
       CASE WHEN phase = 'blocked' THEN concat('job:job', n % 20, '=', n % 100) END,
       CASE WHEN n % 11 = 0 THEN concat('schedule', n % 50) END,
       CASE WHEN n % 11 = 0 THEN n END,
       {NOW}
FROM (SELECT 'ready' AS phase UNION SELECT 'waiting' UNION SELECT 'blocked'
      UNION SELECT 'running') AS phases
CROSS JOIN numbers
""",
    f"""
INSERT INTO tickwork_history (
    id, tenant, job, queue, priority, status, due_at, args, attempt, attempts_max, crashes,
    postponements, token, created_at, ended_at, outcome, reason
)
{NUMBERS.format(10000)}
SELECT uuid(), '', concat('job', n % 20), 'queue', 1, 'completed', n, '{{}}', 1, 1, 0, 0, 1, n, n,
       'succeeded', ''
FROM numbers
""",
    f"""
INSERT INTO tickwork_slot (run, `key`)
{NUMBERS.format(10000)}
SELECT uuid(), concat('job:job', n % 20, '=', n % 100) FROM numbers
""",
    f"""
INSERT INTO tickwork_unique (`key`, run, until)
{NUMBERS.format(10000)}
SELECT concat('key', n), uuid(), CASE WHEN n % 2 = 0 THEN n END FROM numbers
""",
    f"""
INSERT INTO tickwork_schedule (
    id, tenant, name, job, rule, zone, args, overlap, misfire, grace, jitter, origin, created_at,
    next_due_at
)
{NUMBERS.format(10000)}
SELECT uuid(), '', concat('schedule', n), concat('job', n % 20), '', '', '{{}}', 'skip', 'one', 0,
       0, 'code', n, {NOW} + n
FROM numbers
""",
]

# Which indexes serve what, where it is more than the primary key.
KEYS: dict[str, set[str]] = {
    "pick_ready": {"ready", "PRIMARY"},
    "count_head": {"ready"},
    "ready_pairs": {"pairs"},
    "queue_phases": {"pairs"},
    "count_phases": {"pairs"},
    "count_running": {"pairs"},
    "pick_by_pairs": {"pairs", "PRIMARY"},
    "due_runs": {"ready"},
    "find_claims": {"lease"},
    "stage_runs": {"waiting", "PRIMARY"},
    "overlap_holders": {"overlap"},
    "taken_keys": {"overlap", "PRIMARY"},
    "free_keys": {"run", "PRIMARY"},
    "expired_runs": {"lease"},
    "release_worker": {"lease", "PRIMARY"},
    "count_slots": {"taken"},
    "slots_and_limits": {"taken"},
    "unblock": {"blocked", "PRIMARY"},
    "keys_blocked": {"blocked"},
    "keys_blocked_by": {"blocked"},
    "due_schedules": {"due", "PRIMARY"},
    "count_due": {"due"},
    "due_by_job": {"job_due", "PRIMARY"},
    "next_firing": {"due"},
    "next_firing_of": {"job_due"},
    "scheduled_jobs": {"job_due"},
    "due_turns": {"next_start"},
    "idle_rates": {"next_start"},
    "keys_waiting": {"blocked"},
    "unblock_expired": {"expiring", "PRIMARY"},
    "queue_position": {"blocked", "PRIMARY"},
    "get_schedules": {"name"},
    "lock_marks": {"name"},
    "skip_marks": {"name", "schedule", "PRIMARY"},
    "firings_between": {"schedule"},
    "runs_of_schedules": {"schedule", "PRIMARY"},
    "request_cancel_of_schedules": {"schedule", "PRIMARY"},
    "list_ended": {"ended"},
    "lock_ended": {"PRIMARY"},
    "clear_results": {"PRIMARY"},
    "old_runs": {"ended"},
    "prune_runs": {"PRIMARY", "skip"},
    "prune_keys": {"until", "PRIMARY"},
}
SKIPPING = {"ready_pairs", "queue_phases", "keys_blocked", "scheduled_jobs"}
"""These go from one value to the next."""

# Read from the end of an index: there is no plan for it.
AT_ONCE = {"next_due", "pending_work"}
ERAS = {"count_eras", "gather_eras", "list_eras", "look_at_eras"}  # only on PostgreSQL
HOT = [(name, values) for name, values, _ in QUERIES if name not in AT_ONCE | ERAS]


class Step(NamedTuple):
    """One line of a plan."""

    table: str
    kind: str
    key: str | None
    rows: int
    extra: str


@pytest.fixture(scope="class", params=["analyzed when empty", "up to date"])
def store(request: pytest.FixtureRequest, mariadb_databases: Any) -> Iterator[MysqlStore]:
    """A store with thousands of rows of every kind, and statistics that fit or do not."""
    database = mariadb_databases.create_database()
    store = MysqlStore(mariadb_databases.url(database))
    store.install()
    with mariadb.connect(store.url) as connection:
        for table in TABLES:
            connection.execute(f"ALTER TABLE tickwork_{table} STATS_AUTO_RECALC = 0")
            connection.execute(f"ANALYZE TABLE tickwork_{table}")
        for text in FILL:
            connection.execute(text)
        if request.param == "up to date":
            for table in TABLES:
                connection.execute(f"ANALYZE TABLE tickwork_{table}")
    yield store
    store.close()
    mariadb_databases.drop_database(database)


def plan(store: MysqlStore, statement: Statement) -> list[Step]:
    """How the server would run it: what it does with our own tables."""
    found: Rows = [(run_id,) for run_id in some(100)]
    if statement.name == "protect_keys":
        found = [(f"key{number}", an_id()) for number in range(9)]
    if statement.name == "queue_position":
        found = [("job:job1=1", 1, NOW, an_id())]
    steps = []
    with mariadb.connect(store.url) as connection:
        for part in statement.parts:
            [text, *_] = template(part).texts(statement, found)
            for line in explained(connection, text):
                table, kind, key, extra = (line[name] for name in ("table", "type", "key", "Extra"))
                rows = line["rows"]
                is_ours = table and not table.startswith("<") and "json_table" not in (extra or "")
                if is_ours and table not in {"tickwork_pause", "tickwork_limit"}:
                    steps.append(Step(table, kind or "", key, int(rows or 0), extra or ""))
    return steps


def explained(connection: mariadb.Connection, text: str) -> list[dict[str, Any]]:
    """The lines of a plan. MySQL has two columns more than MariaDB, and other formats."""
    cursor = connection.execute(f"EXPLAIN FORMAT = TRADITIONAL {text}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class TestPlans:
    """Every query of the hot path goes by its index, whatever the statistics say."""

    @pytest.mark.parametrize(("name", "values"), HOT, ids=[name for name, _ in HOT])
    def test_it_goes_by_its_index(self, store, name, values):
        steps = plan(store, store.query(name, **values))

        assert steps or name in {
            "lock_claimable",
            "read_turns",
            "skip_marks",
        }  # of what is not there
        assert {step.key for step in steps if step.kind != "INSERT"} - {None} <= KEYS.get(
            name, {"PRIMARY"}
        ), steps
        # Of some the index is chosen when the row before is there.
        inserted = [
            step for step in steps if step.kind == "ALL" and "for each record" not in step.extra
        ]
        # An INSERT has a line of its own, without an index.
        assert all(step.key is None and not step.rows for step in inserted), steps

    @pytest.mark.parametrize(
        "name", ["pick_ready", "stage_runs", "expired_runs", "due_schedules", "unblock"]
    )
    def test_it_sorts_nothing(self, store, name):
        [values] = [values for other, values in HOT if other == name]

        steps = plan(store, store.query(name, **values))

        assert not any("filesort" in step.extra for step in steps), steps

    # Before the server has analyzed a table, it may read the whole index.
    @pytest.mark.parametrize("store", ["up to date"], indirect=True, scope="class")
    @pytest.mark.parametrize("name", sorted(SKIPPING))
    def test_it_skips_from_one_to_the_next(self, store, name):
        values = next(values for other, values in HOT if other == name)

        steps = plan(store, store.query(name, **values))

        assert steps
        assert all("Using index for group-by" in step.extra for step in steps), steps

    @pytest.mark.parametrize("name", sorted(AT_ONCE))
    def test_it_reads_the_end_of_an_index(self, store, name):
        [part] = store.query(name).parts
        with mariadb.connect(store.url) as connection:
            rows = explained(connection, part)

        extras = [row["Extra"] for row in rows if row["Extra"] != "No tables used"]
        assert set(extras) <= {"Select tables optimized away", "No matching min/max row"}, rows
