from contextlib import contextmanager

import pytest

from tickwork.stores._sql.drive import drive, drive_within
from tickwork.stores._sql.statement import Statement


def add_up():
    """Asks for two numbers, in two statements."""
    first = yield Statement("first", ("SELECT 1",), {})
    second = yield Statement("second", ("SELECT 2",), {})
    return first[0][0] + second[0][0]


class Recorder:
    """A connection that remembers its statements."""

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


class TestDriving:
    """An operation is one transaction."""

    def test_it_commits_after_the_last_statement(self):
        connection = Recorder()

        assert drive(add_up(), connection) == 5
        assert connection.story == ["begin", "first", "second", "commit"]

    def test_inside_a_transaction_that_the_caller_ends(self):
        connection = Recorder()

        assert drive_within(add_up(), connection) == 3
        assert connection.story == ["first", "second"]

    def test_a_failure_undoes_it(self):
        connection = Recorder(fails_at="second")

        with pytest.raises(ValueError):
            drive(add_up(), connection)
        assert connection.story == ["begin", "first", "second", "roll back"]
