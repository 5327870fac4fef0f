import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Rows, Statement, StatementResult
from tickwork._stores.mysql.bulk_insert import BULK_MIN
from tickwork._stores.mysql.connection import _packets, settings_of
from tickwork._stores.mysql.literals import listed, literal
from tickwork._stores.mysql.statement_runner import run_statement
from tickwork._stores.mysql.values import encoded, template

QUERIES = Queries("tickwork._stores.mysql")


def parsed(text: str) -> str:
    """A text literal as the server reads it."""
    assert text[0] + text[-1] == "''", text
    found, rest = "", text[1:-1]
    while rest:
        assert rest[0] != "'" or rest[1] == "'", text
        rest = rest[rest[0] in "\\'" :]
        found, rest = found + rest[0], rest[1:]
    return found


def filled(text: str, found: Rows = (), /, *, many: Rows | None = None, **params: object) -> str:
    return template(text).filled(Statement("name", (text,), params, many), found)


class TestLiterals:
    """A value is written so that it can be nothing else."""

    @given(st.text())
    def test_texts(self, text):
        assert parsed(literal(text)) == text

    @given(st.text(alphabet="\\'\"%:?[]{}a;-"))
    def test_texts_that_look_like_something_else(self, text):
        assert parsed(literal(text)) == text
        assert parsed(filled("VALUES [[(?1)]]", many=[(text,)])[8:-1]) == text
        assert parsed(filled(":text", text=text)) == text

    @given(st.lists(st.tuples(st.text(), st.none() | st.integers())))
    def test_rows(self, rows):
        assert json.loads(parsed(filled(":rows", many=rows))) == [list(row) for row in rows]

    def test_nothing_is_equal_to_nothing(self):
        assert filled("id IN (:ids)", ids=[]) == "id IN (NULL)"

    def test_anything_else_is_refused(self):
        for value in (1.5, b"bytes", True, object()):
            with pytest.raises(AssertionError):
                literal(value)

    def test_half_a_surrogate_pair_is_replaced(self):
        assert encoded("a\ud800b€") == "a?b€".encode()


class TestTemplates:
    """What stands in a query is filled in, and nothing else is."""

    def test_lists(self):
        assert filled("(:ids)", ids=["a", "b"]) == "('a','b')"
        assert filled("(:names)", names=[["", "a"], ["t", "b"]]) == "(('','a'),('t','b'))"
        assert listed([(1, None)]) == "(1,NULL)"

    def test_a_list_that_may_be_missing(self):
        text = "(:no_jobs OR job IN (:jobs))"

        assert filled(text, jobs=None) == "(1 OR job IN (NULL))"
        assert filled(text, jobs=["a"]) == "(0 OR job IN ('a'))"

    def test_numbers_can_be_multiplied(self):
        assert filled("LIMIT :limit*4", limit=5) == "LIMIT 20"

    def test_rows_of_a_batch(self):
        rows = [("b", 1), ("a", None)]

        assert filled("VALUES [[(?1, 'x', ?2, ?1)]]", many=rows) == (
            "VALUES ('b', 'x', 1, 'b'),('a', 'x', NULL, 'a')"
        )
        assert filled(":rows", many=rows) == """'[["b",1],["a",null]]'"""
        assert filled(":sorted_rows", many=rows) == """'[["a",null],["b",1]]'"""
        assert filled(":v2", many=rows) == "1"

    def test_many_rows_are_a_json_table_of_what_differs(self):
        text = "INSERT INTO t (status, id, job, n, note) VALUES [[('new', ?1, ?2, ?3, ?4)]]"
        rows = [(f"it's {n}", "j'b", n or None, None) for n in range(BULK_MIN)]
        found = filled(text, many=rows)

        assert found.startswith(
            "INSERT INTO t (status, id, job, n) SELECT 'new', own.id, 'j''b', own.n "
            "FROM JSON_TABLE('["
        )
        assert found.endswith(
            "]', '$[*]' COLUMNS (id LONGTEXT CHARACTER SET utf8mb4 PATH '$[0]', "
            "n BIGINT PATH '$[1]')) AS own"
        )
        document = found[found.index("TABLE(") + 6 : found.index(", '$[*]'")]
        assert json.loads(parsed(document)) == [[row[0], row[2]] for row in rows]
        assert "JSON_TABLE" not in filled(text, many=rows[1:])

    def test_rows_with_another_clause_stay_a_list(self):
        text = "INSERT INTO t (id) VALUES [[(?1)]] ON DUPLICATE KEY UPDATE id = VALUES(id)"

        assert "JSON_TABLE" not in filled(text, many=[("a",), ("b",)] * BULK_MIN)

    def test_a_part_for_each(self):
        text = "[[pairs BY UNION ALL\n(SELECT ?1, ?2 LIMIT :limit*2)]]"

        assert filled(text, pairs=[["q", "j"], ["q%s", "k"]], limit=1) == (
            "(SELECT 'q', 'j' LIMIT 2) UNION ALL (SELECT 'q%s', 'k' LIMIT 2)"
        )

    def test_what_was_found(self):
        assert filled("id IN (:found)", [("a",), ("b",)]) == "id IN ('a','b')"
        assert filled("(k, r) IN (:found)", [("a", "b")]) == "(k, r) IN (('a','b'))"

    def test_times_and_patterns_are_left_alone(self):
        text = "SELECT '00:00:00', 'waiting:%', '$[*]', x::y"

        assert filled(text) == text

    @pytest.mark.parametrize("name", sorted(QUERIES.names))
    def test_a_delete_never_scans(self, name):
        for part in QUERIES(name).parts:
            if part.startswith("DELETE FROM"):
                # By one key: of several the server makes a scan, when its statistics are old.
                assert " IN (" not in part, part
            if part.startswith("DELETE") and "STRAIGHT_JOIN" in part:
                assert re.search(r"STRAIGHT_JOIN \w+ AS \w+ FORCE INDEX \(PRIMARY\)", part), part


class FakeChannel:
    """Returns the given results, and remembers the texts."""

    def __init__(self, *answers: StatementResult, packet_max: int = 1000) -> None:
        self.packet_max = packet_max
        self.given: list[str] = []
        self.answers = list(answers)

    def send(self, text: str) -> None:
        self.given.append(text)

    def fetch(self) -> StatementResult:
        return self.answers.pop(0)


class TestRunning:
    """A statement is sent as one text, or as several."""

    def test_a_statement_without_result_is_only_sent(self):
        channel = FakeChannel()

        assert run_statement(Statement("x", ("A", "B"), {}, needs_result=False), channel) == ()
        assert channel.given == ["A", "B"]

    def test_rows_or_a_number(self):
        statement = Statement("x", ("A",), {})

        assert run_statement(statement, FakeChannel(StatementResult([("row",)], 1))) == [("row",)]
        assert run_statement(statement, FakeChannel(StatementResult(None, 7))) == [(7,)]

    def test_what_is_found_goes_into_the_next(self):
        channel = FakeChannel(StatementResult([("a",), ("b",)], 2), StatementResult(None, 2))
        statement = Statement("x", ("SELECT", "UPDATE (:found)"), {})

        assert run_statement(statement, channel) == [(2,)]
        assert channel.given == ["SELECT", "UPDATE ('a','b')"]

    @pytest.mark.parametrize(
        ("last", "answer"), [("UPDATE (:found)", [(0,)]), ("SELECT (:found)", [])]
    )
    def test_when_nothing_is_found_nothing_is_done(self, last, answer):
        channel = FakeChannel(StatementResult([], 0))

        assert run_statement(Statement("x", ("SELECT", last), {}), channel) == answer
        assert channel.given == ["SELECT"]

    def test_what_comes_after_is_done_all_the_same(self):
        channel = FakeChannel(StatementResult([], 0), StatementResult(None, 3))
        statement = Statement("x", ("SELECT", "UPDATE (:found)", "INSERT"), {})

        assert run_statement(statement, channel) == [(3,)]
        assert channel.given == ["SELECT", "INSERT"]

    def test_a_batch_that_is_too_long_goes_in_parts(self):
        channel = FakeChannel(*[StatementResult(None, 1)] * 4, packet_max=30)
        rows = [(f"{number:010}",) for number in range(4)]

        assert run_statement(Statement("x", ("INSERT [[(?1)]]",), {}, rows), channel) == [(4,)]
        assert len(channel.given) == 4

    def test_one_row_goes_as_long_as_it_is(self):
        channel = FakeChannel(StatementResult(None, 1), packet_max=5)

        assert run_statement(Statement("x", ("INSERT [[(?1)]]",), {}, [("long",)]), channel) == [
            (1,)
        ]

    def test_packets(self):
        assert list(_packets(["aaa", "bbb", "cccccccc", "d"], 6)) == ["aaa;\nbbb", "cccccccc", "d"]


class TestUrls:
    """A URL says where the database is, and how to get there."""

    def test_everything(self):
        found = settings_of("mysql://me%40x:s%3Acret@db.example.org:3307/my%20jobs?ssl_ca=/ca.pem")

        assert (found["user"], found["password"]) == ("me@x", "s:cret")
        assert (found["host"], found["port"], found["database"]) == (
            "db.example.org",
            3307,
            "my jobs",
        )
        assert found["ssl_ca"] == "/ca.pem"
        assert "ssl_disabled" not in found

    @pytest.mark.parametrize(
        ("url", "is_plain"),
        [
            ("mysql://root@localhost/jobs", True),
            ("mysql://root@127.0.0.1/jobs", True),
            ("mysql://root@[::1]/jobs", True),
            ("mysql:///jobs?unix_socket=/run/mysqld/mysqld.sock", True),
            ("mysql://root@127.0.0.1/jobs?ssl_disabled=false", False),
            ("mysql://root@db.example.org/jobs", None),
            ("mysql://root@db.example.org/jobs?ssl_disabled=true", True),
        ],
    )
    def test_what_does_not_leave_the_machine_is_not_hidden(self, url, is_plain):
        assert settings_of(url).get("ssl_disabled") is is_plain
