"""The SQL of PostgreSQL beside that of SQLite: the same names, used the same way."""

import re

import pytest

from tickwork._stores._sql.queries import Queries
from tickwork._stores.postgres import connection
from tickwork._stores.postgres.store import PostgresStore
from tickwork.errors import DriverMissing

POSTGRES = Queries("tickwork._stores.postgres")
SQLITE = Queries("tickwork._stores.sqlite")
OWN = POSTGRES.names - SQLITE.names
PLACES = re.compile(r"\?(\d*)|step\.column(\d+)")


def places_of(part: str) -> set[int]:
    """Which values of a row this one takes, counted from 1."""
    if ":rows" in part:
        return {int(place) for _, place in PLACES.findall(part) if place}
    places = [number for number, place in PLACES.findall(part) if not place]
    return {int(number or place) for place, number in enumerate(places, 1)}


BATCHES = sorted(
    name
    for name in SQLITE.names
    if any("?" in part or ":rows" in part for part in SQLITE(name).parts)
)
OUR_BATCHES = [name for name in BATCHES if name in POSTGRES.names]
COLUMNS = re.compile(r":[cev](\d+)\b")


class TestNames:
    """``tests/architecture/test_queries.py`` compares the names of all dialects."""

    def test_queries_name_only_existing_columns(self):
        assert POSTGRES.names >= connection._PREPARED

    @pytest.mark.parametrize("name", OUR_BATCHES)
    def test_they_take_the_same_values(self, name):
        wanted = max(place for part in SQLITE(name).parts for place in places_of(part))
        ours = {int(place) for part in POSTGRES(name).parts for place in COLUMNS.findall(part)}

        # A parameter there may be another column here.
        assert ours <= set(range(1, wanted + 1))
        assert max(ours) >= wanted - 1

    def test_every_batch_says_so(self):
        ours = {
            name
            for name in POSTGRES.names
            if any(re.search(":[ce]1", p) for p in POSTGRES(name).parts)
        }

        assert sorted(ours - OWN) == OUR_BATCHES


class TestDriver:
    def test_without_it_the_error_says_what_to_install(self, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "psycopg", None)
        for name in ("connection", "pool"):
            monkeypatch.delitem(sys.modules, f"tickwork._stores.postgres.{name}", raising=False)
            monkeypatch.delattr(f"tickwork._stores.postgres.{name}", raising=False)

        with pytest.raises(DriverMissing, match=r"pip install '\.\[postgres\]'"):
            PostgresStore("postgresql://host/db")
