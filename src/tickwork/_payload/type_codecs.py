"""``TypeCodec``, which stores the values of one type, and the codecs of simple types."""

import types
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, Literal, Protocol, Union, get_args, get_origin
from uuid import UUID

from tickwork._kernel.durations import parse_duration
from tickwork._payload.codec import SIMPLE, Mismatch, make_plain, plain_float, plain_int
from tickwork.errors import TickworkError

Convert = Callable[[Any], Any]

EXACT: Final = 0
"""A value of this type is rebuilt exactly."""
COMPARED: Final = 1
"""Code of the program rebuilds it. The rebuilt value is compared with the original by ``==``."""
REENCODED: Final = 2
"""As :data:`COMPARED`, but its class has no ``==``: the stored forms are compared."""


class WrongType(Mismatch):
    """A value of a type that the annotation does not accept."""


class Unresolved(Exception):  # noqa: N818  # internal
    """An annotation names a type that cannot be found."""


class TypeCodec:
    """How values of one type are stored.

    ``encode`` returns JSON types, ``decode`` takes what the payload codec has decoded; both raise
    :class:`Mismatch`. ``matches`` is a quick check of the outermost type. ``raw`` has the types
    that stored values have after they were decoded; None if they can have any. ``simple`` has
    the types whose values are stored as they are, ``kept`` those whose decoded values are what
    the handler gets.
    """

    __slots__ = ("decode", "encode", "exactness", "kept", "label", "matches", "raw", "simple")

    def __init__(
        self,
        label: str,
        encode: Convert,
        decode: Convert,
        *,
        matches: Callable[[Any], bool],
        raw: Iterable[type] | None,
        exactness: int = EXACT,
        simple: Iterable[type] = (),
        kept: Iterable[type] = (),
    ) -> None:
        self.label = label
        self.encode = encode
        self.decode = decode
        self.matches = matches
        self.raw: frozenset[type] | None = None if raw is None else frozenset(raw)
        self.exactness = exactness
        self.simple: frozenset[type] = frozenset(simple)
        self.kept: frozenset[type] = self.simple.union(kept)

    def is_rebuilt(self, value: Any, rebuilt: Any) -> bool:
        """Whether a value that was stored and rebuilt is the same as before."""
        if type(rebuilt) is not type(value):
            return False
        if self.exactness < REENCODED or rebuilt == value:
            return bool(rebuilt == value)
        return bool(self.encode(rebuilt) == self.encode(value))


class CodecSource(Protocol):
    """Finds the codecs of the types that a type consists of."""

    @property
    def untyped(self) -> TypeCodec:
        """The codec of values without annotation."""
        ...

    def codec_of(self, hint: Any) -> TypeCodec:
        """The codec of an annotation."""
        ...


def wrong_type(label: str, value: Any, kind: type | None = None) -> WrongType:
    type_found = type(value)
    reason = f"must be {label}, got {type_found.__name__}."
    fix = ""
    if kind is not None and isinstance(value, kind):
        reason = f"must be {label}. {type_found.__name__} is a subclass, and would become {label}."
        fix = f"Annotate {label} | {type_found.__name__}."
    return WrongType(reason, fix=fix)


def mismatch_of(what: str, error: Exception) -> Mismatch:
    # The message of the program's error helps to find the cause. Secrets are masked later.
    return Mismatch(f"{what}: {type(error).__name__}: {error}.".replace("..", "."))


def label_of(hint: Any) -> str:
    """An annotation as messages show it, without modules."""
    if hint is None or hint is type(None):
        return "None"
    if hint is ...:
        return "..."
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return label_of(args[0])
    if origin is Union or origin is types.UnionType:
        return " | ".join(map(label_of, args))
    if origin is Literal:
        return " or ".join(map(repr, args))
    name: str = getattr(origin or hint, "__name__", "") or str(hint)
    return f"{name}[{', '.join(map(label_of, args))}]" if args else name


def exactness_of(kind: type) -> int:
    return REENCODED if getattr(kind, "__eq__", None) is object.__eq__ else COMPARED


def join_raw(codecs: Sequence[TypeCodec]) -> frozenset[type] | None:
    """The types that the stored forms of these codecs can have."""
    joined: set[type] = set()
    for codec in codecs:
        if codec.raw is None:
            return None
        joined |= codec.raw
    return frozenset(joined)


# ---------------------------------------------------------------- simple types


def as_is(raw: Any) -> Any:
    return raw


def _exactly(kind: type, encode: Convert = as_is, read: Convert | None = None) -> TypeCodec:
    """A type whose values the payload codec stores. ``read`` reads its natural JSON form."""
    label = kind.__name__

    def encode_exactly(value: Any) -> object:
        if type(value) is not kind:
            raise wrong_type(label, value)
        return encode(value)

    def decode(raw: Any) -> Any:
        if type(raw) is kind:
            return raw
        if read is not None and type(raw) in {str, int, float}:
            try:
                return read(raw)
            except (ValueError, TypeError, OverflowError, InvalidOperation, TickworkError):
                raise WrongType(f"must be {label}, got a {type(raw).__name__}.") from None
        raise wrong_type(label, raw)

    return TypeCodec(
        label,
        encode_exactly,
        decode,
        matches=lambda value: type(value) is kind,
        raw=(kind,),
        simple={kind} & SIMPLE,
        kept=(kind,),
    )


def _encode_float(value: Any) -> object:
    if type(value) is float:
        return plain_float(value)
    if type(value) is int:  # type checkers accept it, and so does the handler
        return plain_int(value)
    raise wrong_type("float", value)


def _decode_float(raw: Any) -> Any:
    if type(raw) is float or type(raw) is int:
        return raw
    raise wrong_type("float", raw)


def _read_datetime(raw: Any) -> datetime:
    moment = datetime.fromisoformat(raw)
    if moment.utcoffset() is None:
        raise ValueError("It has no time zone.")
    return moment


def _read_timedelta(raw: Any) -> timedelta:
    return parse_duration(raw) if isinstance(raw, str) else timedelta(seconds=raw)


def _read_decimal(raw: Any) -> Decimal:
    if isinstance(raw, float):
        raise TypeError("A float is not exact.")
    return Decimal(raw)


NONE_CODEC: Final = TypeCodec(
    "None",
    _exactly(type(None)).encode,
    _exactly(type(None)).decode,
    matches=lambda value: value is None,
    raw=(type(None),),
    simple=(type(None),),
)

LEAVES: Final[Mapping[type, TypeCodec]] = {
    str: _exactly(str),
    bool: _exactly(bool),
    int: _exactly(int, plain_int),
    float: TypeCodec(
        "float",
        _encode_float,
        _decode_float,
        matches=lambda value: type(value) in {float, int},
        raw=(float,),
        simple=(int,),
        kept=(float,),
    ),
    bytes: _exactly(bytes, make_plain, lambda raw: b64decode(raw, validate=True)),
    datetime: _exactly(datetime, make_plain, _read_datetime),
    date: _exactly(date, make_plain, date.fromisoformat),
    time: _exactly(time, make_plain, time.fromisoformat),
    timedelta: _exactly(timedelta, make_plain, _read_timedelta),
    Decimal: _exactly(Decimal, make_plain, _read_decimal),
    UUID: _exactly(UUID, make_plain, UUID),
}


def path_codec(kind: type[PurePath]) -> TypeCodec:
    concrete = type(kind()) if kind in {Path, PurePath} else kind
    label = kind.__name__

    def encode(value: Any) -> object:
        if type(value) is not concrete:
            raise wrong_type(label, value)
        return str(value)

    def decode(raw: Any) -> PurePath:
        if type(raw) is not str:
            raise wrong_type(label, raw)
        return kind(raw)

    return TypeCodec(
        label, encode, decode, matches=lambda value: type(value) is concrete, raw=(str,)
    )


def enum_codec(kind: type[Enum]) -> TypeCodec:
    """Members are stored by value, if all values have a simple type, and otherwise by name."""
    values = [each.value for each in kind.__members__.values()]
    is_by_value = issubclass(kind, Flag) or all(type(each) in {str, int} for each in values)
    label = kind.__name__

    def encode(value: Any) -> object:
        if type(value) is not kind:
            raise wrong_type(label, value)
        if not is_by_value:
            return value.name
        return plain_int(value.value) if type(value.value) is int else value.value

    def decode(raw: Any) -> Enum:
        try:
            return kind(raw) if is_by_value else kind[raw]
        except (ValueError, KeyError, TypeError):
            shown = repr(raw) if isinstance(raw, str | int) else type(raw).__name__
            raise WrongType(f"must be {label}, got {shown}.") from None

    raw = set(map(type, values)) if is_by_value else {str}
    return TypeCodec(label, encode, decode, matches=lambda value: type(value) is kind, raw=raw)


def literal_codec(allowed: tuple[Any, ...], source: CodecSource) -> TypeCodec:
    label = " or ".join(map(repr, allowed))
    codecs = {(type(each), each): source.codec_of(type(each)) for each in allowed}

    def encode(value: Any) -> object:
        codec = codecs.get((type(value), value)) if value.__hash__ else None
        if codec is None:
            raise WrongType(f"must be {label}, got {_shown(value)}.")
        return codec.encode(value)

    def decode(raw: Any) -> Any:
        for (_, value), each in codecs.items():
            try:
                if each.decode(raw) == value:
                    return value
            except Mismatch:
                continue
        raise WrongType(f"must be {label}, got {_shown(raw)}.")

    return TypeCodec(
        label,
        encode,
        decode,
        matches=lambda value: bool(value.__hash__) and (type(value), value) in codecs,
        raw=join_raw(list(codecs.values())),
    )


def _shown(value: object) -> str:
    """The value for an error message, if it is short; otherwise its type."""
    shown = repr(value) if isinstance(value, str | int | Enum) else type(value).__name__
    return shown if len(shown) <= 40 else type(value).__name__
