"""Reads the answers of the server in few steps.

PyMySQL makes objects of each packet and of each described column, and calls five functions for
each value: 10 microseconds for a claimed run, and 100 for the columns of each result. Here the
descriptions of the columns are the key of a cached function that reads a whole row.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pymysql.connections import TEXT_TYPES
from pymysql.constants import CR, FIELD_TYPE, SERVER_STATUS
from pymysql.converters import conversions, through
from pymysql.err import OperationalError, raise_mysql_exception
from pymysql.protocol import FieldDescriptorPacket

from tickwork._stores._sql.rows import compile_function
from tickwork._stores._sql.statement import Row, StatementResult

ENCODING: Final = "utf8"

_PART_MAX: Final = 0xFFFFFF
"""A packet of this length is continued in the next one."""
_SEQUENCE: Final = 1 << 24
_SEQUENCE_END: Final = 1 << 32
_OK, _NULL, _END, _ERROR = 0x00, 0xFB, 0xFE, 0xFF
_END_MAX: Final = 9
"""A longer packet that starts with ``_END`` is a row with a very long first value."""
_MORE: Final = SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS
_INCOMPLETE: Final = "the answer is incomplete"
_BINARY: Final = 63  # the number of the character set
_INTEGERS: Final = frozenset(
    {
        FIELD_TYPE.TINY,
        FIELD_TYPE.SHORT,
        FIELD_TYPE.LONG,
        FIELD_TYPE.LONGLONG,
        FIELD_TYPE.INT24,
        FIELD_TYPE.YEAR,
    }
)


class _PacketLost(Exception):  # noqa: N818  # never leaves the module
    pass


def read_results(connection: Any) -> StatementResult:
    """Read the answers to all statements that were sent; return the last.

    Raises:
        pymysql.err.Error: A statement failed, or the connection is lost.
    """
    reader = _AnswerReader(connection._rfile.read)  # noqa: SLF001  # PyMySQL has no public way
    try:
        # Ends: the server says which answer is the last.
        while True:
            result, status = reader.read_result()
            if not status & _MORE:
                return result
    except (OSError, _PacketLost) as error:
        connection._force_close()  # noqa: SLF001  # as above
        raise OperationalError(
            CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({error})"
        ) from error


class _AnswerReader:
    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._expected = _SEQUENCE  # the number of the next packet: the command was packet 0

    def read_result(self) -> tuple[StatementResult, int]:
        """One result, and the status of the server."""
        data = self._read_packet()
        if data[0] == _OK:
            changed, place = _length_at(data, 1)
            _, place = _length_at(data, place)
            return StatementResult(None, changed), data[place] | data[place + 1] << 8
        if data[0] == _NULL:
            raise _PacketLost("the server asks for a file")
        count, _ = _length_at(data, 0)
        read_row = _row_reader(tuple([self._read_packet() for _ in range(count)]))
        self._read_packet()  # the end of the columns
        return self._read_rows(read_row)

    def _read_rows(self, read_row: Callable[[bytes], Row]) -> tuple[StatementResult, int]:
        read, number, expected = self._read, int.from_bytes, self._expected
        rows: list[Row] = []
        # Ends: the server marks the end of the rows.
        while True:
            # As _read_packet(), which would take as long as reading the row.
            length = number(read(4), "little") - expected
            if 0 < length < _PART_MAX:
                data = read(length)
                expected = (expected + _SEQUENCE) % _SEQUENCE_END
            else:
                data = self._read_long_packet(length, expected)
                expected = self._expected
            if len(data) < length:
                raise _PacketLost(_INCOMPLETE)
            first = data[0]
            if first >= _END:
                self._expected = expected
                if first == _ERROR:
                    raise_mysql_exception(data)
                if len(data) < _END_MAX:
                    return StatementResult(rows, len(rows)), data[3] | data[4] << 8
            rows.append(read_row(data))

    def _read_packet(self) -> bytes:
        expected = self._expected
        length = int.from_bytes(self._read(4), "little") - expected
        if 0 < length < _PART_MAX:
            data = self._read(length)
            self._expected = (expected + _SEQUENCE) % _SEQUENCE_END
        else:
            data = self._read_long_packet(length, expected)
        if len(data) < length:
            raise _PacketLost(_INCOMPLETE)
        if data[0] == _ERROR:
            raise_mysql_exception(data)
        return data

    def _read_long_packet(self, length: int, expected: int) -> bytes:
        """The rest of a packet after its header, and all packets that continue it."""
        parts: list[bytes] = []
        # Ends: a shorter part is the last.
        while True:
            if not 0 <= length <= _PART_MAX or not (length or parts):
                # There was no header, or its number is wrong: a server that shuts down starts at 0.
                raise _PacketLost("the answer has ended too early")
            parts.append(self._read(length))
            if len(parts[-1]) < length:
                raise _PacketLost(_INCOMPLETE)
            expected = self._expected = (expected + _SEQUENCE) % _SEQUENCE_END
            if length < _PART_MAX:
                return b"".join(parts)
            length = int.from_bytes(self._read(4), "little") - expected


def _length_at(data: bytes, place: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place after it."""
    first = data[place]
    if first < _NULL:
        return first, place + 1
    size = {0xFC: 2, 0xFD: 3}.get(first, 8)
    end = place + 1 + size
    return int.from_bytes(data[place + 1 : end], "little"), end


# ---------------------------------------------------------------- rows


@lru_cache(maxsize=512)
def _row_reader(described: tuple[bytes, ...]) -> Callable[[bytes], Row]:
    """Compile a function that reads a row with these columns.

    Most values are shorter than 251 bytes, and most numbers have one digit.
    """
    lines = ["p = 0"]
    converters: dict[str, Any] = {}
    names = [f"v{number}" for number in range(len(described))]
    for name, description in zip(names, described, strict=True):
        column = FieldDescriptorPacket(description, ENCODING)
        is_integer = column.type_code in _INTEGERS
        converter = conversions.get(column.type_code, through)
        encoding = _encoding_of(column)
        if is_integer:
            value = "int(data[q:p])"
        else:
            value = f"data[q:p].decode({encoding!r})" if encoding else "data[q:p]"
            if converter is not through:
                converters[f"convert_{name}"] = converter
                value = f"convert_{name}({value})"
        lines += [
            "n = data[p]",
            "q = p + 1",
            *([f"if n == 1: {name} = data[q] - 48; p += 2"] if is_integer else ()),
            f"{'elif' if is_integer else 'if'} n < 251:",
            "    p = q + n",
            f"    {name} = {value}",
            "elif n == 251:",
            f"    {name} = None",
            "    p = q",
            "else:",
            "    n, q = length_at(data, p)",
            "    p = q + n",
            f"    {name} = {value}",
        ]
    lines.append(f"return ({', '.join(names)},)")
    return compile_function("data", *lines, length_at=_length_at, **converters)


def _encoding_of(column: Any) -> str | None:
    """As PyMySQL decides it: a text in the binary character set is bytes; JSON always is text."""
    if column.type_code not in TEXT_TYPES or column.type_code == FIELD_TYPE.JSON:
        return ENCODING
    return None if column.charsetnr == _BINARY else ENCODING
