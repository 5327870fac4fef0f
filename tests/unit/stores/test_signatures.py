import inspect

import pytest

from tickwork._stores._sql.store import SqlStore
from tickwork._stores.contract import Store
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.store import SqliteStore

METHODS = [
    name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")
]


def parameters(kind: type, name: str) -> list[tuple[str, object, object]]:
    _, *found = inspect.signature(getattr(kind, name)).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


@pytest.mark.parametrize("kind", [SqliteStore, PostgresStore, MysqlStore])
def test_a_store_takes_what_the_contract_says(kind):
    """Also by default: type checkers do not compare defaults."""
    assert issubclass(kind, SqlStore)
    assert {name: parameters(kind, name) for name in METHODS} == {
        name: parameters(Store, name) for name in METHODS
    }
