"""The SQL of MariaDB and MySQL beside that of SQLite: the same names, used the same way."""

import re
import sys

import pytest

from tickwork._stores import open_store
from tickwork._stores._sql.migrate import migrations
from tickwork._stores._sql.queries import Queries
from tickwork._stores.mysql.store import MysqlStore
from tickwork.errors import DriverMissing
from unit.stores.postgres.test_dialect import BATCHES, SQLITE, places_of

MYSQL = Queries("tickwork._stores.mysql")
PACKAGE = "tickwork._stores.mysql"
PLACES = re.compile(r"\?(\d+)|'\$\[(\d+)\]'|:v(\d+)\b")
NAMES = re.compile(r"(?<![:\w]):([a-z][a-z_]*)")
OF_BATCHES = ("rows", "sorted_rows")


def values_of(part: str) -> set[int]:
    """Which values of a row this one takes, counted from 1."""
    return {
        int(first or third) if first or third else int(second) + 1
        for first, second, third in PLACES.findall(part)
    }


READERS = {
    "count_phases", "due_by_job", "first_of_pairs", "history_outcomes", "live_outcomes",
    "pick_by_pairs",
}  # fmt: skip
"""Queries with lists of values that write nothing."""


class TestNames:
    """The same values have the same effect."""

    @pytest.mark.parametrize("name", BATCHES)
    def test_batches_take_the_same_values(self, name):
        wanted = max(place for part in SQLITE(name).parts for place in places_of(part))
        ours = set().union(*(values_of(part) for part in MYSQL(name).parts))

        # A parameter there may be another column here.
        assert ours <= set(range(1, wanted + 1))
        assert max(ours) >= wanted - 1

    def test_every_batch_says_so(self):
        ours = {
            name
            for name in MYSQL.names
            for part in MYSQL(name).parts
            if "?1" in part or any(f":{word}," in part for word in OF_BATCHES)
        }

        assert sorted(ours - READERS) == BATCHES

    @pytest.mark.parametrize("name", sorted((MYSQL.names & SQLITE.names) - set(BATCHES)))
    def test_others_take_the_same_names(self, name):
        theirs = {word for part in SQLITE(name).parts for word in NAMES.findall(part)}
        ours = {
            re.sub(r"^(no|json)_", "", word)
            for part in MYSQL(name).parts
            for word in NAMES.findall(part)
            if not word.startswith("found")
        }
        ours |= {"jobs"} if name == "due_by_job" else set()
        ours |= {"pairs"} if name == "pick_by_pairs" else set()

        assert ours <= theirs or name == "lock_gates", (ours, theirs)


class TestTables:
    """The options of the tables."""

    @pytest.fixture
    def script(self) -> str:
        return "\n".join(text for step in migrations(PACKAGE) for text in step.statements)

    def test_every_text_compares_byte_by_byte(self, script):
        """By whatever name each of the two servers knows that."""
        tables = re.findall(
            r"CREATE TABLE (\w+) \((.*?)\n\)([^;]*?)(?=\nCREATE|\Z)", script, re.DOTALL
        )
        assert len(tables) > 10
        for name, columns, options in tables:
            if re.search(r"VARCHAR|TEXT", columns):
                assert "/*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */" in options, name


class TestOpening:
    @pytest.mark.parametrize(
        "url", ["mysql://host/db", "mariadb://host/db", "mysql+pymysql://host/db"]
    )
    def test_by_each_of_its_names(self, url):
        assert isinstance(open_store(url), MysqlStore)

    def test_without_the_driver_the_error_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pymysql", None)
        monkeypatch.delitem(sys.modules, f"{PACKAGE}.connection", raising=False)
        monkeypatch.delattr(f"{PACKAGE}.connection", raising=False)

        with pytest.raises(DriverMissing, match=r"pip install '\.\[mysql\]'"):
            MysqlStore("mysql://host/db")
