"""Every statement that ends or extends a claim looks at its token itself.

Operations compare tokens before, under the lock of the rows. Should one of them forget to, the
statement changes nothing all the same.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from contract.builders import HOUR, NOON, a_run, add, settled
from contract.stores.conftest import ON_DISK, STORES
from tickwork._domain.runs.outcome import Failed
from tickwork._domain.runs.run import Claim
from tickwork._stores._sql import rows
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros
from tickwork._stores._sql.statement import Operation
from tickwork._stores._sql.store import SqlStore
from tickwork.testing import ManualClock


@pytest.fixture(params=ON_DISK)
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[SqlStore]:
    with STORES[request.param](request, clock) as opened:
        assert isinstance(opened, SqlStore)
        yield opened


def values_of(name: str, claim: Claim) -> dict[str, Any]:
    """What an operation would hand over for this claim."""
    match name:
        case "finish_plain":
            return {"many": rows.PLAIN_MAPPERS.plain_rows([settled(claim)])}
        case "finish_runs":
            return {"many": [rows.PLAIN_MAPPERS.finished_row(settled(claim))]}
        case "return_runs":
            return {"many": [rows.returned_row(settled(claim, Failed("no")))]}
        case "insert_attempts":
            return {"many": [rows.attempt_row(settled(claim, Failed("no")))]}
        case "extend_leases":
            return {"many": [(micros(NOON + HOUR), micros(NOON), claim.run_id, claim.token)]}
        case _:
            values = {"progress": "half", "checkpoint": "7"}
            return {"id": claim.run_id, "token": claim.token, **values}


GUARDED = (
    "extend_leases",
    "finish_plain",
    "finish_runs",
    "insert_attempts",
    "return_runs",
    "save_progress",
)


@pytest.mark.parametrize("name", GUARDED)
class TestGuards:
    """Under a token that was taken over nothing is written; under its own it is."""

    def run(self, store: SqlStore, name: str, claim: Claim) -> None:
        def operation(query: Queries) -> Operation[None]:
            yield query(name, **values_of(name, claim))

        store._write(operation)

    def test_of_one_who_lost_it(self, store, clock, worker, other_worker, name):
        add(store, run := a_run(attempts_max=3))
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.claim_one()
        before = store.run_record(run.id)

        self.run(store, name, stale)

        assert store.run_record(run.id) == before
        assert len(store.get_runs([run.id])) == 1  # in one table, not in both

    def test_of_one_who_holds_it(self, store, worker, name):
        add(store, run := a_run(attempts_max=3))
        claim = worker.claim_one()
        before = store.run_record(run.id)

        self.run(store, name, claim)

        # On SQLite a run is in history first, and dropped by another statement.
        [*found] = store.get_runs([run.id])
        assert len(found) > 1 or store.run_record(run.id) != before
