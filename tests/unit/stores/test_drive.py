import asyncio
from contextlib import asynccontextmanager, contextmanager

import pytest

from tickwork.stores._sql.drive import drive, drive_async, drive_within
from tickwork.stores._sql.statement import Statement


def add_up():
    """Asks for two numbers, in two statements."""
    first = yield Statement("first", ("SELECT 1",), {})
    second = yield Statement("second", ("SELECT 2",), {})
    return first[0][0] + second[0][0]


class Recorder:
    """A connection that writes down what it is asked for."""

    def __init__(self, *, fails_at="none"):
        self.story = []
        self._fails_at = fails_at

    @contextmanager
    def transaction(self):
        self.story.append("begin")
        try:
            yield
        except ValueError:
            self.story.append("roll back")
            raise
        self.story.append("commit")

    def execute(self, statement):
        self.story.append(statement.name)
        if statement.name == self._fails_at:
            raise ValueError
        return [(len(self.story),)]


class AsyncRecorder:
    def __init__(self, *, fails_at="none"):
        self._plain = Recorder(fails_at=fails_at)
        self.story = self._plain.story

    @asynccontextmanager
    async def transaction(self):
        with self._plain.transaction():
            yield

    async def execute(self, statement):
        return self._plain.execute(statement)


class TestDriving:
    """An operation is one transaction, whatever the colour of its connection."""

    def test_plain(self):
        connection = Recorder()

        assert drive(add_up(), connection) == 5
        assert connection.story == ["begin", "first", "second", "commit"]

    def test_async(self):
        connection = AsyncRecorder()

        assert asyncio.run(drive_async(add_up(), connection)) == 5
        assert connection.story == ["begin", "first", "second", "commit"]

    def test_inside_a_transaction_that_somebody_else_ends(self):
        connection = Recorder()

        assert drive_within(add_up(), connection) == 3
        assert connection.story == ["first", "second"]

    def test_a_failure_undoes_it(self):
        connection = Recorder(fails_at="second")

        with pytest.raises(ValueError):
            drive(add_up(), connection)
        assert connection.story == ["begin", "first", "second", "roll back"]

    def test_an_async_failure_undoes_it_too(self):
        connection = AsyncRecorder(fails_at="first")

        with pytest.raises(ValueError):
            asyncio.run(drive_async(add_up(), connection))
        assert connection.story == ["begin", "first", "roll back"]
