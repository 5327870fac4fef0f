from tickwork._stores._sql.statement import Statement
from tickwork._stores._sql.store import drive


def add_up():
    """Asks for two numbers, in two statements."""
    first = yield Statement("first", ("SELECT 1",), {})
    second = yield Statement("second", ("SELECT 2",), {})
    return first[0][0] + second[0][0]


class Recorder:
    """A connection that remembers its statements."""

    def __init__(self):
        self.story = []

    def execute(self, statement):
        self.story.append(statement.name)
        return [(len(self.story),)]


def test_an_operation_gets_the_rows_of_each_of_its_statements():
    connection = Recorder()

    assert drive(add_up(), connection) == 3
    assert connection.story == ["first", "second"]
