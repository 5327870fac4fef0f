from typing import Any

import pytest

from tickwork.stores.memory.tables import Table, Tables


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
        table: Table[str, str] = Table()

        for word in ("clear", "popitem", "setdefault", "update"):
            with pytest.raises(TypeError):
                getattr(table, word)()

    def test_a_row_that_is_not_there_cannot_be_taken_out(self):
        table: Table[str, str] = Table()

        assert table.pop("missing", "default") == "default"
        with pytest.raises(KeyError):
            table.pop("missing")
        with pytest.raises(KeyError):
            del table["missing"]
        assert table.journal == []
