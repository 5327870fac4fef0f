"""Answers of the server, as bytes."""

import io
import struct
from collections.abc import Sequence
from typing import Any

import pymysql
import pytest
from pymysql.constants import CR, FIELD_TYPE, SERVER_STATUS

from tickwork._stores.mysql import result_reader
from tickwork._stores.mysql.result_reader import read_results

UTF8, BINARY = 45, 63
MORE = SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS


class FakeConnection:
    """A connection whose server has sent these packets after the command."""

    def __init__(self, *packets: bytes, first: int = 1, cut: int = 0) -> None:
        sent = b"".join(
            struct.pack("<I", len(part))[:3] + bytes([(first + place) % 256]) + part
            for place, part in enumerate(part for packet in packets for part in parts_of(packet))
        )
        self._rfile = io.BytesIO(sent[: len(sent) - cut])
        self.is_closed = False

    def _force_close(self) -> None:
        self.is_closed = True


def parts_of(packet: bytes) -> list[bytes]:
    size = result_reader._PART_MAX
    return [packet[first : first + size] for first in range(0, len(packet) + 1, size)]


def text(value: bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    if len(value) < 251:
        return bytes([len(value)]) + value
    if len(value) < 2**16:
        return b"\xfc" + struct.pack("<H", len(value)) + value
    if len(value) < 2**24:
        return b"\xfd" + struct.pack("<I", len(value))[:3] + value
    return b"\xfe" + struct.pack("<Q", len(value)) + value


def column(kind: int, charset: int = UTF8) -> bytes:
    names = b"".join(map(text, (b"def", b"db", b"t", b"t", b"name", b"name")))
    return names + struct.pack("<BHIBHBxx", 12, charset, 80, kind, 0, 0)


def end(status: int = 0) -> bytes:
    return struct.pack("<BHH", 0xFE, 0, status)


def ok(changed: bytes = b"\x00", status: int = 0) -> bytes:
    return b"\x00" + changed + b"\x00" + struct.pack("<HH", status, 0)


def rows_of(columns: list[bytes], *rows: Sequence[bytes | None], status: int = 0) -> list[bytes]:
    values = [b"".join(map(text, row)) for row in rows]
    return [bytes([len(columns)]), *columns, end(), *values, end(status)]


ERROR = b"\xff" + struct.pack("<H", 1213) + b"#40001Deadlock found"


class TestResults:
    def test_values_are_read_by_the_types_of_their_columns(self) -> None:
        kinds = [
            column(FIELD_TYPE.VAR_STRING),
            column(FIELD_TYPE.LONGLONG),
            column(FIELD_TYPE.LONG),
            column(FIELD_TYPE.VAR_STRING, BINARY),
            column(FIELD_TYPE.JSON, BINARY),
            column(FIELD_TYPE.NEWDECIMAL),
        ]
        answer = rows_of(
            kinds,
            ["é".encode(), b"-5", b"7", b"\xff\x00", b"[]", b"1.5"],
            [None] * 6,
            [b"", b"1767225600000000", b"0", b"", b"{}", b"2"],
        )

        found = read_results(FakeConnection(*answer)).rows

        assert found is not None
        assert [tuple(map(str, row)) for row in found] == [
            ("é", "-5", "7", r"b'\xff\x00'", "[]", "1.5"),
            ("None",) * 6,
            ("", "1767225600000000", "0", "b''", "{}", "2"),
        ]

    @pytest.mark.parametrize("length", [0, 250, 251, 65_535, 65_536, 2**24])
    def test_values_of_any_length(self, length: int) -> None:
        answer = rows_of(
            [column(FIELD_TYPE.VAR_STRING), column(FIELD_TYPE.LONG)], [b"x" * length, b"3"]
        )

        assert read_results(FakeConnection(*answer)).rows == [("x" * length, 3)]

    @pytest.mark.parametrize("length", [18, 19, 20, 38, 39, 40])
    def test_long_packets_are_continued(self, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(result_reader, "_PART_MAX", 40)
        kinds = [column(FIELD_TYPE.STRING)] * 2
        answer = rows_of(kinds, [b"x" * length, b"y" * 38], [b"a", b"b"])

        found = read_results(FakeConnection(*answer)).rows

        assert found == [("x" * length, "y" * 38), ("a", "b")]

    def test_more_rows_than_packet_numbers(self) -> None:
        rows: list[list[bytes | None]] = [[b"%d" % number] for number in range(1000)]
        answer = rows_of([column(FIELD_TYPE.LONG)], *rows)

        assert read_results(FakeConnection(*answer)).rows == [(n,) for n in range(1000)]

    def test_the_last_of_many_results_is_returned(self) -> None:
        first = rows_of([column(FIELD_TYPE.LONG)], [b"1"], status=MORE)

        assert read_results(FakeConnection(*first, ok(status=MORE), ok(b"\x05"))) == (None, 5)
        assert read_results(FakeConnection(ok(b"\xfc\x00\x01"))) == (None, 256)
        assert read_results(FakeConnection(ok(status=MORE), *rows_of([column(3)]))) == ([], 0)


class TestFailures:
    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_an_error_of_the_server_keeps_the_connection(self, count: int) -> None:
        answer = rows_of([column(FIELD_TYPE.LONG)], [b"1"], [b"2"])
        connection = FakeConnection(*answer[: [0, 1, 4][count]], ERROR)

        with pytest.raises(pymysql.err.OperationalError, match="Deadlock"):
            read_results(connection)

        assert not connection.is_closed

    @pytest.mark.parametrize(
        "connection",
        [
            FakeConnection(),
            *[FakeConnection(*rows_of([column(3)], [b"12"]), cut=cut) for cut in range(1, 60, 3)],
            FakeConnection(*rows_of([column(3)], *[[b"1"]] * 253)[:-1]),  # at number 0
            FakeConnection(ERROR, first=0),  # of a server that shuts down
            FakeConnection(ok(), first=2),
            FakeConnection(b"\xfbfile"),
        ],
    )
    def test_an_answer_that_ends_or_is_out_of_order_loses_the_connection(
        self, connection: Any
    ) -> None:
        with pytest.raises(pymysql.err.OperationalError) as caught:
            read_results(connection)

        assert caught.value.args[0] == CR.CR_SERVER_LOST
        assert connection.is_closed

    def test_a_timeout_loses_the_connection(self) -> None:
        connection = FakeConnection()
        connection._rfile.read = _time_out  # type: ignore[method-assign]

        with pytest.raises(pymysql.err.OperationalError, match="timed out"):
            read_results(connection)

        assert connection.is_closed


def _time_out(_: int | None = 0) -> bytes:
    raise TimeoutError("timed out")
