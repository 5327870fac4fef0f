from dataclasses import replace
from typing import Any

import pytest

from oracle.store.tables import OracleTable, Tables
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from unit.builders import MINUTE, NOON


def holding(**rows: str) -> Any:
    tables: Any = Tables()
    for key, row in rows.items():
        tables.claim_tags[key] = row
    tables.journal.clear()
    return tables


class TestTransactions:
    """When an error leaves a transaction, nothing in it has happened."""

    def test_every_kind_of_change_is_undone(self):
        tables = holding(changed="old", deleted="kept", popped="kept")

        tables.claim_tags["new"] = "row"
        tables.claim_tags["changed"] = "new"
        del tables.claim_tags["deleted"]
        tables.claim_tags.pop("popped")
        tables.roll_back()

        assert tables.claim_tags == {"changed": "old", "deleted": "kept", "popped": "kept"}

    def test_changes_of_one_row_are_undone_back_to_the_first(self):
        tables = holding(row="first")

        tables.claim_tags["row"] = "second"
        del tables.claim_tags["row"]
        tables.claim_tags["row"] = "third"
        tables.roll_back()

        assert tables.claim_tags == {"row": "first"}

    def test_tables_are_undone_together(self):
        tables = holding()

        tables.claim_tags["one"] = "row"
        tables.slots["other"] = frozenset({"key"})
        tables.roll_back()

        assert not tables.claim_tags
        assert not tables.slots

    def test_nothing_can_be_changed_without_a_note(self):
        table: OracleTable[str, str] = OracleTable()

        for word in ("clear", "popitem", "setdefault", "update"):
            with pytest.raises(TypeError):
                getattr(table, word)()

    def test_a_row_that_is_not_there_cannot_be_taken_out(self):
        table: OracleTable[str, str] = OracleTable()

        assert table.pop("missing", "default") == "default"
        with pytest.raises(KeyError):
            table.pop("missing")
        with pytest.raises(KeyError):
            del table["missing"]
        assert table.journal == []


class TestFiringsBetween:
    """The runs of a schedule between two skips are found by their instants."""

    def fired(self, tables, minute, *, name="a", **given):
        run = Run(
            id=RunId(f"{name}{minute}"),
            job="send_email",
            status=RunStatus.PENDING,
            phase=Phase.READY,
            created_at=NOON,
            due_at=NOON,
            schedule="hourly",
            nominal_at=NOON + minute * MINUTE,
            **given,
        )
        tables.runs[run.id] = run
        tables.note_firing(run)
        return run

    def found(self, tables, first, last):
        instants = tables.firings_between(
            ("", "hourly"),
            since=NOON + first * MINUTE,
            since_id=RunId(f"a{first}"),
            before=NOON + last * MINUTE,
        )
        return [(instant - NOON) // MINUTE for instant in instants]

    def test_those_in_a_time(self):
        tables = Tables()
        for minute in (3, 1, 2, 4):
            self.fired(tables, minute)

        assert self.found(tables, 1, 4) == [2, 3]
        assert self.found(tables, 5, 9) == []

    @pytest.mark.parametrize(
        ("status", "found"), [(RunStatus.CANCELED, [1, 2]), (RunStatus.SKIPPED, [1])]
    )
    def test_a_finished_run_is_left_out_if_it_was_skipped(self, status, found):
        tables = Tables()
        self.fired(tables, 1)
        run = tables.runs.pop(self.fired(tables, 2).id)
        tables.history[run.id] = replace(run, status=status, phase=None, ended_at=NOON)

        assert self.found(tables, 0, 9) == found

    def test_a_deleted_run_is_left_out(self):
        tables = Tables()
        self.fired(tables, 1)
        del tables.runs[self.fired(tables, 2).id]

        assert self.found(tables, 0, 9) == [1]

    def test_a_run_that_was_rolled_back_is_left_out(self):
        tables = Tables()
        self.fired(tables, 1)
        tables.journal.clear()
        self.fired(tables, 2)
        tables.roll_back()

        assert self.found(tables, 0, 9) == [1]
