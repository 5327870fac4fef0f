import sqlite3
from contextlib import closing

import pytest

from tickwork._stores.sqlite.connection import find_rejection
from tickwork.errors import ValueRejected


def test_a_value_of_another_type_than_its_column_concerns_its_row():
    # Python 3.11 has no name for this error.
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE names (name TEXT) STRICT")
        with pytest.raises(sqlite3.IntegrityError) as caught:
            connection.execute("INSERT INTO names VALUES (?)", (b"\xff",))

    assert isinstance(find_rejection(caught.value), ValueRejected)
