"""Codecs of containers: lists, sets, tuples, dicts and similar types."""

from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from typing import Any, Final

from tickwork._payload.codec import Mismatch, encode_simple, escape
from tickwork._payload.type_codecs import (
    EXACT,
    LEAVES,
    CodecSource,
    Convert,
    TypeCodec,
    WrongType,
    label_of,
    mismatch_of,
    wrong_type,
)


def _each(convert: Convert, values: Iterable[Any]) -> list[Any]:
    try:
        return [convert(value) for value in values]
    except Mismatch:
        for position, value in enumerate(values):
            try:
                convert(value)
            except Mismatch as mismatch:
                mismatch.path.append(f"[{position}]")
                raise
        raise


def _items_of(args: tuple[Any, ...], source: CodecSource) -> TypeCodec:
    return source.codec_of(args[0]) if args else source.untyped


def _collection(kind: Any, *, is_sorted: bool = False) -> Any:
    """A container that is stored as a list. Sets are sorted, so equal sets have equal text."""

    def build(source: CodecSource, hint: Any, args: tuple[Any, ...]) -> TypeCodec:
        item, label = _items_of(args, source), label_of(hint)
        encode_item, decode_item = item.encode, item.decode
        is_list, is_untyped = kind is list, item is source.untyped

        def encode(value: Any) -> object:
            if type(value) is not kind:
                raise wrong_type(label, value)
            if is_untyped and is_list:
                return encode_item(value)
            plain = _each(encode_item, value)
            return sorted(plain, key=encode_simple) if is_sorted else plain

        def decode(raw: Any) -> Any:
            if type(raw) is not list:
                raise wrong_type(label, raw)
            if is_untyped and is_list:
                return raw
            items = _each(decode_item, raw)
            try:
                return items if is_list else kind(items)
            except TypeError as error:
                raise mismatch_of(f"cannot be rebuilt as {label}", error) from error

        return TypeCodec(
            label,
            encode,
            decode,
            matches=lambda value: type(value) is kind,
            raw=(list,),
            exactness=item.exactness,
            kept=(list,) if is_untyped and is_list else (),
        )

    return build


def _sequence(source: CodecSource, hint: Any, args: tuple[Any, ...]) -> TypeCodec:
    """An abstract sequence: a list, or a tuple, which is stored with a tag."""
    item, label = _items_of(args, source), label_of(hint)
    encode_item, decode_item = item.encode, item.decode

    def encode(value: Any) -> object:
        if type(value) is list:
            return _each(encode_item, value)
        if type(value) is tuple:
            return {"$tuple": _each(encode_item, value)}
        raise wrong_type(f"{label} (a list or a tuple)", value)

    def decode(raw: Any) -> Any:
        if type(raw) is list:
            return _each(decode_item, raw)
        if type(raw) is tuple:
            return tuple(_each(decode_item, raw))
        raise wrong_type(label, raw)

    return TypeCodec(
        label,
        encode,
        decode,
        matches=lambda value: type(value) in {list, tuple},
        raw=(list, tuple),
        exactness=item.exactness,
    )


def _tuple(source: CodecSource, hint: Any, args: tuple[Any, ...]) -> TypeCodec:
    if not args and hint is tuple:
        args = (Any, ...)
    label = label_of(hint)
    is_open = len(args) == 2 and args[1] is ...
    items = [source.codec_of(each) for each in (args[:1] if is_open else args)]
    encoders = [each.encode for each in items]
    decoders = [each.decode for each in items]

    def convert(values: Any, converters: Sequence[Convert]) -> list[Any]:
        if is_open:
            return _each(converters[0], values)
        if len(values) != len(converters):
            raise WrongType(f"must have {len(converters)} items, got {len(values)}.")
        converted: list[Any] = []
        for each, value in zip(converters, values, strict=True):
            try:
                converted.append(each(value))
            except Mismatch as mismatch:
                mismatch.path.append(f"[{len(converted)}]")
                raise
        return converted

    def encode(value: Any) -> object:
        if type(value) is not tuple:
            raise wrong_type(label, value)
        return convert(value, encoders)

    def decode(raw: Any) -> Any:
        if type(raw) is not list and type(raw) is not tuple:
            raise wrong_type(label, raw)
        return tuple(convert(raw, decoders))

    return TypeCodec(
        label,
        encode,
        decode,
        matches=lambda value: type(value) is tuple,
        raw=(list,),
        exactness=max((each.exactness for each in items), default=EXACT),
    )


def _dict(source: CodecSource, hint: Any, args: tuple[Any, ...]) -> TypeCodec:
    """A dict with text keys is an object; any other one is a list of pairs."""
    label = label_of(hint)
    key = source.codec_of(args[0]) if args else source.untyped
    value_codec = source.codec_of(args[1]) if len(args) > 1 else source.untyped
    if key is LEAVES[str] or key is source.untyped:
        encode, decode = _text_keys(label, value_codec, source)
        raw: type = dict
        kept = (dict,) if value_codec is source.untyped else ()
    else:
        encode, decode = _pairs(label, key, value_codec)
        raw, kept = list, ()
    return TypeCodec(
        label,
        encode,
        decode,
        matches=lambda value: type(value) is dict,
        raw=(raw,),
        exactness=max(key.exactness, value_codec.exactness),
        kept=kept,
    )


def _text_keys(label: str, item: TypeCodec, source: CodecSource) -> tuple[Convert, Convert]:
    encode_item, decode_item = item.encode, item.decode
    is_untyped = item is source.untyped

    def convert(values: Mapping[str, Any], one: Convert) -> dict[str, Any]:
        converted: dict[str, Any] = {}
        for name, value in values.items():
            if type(name) is not str:
                raise WrongType(f"must have keys of type str, got {type(name).__name__}.")
            try:
                converted[name] = one(value)
            except Mismatch as mismatch:
                mismatch.path.append(f"[{name!r}]")
                raise
        return converted

    def encode(value: Any) -> object:
        if type(value) is not dict:
            raise wrong_type(label, value)
        return encode_item(value) if is_untyped else escape(convert(value, encode_item))

    def decode(raw: Any) -> Any:
        if type(raw) is not dict:
            raise wrong_type(label, raw)
        return raw if is_untyped else convert(raw, decode_item)

    return encode, decode


def _pairs(label: str, key: TypeCodec, item: TypeCodec) -> tuple[Convert, Convert]:
    encode_key, encode_item = key.encode, item.encode
    decode_key, decode_item = key.decode, item.decode

    def encode(value: Any) -> object:
        if type(value) is not dict:
            raise wrong_type(label, value)
        return _each(lambda pair: [encode_key(pair[0]), encode_item(pair[1])], value.items())

    def decode(raw: Any) -> Any:
        if type(raw) is dict:  # the natural JSON form
            raw = list(raw.items())
        if type(raw) is not list or not all(
            type(pair) in {list, tuple} and len(pair) == 2 for pair in raw
        ):
            raise wrong_type(label, raw)
        try:
            return dict(_each(lambda pair: (decode_key(pair[0]), decode_item(pair[1])), raw))
        except TypeError as error:
            raise mismatch_of(f"cannot be rebuilt as {label}", error) from error

    return encode, decode


CONTAINERS: Final[Mapping[Any, Callable[[CodecSource, Any, tuple[Any, ...]], TypeCodec]]] = {
    list: _collection(list),
    MutableSequence: _collection(list),
    deque: _collection(deque),
    set: _collection(set, is_sorted=True),
    MutableSet: _collection(set, is_sorted=True),
    AbstractSet: _collection(set, is_sorted=True),
    frozenset: _collection(frozenset, is_sorted=True),
    tuple: _tuple,
    Sequence: _sequence,
    Collection: _sequence,
    Iterable: _sequence,
    dict: _dict,
    Mapping: _dict,
    MutableMapping: _dict,
}
