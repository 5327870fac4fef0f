"""Codecs of classes: dataclasses, named tuples, TypedDicts, attrs, Pydantic, msgspec."""

import inspect
import sys
import types
import warnings
from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar, get_type_hints, is_typeddict
from uuid import UUID

from tickwork._payload.codec import Mismatch, encode_simple, escape
from tickwork._payload.type_codecs import (
    COMPARED,
    EXACT,
    CodecSource,
    TypeCodec,
    Unresolved,
    WrongType,
    enum_codec,
    exactness_of,
    label_of,
    mismatch_of,
    path_codec,
    wrong_type,
)


def class_codec(source: CodecSource, hint: Any, kind: type) -> TypeCodec:
    """The codec of a class. An :class:`ObjectCodec` needs its fields, too."""
    if issubclass(kind, Enum):
        return enum_codec(kind)
    if issubclass(kind, PurePath):
        return path_codec(kind)
    if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json"):
        return _pydantic(source, kind)
    if hasattr(kind, "__struct_fields__") and "msgspec" in sys.modules:
        return _struct(source, hint, kind)
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if is_tuple or is_typeddict(kind) or is_dataclass(kind) or hasattr(kind, "__attrs_attrs__"):
        return ObjectCodec(kind, label_of(hint))
    return _opaque(source, kind)


def fields_of(source: CodecSource, kind: Any, args: tuple[Any, ...]) -> "tuple[StoredField, ...]":
    hints = class_hints(kind)
    # The arguments of a generic class: Box[int]
    type_arguments = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))

    def codec(name: str) -> TypeCodec:
        hint = hints.get(name, Any)
        try:
            return source.codec_of(substitute(hint, type_arguments))
        except Unresolved as unresolved:
            warn_unresolved(f"The field {name!r} of {kind.__qualname__}", unresolved)
            return source.untyped

    if is_typeddict(kind):
        return tuple(
            StoredField(name, name, codec(name), is_required=name in kind.__required_keys__)
            for name in hints
        )
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(
            StoredField(each.name, each.alias, codec(each.name), is_required=is_bare(each.default))
            for each in kind.__attrs_attrs__
            if each.init
        )
    if is_dataclass(kind):
        return tuple(
            StoredField(
                each.name,
                each.name,
                codec(each.name),
                is_required=each.default is MISSING and each.default_factory is MISSING,
            )
            for each in fields(kind)
            if each.init
        )
    return tuple(
        StoredField(name, name, codec(name), is_required=name not in kind._field_defaults)
        for name in kind._fields
    )


def _pydantic(source: CodecSource, kind: Any) -> TypeCodec:
    by_name = {"by_name": True, "by_alias": False}
    if "by_name" not in kind.model_validate_json.__func__.__code__.co_varnames:
        by_name = {}  # before Pydantic 2.11
    label = kind.__name__

    def encode(value: Any) -> object:
        if type(value) is not kind:
            raise wrong_type(label, value, kind)
        try:
            plain = value.model_dump(
                mode="json", by_alias=not by_name, round_trip=True, warnings=False
            )
        except Exception as error:  # noqa: BLE001  # code of the program; its text contains values
            raise Mismatch(f"{label} cannot be encoded: {type(error).__name__}.") from None
        return source.untyped.encode(plain)

    def decode(raw: Any) -> Any:
        try:
            return kind.model_validate_json(json_text(raw), strict=True, **by_name)
        except Exception as error:  # noqa: BLE001  # code of the program
            raise _pydantic_mismatch(label, error) from None

    is_root = hasattr(kind, "__pydantic_root_model__") and kind.__pydantic_root_model__
    return TypeCodec(
        label,
        encode,
        decode,
        matches=lambda value: type(value) is kind,
        raw=None if is_root else (dict,),
        exactness=COMPARED,
    )


def _struct(source: CodecSource, hint: Any, kind: type) -> TypeCodec:
    msgspec = sys.modules["msgspec"]
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(hint)
    label = label_of(hint)

    def encode(value: Any) -> object:
        if type(value) is not kind:
            raise wrong_type(label, value, kind)
        try:
            plain = msgspec.json.decode(encoder.encode(value))
        except Exception as error:
            raise mismatch_of("cannot be encoded", error) from error
        return source.untyped.encode(plain)

    def decode(raw: Any) -> Any:
        try:
            return decoder.decode(json_text(raw))
        except Exception as error:
            raise mismatch_of(f"cannot be rebuilt as {label}", error) from error

    return TypeCodec(
        label,
        encode,
        decode,
        matches=lambda value: type(value) is kind,
        raw=(list,) if kind.__struct_config__.array_like else (dict,),  # type: ignore[attr-defined]
        exactness=exactness_of(kind),
    )


def _opaque(source: CodecSource, kind: type) -> TypeCodec:
    """A class that has no codec. An abstract one may be implemented by plain types."""
    is_abstract = isinstance(kind, ABCMeta) and not _is_concrete(kind)

    def matches(value: Any) -> bool:
        try:
            return isinstance(value, kind)
        except TypeError:  # a Protocol that cannot be checked
            return True

    def encode(value: Any) -> object:
        if not matches(value):
            raise wrong_type(kind.__name__, value)
        if is_abstract:
            return source.untyped.encode(value)
        raise Mismatch(
            f"a {type(value).__qualname__} has no JSON form.",
            fix=f"Register the class: app.codec.register({kind.__name__}, encode=..., decode=...).",
        )

    def decode(raw: Any) -> Any:
        if is_abstract or matches(raw):
            return raw
        raise wrong_type(kind.__name__, raw)

    return TypeCodec(kind.__name__, encode, decode, matches=matches, raw=None)


# ---------------------------------------------------------------- objects with fields


class StoredField(NamedTuple):
    name: str  # of the attribute
    key: str  # of the parameter of the constructor, and of the stored field
    codec: TypeCodec
    is_required: bool


class ObjectCodec(TypeCodec):
    """Dataclasses, attrs classes, named tuples and TypedDicts: stored as objects by field."""

    __slots__ = ("_keys", "_kind", "_values_of", "fields")

    def __init__(self, kind: Any, label: str) -> None:
        is_dict = is_typeddict(kind)
        self._kind = dict if is_dict else kind
        self.fields: tuple[StoredField, ...] = ()
        super().__init__(
            label,
            self.encode_object,
            self.decode_object,
            matches=lambda value: type(value) is self._kind,
            raw=(dict,),
            exactness=EXACT if is_dict else exactness_of(kind),
        )

    def fill(self, fields: tuple[StoredField, ...]) -> None:
        """Set the fields. They need this codec first, if a field has the same type."""
        self.fields = fields
        self.exactness = max(self.exactness, *(each.codec.exactness for each in fields), EXACT)

    def encode_object(self, value: Any) -> object:
        kind = self._kind
        if type(value) is not kind:
            raise wrong_type(self.label, value, None if kind is dict else kind)
        if kind is dict:
            self._check_keys(value)
        plain: dict[str, object] = {}
        try:
            for name, key, codec, _ in self.fields:
                if kind is not dict:
                    plain[key] = codec.encode(getattr(value, name))
                elif name in value:
                    plain[key] = codec.encode(value[name])
        except Mismatch as mismatch:
            mismatch.path.append(f"[{name!r}]" if kind is dict else f".{name}")
            raise
        except AttributeError as error:
            raise mismatch_of("cannot be encoded", error) from error
        return escape(plain)

    def decode_object(self, raw: Any) -> Any:
        if type(raw) is list and issubclass(self._kind, tuple):
            # Named tuples without annotation are stored as lists.
            raw = dict(zip((field.key for field in self.fields), raw, strict=False))
        if type(raw) is not dict:
            raise wrong_type(self.label, raw)
        self._check_keys(raw)
        values: dict[str, Any] = {}
        for name, key, codec, _ in self.fields:
            if key not in raw:
                continue
            try:
                values[key] = codec.decode(raw[key])
            except Mismatch as mismatch:
                mismatch.path.append(f"[{name!r}]" if self._kind is dict else f".{name}")
                raise
        try:
            return self._kind(**values)
        except Exception as error:
            raise mismatch_of(f"cannot be rebuilt as {self.label}", error) from error

    def _check_keys(self, raw: Mapping[str, Any]) -> None:
        known = {field.key for field in self.fields}
        if not known.issuperset(raw):
            unknown = min(str(key) for key in raw if key not in known)
            raise WrongType(f"has the unknown field {unknown!r}.")
        for field in self.fields:
            if field.is_required and field.key not in raw:
                raise WrongType(f"lacks {field.key!r}.")


def class_hints(kind: Any) -> dict[str, Any]:
    """The annotations of a class. One that cannot be evaluated stays a string."""
    try:
        return get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
    except Exception:  # noqa: BLE001  # an annotation may name what exists for type checkers only
        return {
            name: _evaluate(hint, base, kind)
            for base in reversed(kind.__mro__)
            for name, hint in inspect.get_annotations(base).items()
        }


def _evaluate(hint: Any, base: type, kind: type) -> Any:
    names = vars(sys.modules.get(base.__module__, types))
    only = types.SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(
            only, globalns=names, localns={kind.__name__: kind}, include_extras=True
        )["hint"]
    except Exception:  # noqa: BLE001  # this annotation cannot be resolved
        return hint if isinstance(hint, str) else str(hint)


def substitute(hint: Any, type_arguments: Mapping[Any, Any]) -> Any:
    """Replace the type variables of a generic class by its arguments."""
    if not type_arguments:
        return hint
    if isinstance(hint, TypeVar):
        return type_arguments.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(type_arguments.get(each, each) for each in parameters)]


def warn_unresolved(what: str, unresolved: Unresolved) -> None:
    warnings.warn(
        f"{what} is not checked: its type {unresolved} cannot be found. Import it where the "
        "program runs, not only for type checkers.",
        UserWarning,
        stacklevel=2,
    )


def is_bare(default: object) -> bool:
    """Whether an attribute of an attrs class has no default."""
    return default is sys.modules["attr"].NOTHING


def _is_concrete(kind: type) -> bool:
    return not getattr(kind, "__abstractmethods__", None) and not getattr(
        kind, "_is_protocol", False
    )


def json_text(raw: Any) -> str:
    """JSON of a decoded value, for libraries that read JSON."""
    try:
        return encode_simple(raw)
    except TypeError:
        return encode_simple(_without_tags(raw))


def _without_tags(raw: Any) -> Any:
    match raw:
        case dict():
            return {key: _without_tags(value) for key, value in raw.items()}
        case list() | tuple():
            return [_without_tags(value) for value in raw]
        case datetime() | date() | time():
            return raw.isoformat()
        case Decimal() | UUID():
            return str(raw)
        case _:
            return raw


def _pydantic_mismatch(label: str, error: Exception) -> Mismatch:
    errors = getattr(error, "errors", None)
    if errors is None:
        return mismatch_of(f"cannot be rebuilt as {label}", error)
    first, *others = errors(include_url=False, include_context=False, include_input=False)
    more = f" ({len(others)} more)" if others else ""
    mismatch = Mismatch(f"does not fit: {first['msg']}{more}.")
    for part in reversed(first["loc"]):
        mismatch.path.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return mismatch
