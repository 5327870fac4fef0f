from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._domain.status import Phase, RunStatus
from tickwork.stores.memory.rows import replace_fields
from tickwork.stores.memory.tables import MemoryTable, Tables
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
        table: MemoryTable[str, str] = MemoryTable()

        for word in ("clear", "popitem", "setdefault", "update"):
            with pytest.raises(TypeError):
                getattr(table, word)()

    def test_a_row_that_is_not_there_cannot_be_taken_out(self):
        table: MemoryTable[str, str] = MemoryTable()

        assert table.pop("missing", "default") == "default"
        with pytest.raises(KeyError):
            table.pop("missing")
        with pytest.raises(KeyError):
            del table["missing"]
        assert table.journal == []


class TestLastFirings:
    """What stands for a schedule's last instant is found without a look at everything."""

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

    def before(self, tables, minute):
        found = tables.last_firings("", "hourly", before=NOON + minute * MINUTE)
        return [run.id for run in found]

    def test_the_last_one_before_an_instant_counts(self):
        tables = Tables()
        for minute in (3, 1, 2):
            self.fired(tables, minute)

        assert self.before(tables, 3) == ["a2"]
        assert self.before(tables, 9) == ["a3"]
        assert self.before(tables, 1) == []

    def test_what_has_gone_does_not_count(self):
        tables = Tables()
        self.fired(tables, 1)
        del tables.runs[self.fired(tables, 2).id]

        assert self.before(tables, 9) == ["a1"]

    def test_what_was_rolled_back_does_not_count(self):
        tables = Tables()
        self.fired(tables, 1)
        tables.journal.clear()
        self.fired(tables, 2)
        tables.roll_back()

        assert self.before(tables, 9) == ["a1"]

    def test_a_row_that_stands_for_a_later_instant_by_now_counts_there(self):
        tables = Tables()
        run = self.fired(tables, 1)
        tables.runs[run.id] = merged = replace_fields(run, last_nominal_at=NOON + 5 * MINUTE)
        tables.note_firing(merged)

        assert self.before(tables, 3) == []
        assert self.before(tables, 6) == ["a1"]

    def test_two_may_stand_for_one_instant(self):
        tables = Tables()
        self.fired(tables, 1)
        self.fired(tables, 1, name="b")

        assert sorted(self.before(tables, 2)) == ["a1", "b1"]
