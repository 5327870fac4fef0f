from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Statement
from tickwork._stores.postgres.values import SHAPES_MAX, Message, array_literal, encoded, messages


def parsed(literal: str) -> list[str | None]:
    """An array literal as the server reads it."""
    assert literal[0] + literal[-1] == "{}", literal
    found: list[str | None] = []
    rest = literal[1:-1]
    while rest:
        if rest[0] == '"':
            text, rest = "", rest[1:]
            while rest[0] != '"':
                rest = rest[rest[0] == "\\" :]
                text, rest = text + rest[0], rest[1:]
            found.append(text)
            rest = rest[1:]
        else:
            word, _, _ = rest.partition(",")
            found.append(None if word.strip() == "NULL" else word.strip())
            rest = rest[len(word) :]
        assert not rest or rest[0] == ",", literal
        rest = rest[1:]
    return found


class TestArrays:
    """A list is one literal, and comes out as what went in."""

    @given(st.lists(st.text(st.characters(exclude_characters="\x00")), min_size=1))
    def test_texts(self, texts):
        assert parsed(array_literal(texts)) == texts

    @given(st.lists(st.none() | st.text(st.characters(exclude_characters="\x00")), min_size=1))
    def test_texts_with_gaps(self, texts):
        expected = [] if texts.count(None) == len(texts) else texts

        assert parsed(array_literal(texts)) == expected

    @given(st.lists(st.none() | st.integers(), min_size=1))
    def test_numbers_with_gaps(self, numbers):
        expected = [None if number is None else str(number) for number in numbers]
        if numbers.count(None) == len(numbers):
            expected = []

        assert parsed(array_literal(numbers)) == expected

    def test_nothing(self):
        assert array_literal([]) == "{}"
        # Beside a longer array it is filled up with NULL.
        assert array_literal([None, None]) == "{}"

    @pytest.mark.parametrize("texts", [["NULL", "null"], ["NULL"], ["{}", "a,b"], ["", " "]])
    def test_texts_that_look_like_something_else(self, texts):
        assert parsed(array_literal(texts)) == texts

    def test_what_no_text_can_hold(self):
        assert parsed(array_literal(["a\x00b", "c"])) == ["a\N{REPLACEMENT CHARACTER}b", "c"]
        assert encoded("a\x00b") == "a\N{REPLACEMENT CHARACTER}b".encode()
        assert encoded("\ud800") == b"?"


class TestMessages:
    """A statement becomes what is sent: numbered places, and values as text."""

    def test_a_name_that_occurs_twice_is_sent_once(self):
        statement = Statement("x", ("SELECT :a::int, :b, :a",), {"a": 1, "b": None})

        assert messages(statement) == [Message(b"SELECT $1::int, $2, $1", [b"1", None])]

    def test_casts_are_no_values(self):
        [message] = messages(Statement("x", ("SELECT 'a:b', :ids::uuid[]",), {"ids": ["u"]}))

        assert message == Message(b"SELECT 'a:b', $1::uuid[]", [b'{"u"}'])

    def test_lists_of_lists_are_documents(self):
        [message] = messages(Statement("x", ("SELECT :p::jsonb",), {"p": [["ü", 'a"b']]}))

        assert message.values == ['[["ü", "a\\"b"]]'.encode()]

    def test_each_part_has_its_own_values(self):
        found = messages(Statement("x", ("SELECT :a", "SELECT 1", "SELECT :b"), {"a": 1, "b": 2}))

        assert [message.values for message in found] == [[b"1"], None, [b"2"]]

    def test_a_batch_goes_by_columns(self):
        part = "INSERT INTO t SELECT * FROM unnest(:c1::uuid[], :c2::int[]) AS new (id, n)"
        [message] = messages(Statement("x", (part,), {}, [("u", 1), ("v", None)]))

        assert message.text == part.replace(":c1", "$1").replace(":c2", "$2").encode()
        assert message.values == [b'{"u","v"}', b"{1, NULL}"]

    def test_a_batch_of_one_needs_no_arrays(self):
        part = "SELECT * FROM unnest(:c1::uuid[], :c2::int[]) AS new (id, n) WHERE id = ANY (:c1)"
        [message] = messages(Statement("x", (part,), {}, [("u", 7)]))

        assert message == Message(
            b"SELECT * FROM (VALUES ($1::uuid, $2::int)) AS new (id, n) WHERE id = ANY ($3)",
            [b"u", b"7", b'{"u"}'],
        )

    def test_a_part_may_be_meant_for_one(self):
        parts = ("INSERT INTO t VALUES (:v1)", "INSERT INTO t SELECT unnest(:c1::int[])")
        one, many = Statement("x", parts, {}, [(1,)]), Statement("x", parts, {}, [(1,), (2,)])

        assert messages(one) == [Message(b"INSERT INTO t VALUES ($1)", [b"1"])]
        assert messages(many) == [Message(b"INSERT INTO t SELECT unnest($1::int[])", [b"{1, 2}"])]

    def test_what_all_rows_share_is_sent_once(self):
        part = "INSERT INTO t SELECT :e1::uuid, :e2::text, :e3::bigint, :e4::text"
        rows = [("u", "job", 7, None), ("v", "job", None, None)]
        [message] = messages(Statement("x", (part,), {}, rows))

        assert message == Message(
            b"INSERT INTO t SELECT unnest($1::uuid[]), $2::text, unnest($3::bigint[]), $4::text",
            [b'{"u","v"}', b"job", b"{7, NULL}", None],
        )

    def test_rows_that_share_everything_stay_many(self):
        [message] = messages(Statement("x", ("SELECT :e1::int, :e2::int",), {}, [(1, 2)] * 3))

        assert message == Message(b"SELECT unnest($1::int[]), $2::int", [b"{1,1,1}", b"2"])

    def test_the_number_of_texts_is_limited(self):
        width = 8
        part = "SELECT " + ", ".join(f":e{number}::int" for number in range(1, width + 1))
        found = {
            messages(Statement("x", (part,), {}, [row, (2,) * width]))[0].text
            for row in product([1, 2], repeat=width)
        }

        assert len(found) <= SHAPES_MAX + 1

    def test_a_place_in_the_order_is_kept(self):
        part = "SELECT * FROM unnest(:c1::int[])\n    WITH ORDINALITY AS new (n, place)"
        [message] = messages(Statement("x", (part,), {}, [(7,)]))

        assert message.values == [b"{7}"]

    def test_waking_takes_one_statement(self):
        query = Queries("tickwork._stores.postgres")

        assert messages(query("notify", queues=["a"]))[0].values == [b"a"]
        assert messages(query("notify", queues=["a", "b"]))[0].values == [b'{"a","b"}']
