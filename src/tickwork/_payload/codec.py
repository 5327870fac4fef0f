"""Encodes payloads as JSON text. Never pickle: a row must not be able to run code.

Types that JSON lacks are written as an object with one key, the tag::

    {"$datetime": "2026-01-01T09:00:00+01:00"}    {"$date": "2026-01-01"}
    {"$timedelta": [0, 5400, 0]}                  {"$decimal": "1.50"}
    {"$uuid": "019b76da-…"}                       {"$bytes": "aGVsbG8="}
    {"$int": "18446744073709551616"}              {"$float": "1e+16"}
    {"$time": "09:30:00"}                         {"$tuple": [1, 2]}

A dict of the user with one key that starts with ``$`` gets a second ``$`` in front. So every
payload is decoded exactly, with three exceptions: tuples become lists, subclasses of str, int,
float and dict (such as enums) become the plain type, and a datetime keeps its offset but not the
name of its zone. ``$tuple`` is written only for annotations such as ``Sequence[int]``.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from json import JSONDecoder, JSONEncoder
from math import isfinite
from typing import Any, Final, NoReturn
from uuid import UUID

from tickwork.errors import (
    NotSerializable,
    PayloadEncrypted,
    PayloadTooLarge,
    PayloadUnreadable,
)

SIZE_MAX: Final = 64 * 1024
"""Bytes of UTF-8 that a payload may have, by default."""

NESTING_MAX: Final = 64
"""Levels of lists and dicts. This also stops a payload that contains itself."""

# Integers beyond this range and floats in exponent form are tagged, because MySQL's JSON
# turns the former into floats and PostgreSQL's the latter into integers.
INT_MAX: Final = 2**63 - 1

_encode_json = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_encode_sorted = JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=True
).encode


def _build_encoder(make: Callable[..., Any] | None) -> Callable[[object, int], Iterable[str]]:
    """Build the C encoder once. JSONEncoder.encode builds one for every call.

    Interpreters other than CPython have no C encoder.
    """
    if make is None:
        return lambda payload, _: (_encode_json(payload),)
    text = json.encoder.encode_basestring
    chunks: Callable[[object, int], Iterable[str]] = make(
        None, _refuse, text, None, ":", ",", False, False, False
    )
    return chunks


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} was not made plain.")


_encode_parts: Final = _build_encoder(getattr(json.encoder, "c_make_encoder", None))

SIMPLE: Final[frozenset[type]] = frozenset({str, bool, int, type(None)})
"""Types that are stored as they are; of integers only those that are short."""


def is_short(number: int) -> bool:
    """Whether every database keeps this number exactly, so that it needs no tag."""
    return -INT_MAX <= number <= INT_MAX


def encode_simple(plain: object) -> str:
    """Encode JSON types, without any check. For payloads that were made plain."""
    return "".join(_encode_parts(plain, 0))


def encode_checked(plain: object, size_max: int) -> str:
    """Encode JSON types, and check the text.

    Raises:
        NotSerializable: A text cannot be stored.
        PayloadTooLarge: The text has more than ``size_max`` bytes.
    """
    text = "".join(_encode_parts(plain, 0))
    if text.isascii() and len(text) <= size_max and "\\u0000" not in text:
        return text
    return _check_text(text, size_max)


def _is_simple(payload: object) -> bool:
    """Whether it is a dict of plain strings and numbers, as most payloads are."""
    if type(payload) is not dict or not payload:
        return False
    for key, value in payload.items():
        kind = type(value)
        if type(key) is not str or kind not in SIMPLE or (kind is int and not is_short(value)):
            return False
    return len(payload) > 1 or not key.startswith("$")


def encode(payload: object, *, size_max: int = SIZE_MAX) -> str:
    """Encode a payload as JSON text.

    >>> from datetime import date
    >>> encode({"day": date(2026, 1, 1), "count": 3})
    '{"day":{"$date":"2026-01-01"},"count":3}'

    Raises:
        NotSerializable: A value has no exact JSON form: NaN, a naive datetime, a key that
            is not a string, an object of another type, a value that contains itself.
        PayloadTooLarge: The text has more than ``size_max`` bytes.
    """
    if _is_simple(payload):
        return encode_checked(payload, size_max)
    return encode_checked(_Plain(size_max).of(payload), size_max)


def encode_canonical(payload: object, *, size_max: int = SIZE_MAX) -> str:
    """Encode a payload so that equal payloads give equal text, for hashing.

    Keys are sorted, and datetimes are moved to UTC. ``1`` and ``1.0`` stay different.

    >>> encode_canonical({"b": 1, "a": 2})
    '{"a":2,"b":1}'
    """
    return _check_text(_encode_sorted(_Plain(size_max, in_utc=True).of(payload)), size_max)


def make_plain(payload: object, *, size_max: int = SIZE_MAX) -> object:
    """Convert a payload to JSON types, with tags where JSON lacks a type.

    Raises:
        Mismatch: It has no exact JSON form.
    """
    return _Plain(size_max).convert(payload)


def escape(plain: dict[str, object]) -> dict[str, object]:
    """Escape an object of the user that could be read as a tag."""
    if len(plain) == 1:
        [(key, value)] = plain.items()
        if key.startswith("$"):
            return {f"${key}": value}
    return plain


def merge_objects(first: str, second: str) -> str:
    """Merge two encoded objects. Values of the second one replace those of the first.

    Raises:
        PayloadUnreadable: One of them is not an object in JSON.
    """
    merged = {**_read_object(first), **_read_object(second)}
    return encode_simple(escape(merged))


def _read_object(text: str) -> dict[str, object]:
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PayloadUnreadable(f"{error}.") from error
    if not isinstance(payload, dict):
        raise PayloadUnreadable(f"it is {type(payload).__name__}, not an object.")
    if len(payload) == 1:
        [(key, value)] = payload.items()
        if key.startswith("$$"):
            return {key[1:]: value}
    return payload


def decode(text: str) -> Any:
    """Decode what :func:`encode` wrote.

    >>> decode('{"day":{"$date":"2026-01-01"}}')
    {'day': datetime.date(2026, 1, 1)}

    Raises:
        PayloadUnreadable: The text is not JSON, or has a tag that this version does not know.
    """
    # Without a quoted dollar there is no tag, and the scanner needs no hook: most payloads
    # are decoded in C alone.
    if '"$' not in text:
        try:
            payload, end = _scan_untagged(text, 0)
        except (StopIteration, ValueError, RecursionError):
            pass  # empty, white space before the value, or an error that is described below
        else:
            if end == len(text):
                return payload
    try:
        return _TAGGED.decode(text)
    except PayloadUnreadable:
        raise
    except RecursionError as error:
        raise PayloadUnreadable("it is nested too deeply.") from error
    except ValueError as error:
        raise PayloadUnreadable(f"{error}.") from error


# ---------------------------------------------------------------- writing


class Mismatch(Exception):  # noqa: N818  # internal
    """A value that cannot be encoded or rebuilt. ``path`` is collected on the way up."""

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.path: list[str] = []


class _Plain:
    """Converts a payload to JSON types, and rejects what JSON would change."""

    __slots__ = ("_budget", "_in_utc", "_size_max")

    def __init__(self, size_max: int, *, in_utc: bool = False) -> None:
        self._in_utc = in_utc
        self._size_max = size_max
        # Every item needs at least one byte. Lists with shared parts can be small in memory
        # and huge as text, so items are counted before they are encoded.
        self._budget = size_max

    def of(self, payload: object) -> object:
        try:
            return self.convert(payload)
        except Mismatch as mismatch:
            path = "payload" + "".join(reversed(mismatch.path))
            raise NotSerializable(path, mismatch.reason, fix=mismatch.fix) from None

    def convert(self, payload: object) -> object:
        return self._plain(payload, NESTING_MAX)

    def _plain(self, value: Any, levels: int) -> object:
        match value:
            case str() if type(value) is str:
                return value
            case None | bool():
                return value
            case int():
                return plain_int(int(value))
            case float():
                return plain_float(float(value))
            case str():
                return str.__str__(value)
            case dict():
                return self._dict(value, self._room(levels, len(value)))
            case list() | tuple():
                return self._list(value, self._room(levels, len(value)))
            case _:
                return self._tag(value)

    def _room(self, levels: int, items: int) -> int:
        if not levels:
            raise Mismatch(f"it is nested deeper than {NESTING_MAX} levels, or contains itself.")
        self._budget -= items
        if self._budget < 0:
            raise PayloadTooLarge(self._size_max - self._budget, size_max=self._size_max)
        return levels - 1

    def _list(self, values: Any, levels: int) -> list[object]:
        plain = []
        for value in values:
            try:
                plain.append(self._plain(value, levels))
            except Mismatch as mismatch:
                mismatch.path.append(f"[{len(plain)}]")
                raise
        return plain

    def _dict(self, values: Mapping[Any, Any], levels: int) -> dict[str, object]:
        plain = {}
        for key, value in values.items():
            if not isinstance(key, str):
                raise Mismatch(f"its key {key!r} is not a string.", fix="Use str(key).")
            try:
                plain[str.__str__(key)] = self._plain(value, levels)
            except Mismatch as mismatch:
                mismatch.path.append(f"[{key!r}]")
                raise
        return escape(plain)

    def _tag(self, value: object) -> dict[str, object]:
        match value:
            case datetime():
                if value.utcoffset() is None:
                    raise Mismatch(
                        f"the datetime {value} has no time zone.",
                        fix="Use datetime.now(UTC), or pass tzinfo=.",
                    )
                return {"$datetime": datetime.isoformat(_utc(value) if self._in_utc else value)}
            case date():
                return {"$date": date.isoformat(value)}
            case time():
                if value.tzinfo is not None and value.utcoffset() is None:
                    raise Mismatch(
                        f"the time {value} has a time zone without an offset.",
                        fix="Pass a datetime, or the name of the zone beside the time.",
                    )
                return {"$time": time.isoformat(value)}
            case timedelta():
                return {"$timedelta": [value.days, value.seconds, value.microseconds]}
            case Decimal():
                if not value.is_finite():
                    raise Mismatch(f"{value} is not a finite number.")
                return {"$decimal": str(value)}
            case UUID():
                return {"$uuid": str(value)}
            case bytes():
                return {"$bytes": base64.b64encode(value).decode("ascii")}
            case set() | frozenset():
                raise Mismatch(
                    "a set has no order.",
                    fix="Annotate the parameter, such as set[str], or pass sorted(...).",
                )
            case _:
                raise Mismatch(
                    f"a {type(value).__qualname__} has no JSON form.",
                    fix="Annotate the parameter with its type. Types of your own are added with "
                    "app.codec.register().",
                )


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # within a day of the first or last datetime
        return moment


def plain_int(number: int) -> object:
    return number if is_short(number) else {"$int": _digits(number)}


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:
        raise Mismatch("the integer has more digits than Python will read back.") from None


def plain_float(number: float) -> object:
    if not isfinite(number):
        raise Mismatch(f"{number} is not a finite number.")
    text = repr(number)
    return {"$float": text} if "e" in text or text == "-0.0" else number


def _check_text(text: str, size_max: int) -> str:
    if "\\u0000" in text and _has_nul(json.loads(text)):
        raise NotSerializable(
            "payload", "a string contains a NUL character.", fix="Pass bytes, or remove it."
        )
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise NotSerializable(
            "payload", "a string contains a lone surrogate.", fix="Pass bytes."
        ) from None
    if size > size_max:
        raise PayloadTooLarge(size, size_max=size_max)
    return text


def _has_nul(value: object) -> bool:
    match value:
        case str():
            return "\x00" in value
        case list():
            return any(map(_has_nul, value))
        case dict():
            return any(map(_has_nul, value)) or any(map(_has_nul, value.values()))
        case _:
            return False


# ---------------------------------------------------------------- reading


_LESS_THAN_A_SECOND: Final = re.compile(r"([+-])00:00:00\.(\d{6})$")


def _moment(text: str) -> datetime:
    # Python ignores an offset that has microseconds only.
    tiny = _LESS_THAN_A_SECOND.search(text)
    if tiny is None:
        return datetime.fromisoformat(text)
    offset = timedelta(microseconds=int(tiny[1] + tiny[2]))
    return datetime.fromisoformat(text[: tiny.start()]).replace(tzinfo=timezone(offset))


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "$datetime": _moment,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$tuple": tuple,
    "$timedelta": lambda parts: timedelta(*parts),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$bytes": _bytes,
    "$int": int,
    "$float": float,
}


def _untag(raw: dict[str, Any]) -> object:
    if len(raw) != 1:
        return raw
    [(key, value)] = raw.items()
    if not key.startswith("$"):
        return raw
    if key.startswith("$$"):
        return {key[1:]: value}
    reader = _READERS.get(key)
    if key == "$encrypted":
        raise PayloadEncrypted
    if reader is None:
        raise PayloadUnreadable(f"the tag {key!r} is not known.")
    try:
        return reader(value)
    except (ValueError, TypeError, AttributeError, OverflowError, InvalidOperation) as error:
        raise PayloadUnreadable(f"{value!r} is not a {key[1:]}.") from error


def _refuse_constant(word: str) -> NoReturn:
    raise PayloadUnreadable(f"{word} is not a finite number.")


_TAGGED = JSONDecoder(parse_constant=_refuse_constant, object_hook=_untag)

# The scanner inside of JSONDecoder.decode takes a quarter of the time, because it skips two
# regular expressions for white space. Typeshed does not declare it.
_Scan = Callable[[str, int], tuple[Any, int]]
_scan_untagged: _Scan = JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]
