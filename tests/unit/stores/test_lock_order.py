"""Rows of runs are always locked by id, so that there are no deadlocks."""

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import SUCCEEDED, Failed, Outcome
from tickwork._domain.runs.retry import NO_RETRY
from tickwork._domain.runs.transitions import Transition, settle
from tickwork._stores._sql.operations.record import record
from tickwork._stores._sql.queries import Queries
from unit.builders import NOON, a_claim

QUERIES = Queries("tickwork._stores.sqlite")


def a_step(run_id: str, outcome: Outcome = SUCCEEDED, *, schedule: str | None = None) -> Transition:
    claim = a_claim(run_id=RunId(run_id), schedule=schedule)
    return settle(claim, outcome, now=NOON, retry=NO_RETRY, random=0.5)


def test_what_was_fired_is_locked_with_what_needs_it():
    steps = [
        a_step("3", schedule="digest"),
        a_step("2"),
        a_step("1", Failed("no"), schedule="digest"),
    ]

    first = next(record(QUERIES, steps))

    assert (first.name, first.params["ids"]) == ("lock_running", ["1", "3"])


def test_where_all_succeeded_their_end_locks_them():
    first = next(record(QUERIES, [a_step("2", schedule="digest"), a_step("1")]))

    assert first.name == "finish_plain"
