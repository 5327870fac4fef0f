"""Every query on the path of a run uses its index, on a table with rows of every kind."""

import json
import re
import sqlite3

import pytest

from contract.builders import HOUR, NOON, a_run
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql.filters import filter_runs
from tickwork._stores._sql.rows import micros
from tickwork._stores.contract import LimitRow, RunFilter
from tickwork._stores.sqlite.store import SqliteStore

IDS = json.dumps(["019cb0d2-0000-7000-8000-000000000001"])
NOW = micros(NOON)
WANTED = {"queues": None, "jobs": None, "is_ahead": 0, "now": NOW, "limit": 50}

# name: (values, what the plan must name)
PLANS = {
    "stage_runs": ({"now": NOW, "limit": 50}, ["tickwork_run_waiting"]),
    "pending_work": (
        {},
        [
            "tickwork_run_waiting",
            "tickwork_run_lease",
            "tickwork_run_blocked",
            "tickwork_run_ready",
            "tickwork_rate_next_start",
        ],
    ),
    "next_due": ({}, ["tickwork_run_waiting", "tickwork_rate_next_start"]),
    "pick_ready": ({**WANTED, "head_size": 200}, ["tickwork_run_ready"]),
    "count_head": ({"head_size": 200}, ["INDEX tickwork_run_"]),
    "ready_pairs": ({}, ["tickwork_run_pairs"]),
    "pick_by_pairs": ({**WANTED, "pairs": '[["q","j"]]'}, ["tickwork_run_pairs"]),
    "take_runs": (
        {"ids": IDS, "tag": "t", "worker": "w", "lease_until": NOW, "started_at": None},
        ["SEARCH tickwork_run USING PRIMARY KEY"],
    ),
    "due_runs": (WANTED, ["tickwork_run_ready"]),
    "lock_claimable": ({**WANTED, "id": "i"}, ["SEARCH tickwork_run USING PRIMARY KEY"]),
    "take_run": (
        {"id": "i", "tag": "t", "worker": "w", "lease_until": NOW, "started_at": NOW},
        ["SEARCH tickwork_run USING PRIMARY KEY"],
    ),
    "completed_runs": ({"ids": IDS}, ["SEARCH tickwork_history USING PRIMARY KEY"]),
    "find_claims": ({"worker": "w", "tag": "t"}, ["tickwork_run_lease"]),
    "count_slots": ({"keys": '["k"]'}, ["tickwork_slot_key"]),
    "slots_and_limits": ({"keys": '["k"]'}, ["tickwork_slot_key"]),
    "keys_blocked": ({"limit": 10, "after": ""}, ["tickwork_run_blocked"]),
    "overlap_holders": ({"keys": '["k"]'}, ["tickwork_run_overlap"]),
    "lock_waiting": ({"ids": IDS}, ["SEARCH tickwork_run USING PRIMARY KEY"]),
    "key_holders": ({"keys": '["k"]', "now": NOW}, ["SEARCH tickwork_unique USING PRIMARY KEY"]),
    "free_keys": ({"ids": IDS, "now": NOW}, ["tickwork_unique_run"]),
    "expired_runs": ({"now": NOW, "limit": 10, "lowest": 0}, ["tickwork_run_lease"]),
    "release_worker": ({"worker": "w", "now": NOW}, ["tickwork_run_lease"]),
    "held_rows": ({"ids": IDS}, ["SEARCH tickwork_run USING PRIMARY KEY"]),
    "find_finished": ({"ids": IDS}, ["SEARCH tickwork_history USING PRIMARY KEY"]),
    "runs_of_schedules": (
        {"names": '[["", "s"]]', "limit": 10},
        ["tickwork_run_schedule"],
    ),
    "skip_marks": (
        {"names": '[["", "s"]]'},
        ["tickwork_run_schedule", "tickwork_history_schedule", "(tenant=? AND name=?)"],
    ),
    "firings_between": (
        {"spans": '[["", "s", 1, 9, "a"]]'},
        [
            "tickwork_run_schedule (schedule=? AND tenant=? AND nominal_at>? AND nominal_at<?)",
            "tickwork_history_schedule (schedule=? AND tenant=? AND id>?)",
        ],
    ),
    "read_rates": (
        {"wanted": '[["job/minute:x", 5, 3]]'},
        ["SEARCH rate USING PRIMARY KEY", "SEARCH start USING PRIMARY KEY (key=? AND number>?"],
    ),
    "due_turns": ({"now": NOW, "limit": 10}, ["tickwork_rate_next_start"]),
    "keys_waiting": ({"keys": '["k"]'}, ["tickwork_run_"]),
    "read_turns": ({"keys": '["k"]'}, ["SEARCH tickwork_rate"]),
    "queue_position": ({"id": "i", "cap": 10}, ["tickwork_run_blocked (blocked_on=?"]),
    "idle_rates": ({"before": NOW, "limit": 10}, ["tickwork_rate_idle"]),
    "delete_rates": ({"before": NOW, "keys": '["k"]'}, ["SEARCH tickwork_start"]),
    "due_schedules": (
        {"now": NOW, "jobs": None, "seen_after": NOW, "limit": 10, "head_size": 40},
        ["tickwork_schedule_due"],
    ),
    "count_due": ({"now": NOW, "head_size": 40}, ["INDEX tickwork_schedule_"]),
    "due_by_job": (
        {"now": NOW, "jobs": '["j"]', "seen_after": NOW, "limit": 10},
        ["tickwork_schedule_job_due (job=? AND next_due_at<?"],
    ),
    "next_firing": ({"seen_after": NOW}, ["tickwork_schedule_due"]),
    "next_firing_of": (
        {"jobs": '["j"]', "seen_after": NOW},
        ["tickwork_schedule_job_due (job=? AND next_due_at>?"],
    ),
    "scheduled_jobs": ({}, ["SEARCH tickwork_schedule USING COVERING INDEX"]),
    "get_schedules": ({"names": '[["", "s"]]'}, ["(tenant=? AND name=?)"]),
    "count_logs": (
        {"ids": IDS},
        ["tickwork_run USING PRIMARY", "tickwork_history USING PRIMARY", "tickwork_log USING"],
    ),
    "list_audit": ({"before": None, "limit": 10}, ["tickwork_audit"]),
    "list_audit_of": (
        {"subject": "a", "action": None, "before": None, "limit": 10},
        ["tickwork_audit_subject"],
    ),
    "list_audit_by": ({"action": "a", "before": None, "limit": 10}, ["tickwork_audit_action"]),
    "open_alerts": ({"limit": 10}, ["tickwork_alert"]),
    "ended_alerts": (
        {"since": 0, "before": NOW, "before_id": "a", "limit": 10},
        ["tickwork_alert_ended"],
    ),
    "prune_alerts": ({"before": NOW, "limit": 10}, ["tickwork_alert_ended"]),
    "prune_requests": ({"before": NOW, "limit": 10}, ["tickwork_request_until"]),
    "prune_keys": ({"before": NOW, "limit": 10}, ["tickwork_unique_until"]),
    "list_ended": (
        {"after": NOW, "after_id": "i", "before": NOW, "limit": 10},
        ["tickwork_history_ended (ended_at>? AND ended_at<?)"],
    ),
    "lock_ended": ({"ids": IDS}, ["tickwork_history USING PRIMARY KEY"]),
    "clear_results": ({"ids": IDS, "reason": ""}, ["tickwork_history USING PRIMARY KEY"]),
    "old_runs": ({"before": NOW, "limit": 10}, ["tickwork_history_ended"]),
    "get_runs": ({"ids": IDS}, ["tickwork_run USING PRIMARY", "tickwork_history USING PRIMARY"]),
    "find_run_ids": (
        {"prefix": "019c", "limit": 5},
        [
            "tickwork_run USING PRIMARY KEY (id>? AND id<?)",
            "tickwork_history USING PRIMARY KEY (id>? AND id<?)",
        ],
    ),
    "queue_phases": ({"limit": 9}, ["tickwork_run_pairs", "tickwork_run_hidden"]),
    "count_phases": (
        {"cap": 100, "pairs": '[["q", "ready"]]'},
        ["tickwork_run_pairs (queue=?", "tickwork_run_hidden (queue=? AND phase=?"],
    ),
    "count_running": ({"cap": 100}, ["tickwork_run_lease"]),
    "slot_holders": ({"key": "k", "limit": 10}, ["tickwork_slot_key"]),
    "finish_plain": ({}, ["SEARCH run USING PRIMARY KEY"]),
    "drop_finished": ({"ids": IDS}, ["SEARCH tickwork_run USING PRIMARY KEY"]),
}
# Batches: run once for each row, so one row's plan is the plan.
BATCHES = {
    "finish_runs": ["SEARCH tickwork_run USING PRIMARY KEY"],
    "return_runs": ["SEARCH tickwork_run USING PRIMARY KEY"],
    "extend_leases": ["SEARCH tickwork_run USING PRIMARY KEY"],
    "insert_attempts": ["SEARCH tickwork_run USING PRIMARY KEY"],
    "unblock": ["tickwork_run_blocked"],
    "unblock_expired": ["tickwork_run_expiring"],
    "forget_starts": ["SEARCH tickwork_start USING PRIMARY KEY"],
    "move_schedules": ["SEARCH tickwork_schedule USING PRIMARY KEY"],
    "delete_slots": ["SEARCH tickwork_slot USING PRIMARY KEY"],
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    store = SqliteStore(tmp_path_factory.mktemp("plans") / "jobs.db", synchronous="NORMAL")
    store.install()
    ready = [a_run(job=f"j{n % 5}", queue=f"q{n % 3}") for n in range(2_000)]
    future = [a_run(due_at=NOON + HOUR) for _ in range(2_000)]
    blocked = [a_run(limit_keys=("job:x",), priority=1) for _ in range(200)]
    store.add_runs([*ready, *future, *blocked])
    store.set_limits({"job:x": 1})
    assert store.list_limits() == [LimitRow("job:x", 1)]
    with sqlite3.connect(store.path) as connection:
        yield store, connection
    connection.close()
    store.close()


def plan_of(connection, text, values):
    text = text.replace(":rows", "('id', 1, NULL, 1, NULL)")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    return "\n".join(row[3] for row in rows)


@pytest.mark.parametrize("name", PLANS)
def test_a_query_uses_its_index(filled, name):
    store, connection = filled
    values, wanted = PLANS[name]

    plan = plan_of(connection, store.query(name).parts[0], values)

    for words in wanted:
        assert words in plan
    assert "SCAN tickwork_run\n" not in plan + "\n"


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_uses_its_index(filled, name):
    store, connection = filled

    for part in store.query(name).parts:
        text, places = re.subn(r"\?\d*", "?", part)
        plan = plan_of(connection, text, [None] * places)
        assert any(words in plan for words in BATCHES[name]), plan


@pytest.mark.parametrize(
    "name", ["pick_ready", "due_runs", "due_schedules", "expired_runs", "due_turns"]
)
def test_the_order_is_served_by_the_index(filled, name):
    store, connection = filled
    values, _ = PLANS[name]

    plan = plan_of(connection, store.query(name).parts[0], values)

    assert "USE TEMP B-TREE FOR ORDER BY" not in plan


@pytest.mark.parametrize(
    ("table", "where", "words"),
    [
        ("list_live", RunFilter(statuses=frozenset({RunStatus.RUNNING})), "tickwork_run_lease"),
        ("list_history", RunFilter(job="j1"), "tickwork_history_job (job=?)"),
    ],
)
def test_lists_that_people_ask_for_use_an_index(filled, table, where, words):
    store, connection = filled
    statement = filter_runs(store.query, table, where, cursor=None, limit=20)

    assert words in plan_of(connection, statement.parts[0], statement.params)
