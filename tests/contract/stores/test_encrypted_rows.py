"""A store with a cipher: no table has a payload in plain text, after everything that runs do."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from contract.stores.conftest import ON_DISK, STORES, Base64
from servers import mariadb
from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import Failed, Succeeded
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._domain.tick import Skip, TickPlan
from tickwork._stores._sql.table_check import table_columns
from tickwork._stores.cipher import Cipher
from tickwork._stores.contract import RunFilter
from tickwork_conformance.builders import (
    MINUTE,
    NOON,
    a_run,
    a_schedule,
    added,
    an_id,
    settled,
    the_run,
    tick,
)

CLEAR = "plain-4711"
PAYLOAD = json.dumps({"card": CLEAR})


CIPHER = Cipher([Base64()])


@pytest.fixture(params=ON_DISK)
def plain(request, clock) -> Iterator[Any]:
    with STORES[request.param](request, clock) as opened:
        yield opened


@pytest.fixture
def store(plain):
    return plain.with_cipher(CIPHER)


def connect(store: Any) -> Any:
    if store.url.startswith("sqlite"):
        return closing(sqlite3.connect(store.path))
    if store.url.startswith("postgresql"):
        return psycopg.connect(store.url)
    return mariadb.connect(store.url)


def stored(store: Any) -> dict[str, str]:
    """All rows of all tables, as the database returns them."""
    with connect(store) as connection:
        found = {}
        for table in table_columns(store.query):
            cursor = connection.cursor()
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = repr(cursor.fetchall())
        return found


class TestEncryptedRows:
    """A store with a cipher writes no payload in plain text, and reads what it wrote."""

    @pytest.fixture(autouse=True)
    def no_table_has_it_in_plain_text(self, store):
        yield
        rows = stored(store)
        assert [table for table, text in rows.items() if CLEAR in text] == []
        assert any("$encrypted" in text for text in rows.values())

    def test_a_run_in_all_its_attempts(self, store, clock, worker):
        run = a_run(args=PAYLOAD, attempts_max=3)
        later = a_run(args=PAYLOAD, due_at=NOON + MINUTE)
        store.add_runs([run, later])
        [claim] = worker.claim()
        assert claim.args == PAYLOAD
        assert store.save_progress(claim, progress=PAYLOAD, checkpoint=PAYLOAD)
        assert store.find_claims(worker=worker.id, tag=worker.tag)[0].checkpoint == PAYLOAD
        step = Step("charge", 0, StepKind.STEP, StepState.DONE, claim.token, NOON, value=PAYLOAD)
        assert store.save_steps(claim, [step])
        assert store.load_steps(claim.run_id) == [step]
        assert store.run_record(claim.run_id).steps == [step]
        assert CLEAR not in "".join(stored(store).values())

        worker.record(claim, Failed("again"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        again, second = sorted(worker.claim(), key=lambda each: each.attempts_max, reverse=True)
        ended = settled(again, Succeeded(PAYLOAD), now=clock.now())
        assert store.record([ended._replace(follow_ups=(a_run(args=PAYLOAD),))]) == []
        worker.record(second, Succeeded(PAYLOAD))

        found = the_run(store, run.id)
        assert [found.args, found.result, found.progress, found.checkpoint] == [PAYLOAD] * 4
        assert the_run(store, later.id).result == PAYLOAD
        listed = store.list_runs(RunFilter())
        assert {each.args for each in listed.runs} == {PAYLOAD}
        summaries = store.list_summaries(RunFilter())
        assert {each.args for each in summaries.runs} == {PAYLOAD}
        assert store.run_record(run.id).run.result == PAYLOAD

    def test_a_run_in_the_callers_transaction(self, store, worker):
        with connect(store) as connection:
            run = a_run(args=PAYLOAD)
            store.using(connection).add_runs([run])
            connection.commit()
            [claim] = worker.claim()
            assert store.using(connection).complete(claim, now=NOON, result=PAYLOAD)
            connection.commit()

        assert the_run(store, run.id).result == PAYLOAD

    def test_a_run_whose_lease_expires(self, store, clock, worker):
        store.add_runs([a_run(args=PAYLOAD)])
        worker.claim()
        clock.advance(minutes=5)

        [step] = worker.reap()

        assert step.claim.args == PAYLOAD

    def test_a_schedule(self, store, clock):
        row = added(store, args=PAYLOAD)
        assert row.spec.args == PAYLOAD
        spec = a_schedule(args=PAYLOAD, queue="mails")
        changed = store.change_schedule(row, spec, now=NOON, next_due_at=NOON)
        assert changed == replace(row, spec=spec, revision=row.revision + 1)

        [run] = tick(store, clock).runs

        assert run.args == PAYLOAD
        assert store.list_schedules()[0].spec.args == PAYLOAD

    def test_a_firing_that_is_skipped(self, store, clock):
        added(store, args=PAYLOAD)

        def plan(rows, taken):
            skip = Skip(RunId(an_id()), rows[0], NOON, NOON, 1, "closed")
            return TickPlan([], [skip], [], [], [])

        store.fire(now=NOON, limit=1, jobs=None, keys_of=lambda rows: [], plan=plan)

        [run] = store.list_runs(RunFilter()).runs
        assert run.args == PAYLOAD


def test_rows_in_plain_text_are_read(plain, store, worker):
    plain.add_runs([a_run(args=PAYLOAD)])

    [claim] = worker.claim()

    assert claim.args == PAYLOAD
