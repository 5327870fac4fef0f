"""``app.codec``: how values of an annotation are stored as JSON, and rebuilt from it.

Encoding is strict: a value must have exactly the type of the annotation, because the handler
gets a value of that type. Decoding also accepts the natural JSON form of a type (text for a
datetime, base64 for bytes), which configuration files, the command line and other languages write.
"""

import sys
import types
from collections.abc import Callable, Sequence
from threading import RLock
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    ForwardRef,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from tickwork._payload.class_codecs import ObjectCodec, class_codec, fields_of
from tickwork._payload.codec import SIMPLE, SIZE_MAX, Mismatch, make_plain
from tickwork._payload.container_codecs import CONTAINERS
from tickwork._payload.type_codecs import (
    LEAVES,
    NONE_CODEC,
    TypeCodec,
    Unresolved,
    WrongType,
    as_is,
    exactness_of,
    join_raw,
    label_of,
    literal_codec,
    mismatch_of,
    wrong_type,
)
from tickwork.errors import InvalidOption

T = TypeVar("T")

TYPE_KEY: Final = "$type"
VALUE_KEY: Final = "$value"
_TYPED: Final = frozenset({TYPE_KEY, VALUE_KEY})
_WRAPPERS: Final = frozenset({Required, NotRequired, Final, ClassVar})


class Codec:
    """``app.codec``: how arguments and results are stored.

    Standard types, dataclasses, Pydantic models, msgspec Structs and attrs classes need no
    registration. For another class, give two functions:

    >>> from fractions import Fraction
    >>> from tickwork import Tickwork
    >>> app = Tickwork("memory://")
    >>> app.codec.register(
    ...     Fraction, encode=str, decode=Fraction
    ... )
    >>> @app.job
    ... def half(share: Fraction) -> Fraction:
    ...     return share / 2
    >>> run = half.dispatch(share=Fraction(1, 3))
    >>> app.run(), run.result()
    (1, Fraction(1, 6))
    """

    def __init__(self, *, size_max: int = SIZE_MAX, on_change: Callable[[], None]) -> None:
        self._size_max = size_max
        self._on_change = on_change
        self._registered: dict[type, TypeCodec] = {}
        self._cache: dict[object, TypeCodec] = {}
        self._building: dict[object, TypeCodec] = {}  # by type: types can refer to each other
        self._lock = RLock()
        self.untyped: TypeCodec = TypeCodec(
            "Any",
            self._encode_untyped,
            as_is,
            matches=lambda _: True,
            raw=None,
            simple=SIMPLE,
            kept={*LEAVES, list, dict, tuple},
        )

    def register(
        self, kind: type[T], /, encode: Callable[[T], Any], decode: Callable[[Any], T]
    ) -> None:
        """Store values of this class as what ``encode`` returns; ``decode`` rebuilds them.

        ``encode`` may return any value that an argument without annotation may have. The codec is
        used for parameters, fields and results that are annotated with the class.
        """
        if not isinstance(kind, type):
            raise InvalidOption("codec.register", kind, "must be a class")

        def encode_registered(value: Any) -> object:
            if not isinstance(value, kind):
                raise wrong_type(kind.__name__, value)
            try:
                encoded = encode(value)
            except Exception as error:
                raise mismatch_of("cannot be encoded", error) from error
            return self._encode_untyped(encoded)

        def decode_registered(raw: Any) -> T:
            try:
                return decode(raw)
            except Exception as error:
                raise mismatch_of(f"cannot be rebuilt as {kind.__name__}", error) from error

        self._registered[kind] = TypeCodec(
            kind.__name__,
            encode_registered,
            decode_registered,
            matches=lambda value: isinstance(value, kind),
            raw=None,
            exactness=exactness_of(kind),
        )
        with self._lock:
            self._cache.clear()
        self._on_change()

    def codec_of(self, hint: Any) -> TypeCodec:
        """The codec of an annotation.

        Raises:
            Unresolved: It names a type that cannot be found.
        """
        try:
            codec = self._cache.get(hint)
        except TypeError:  # an annotation that cannot be hashed
            with self._lock:
                return self._build(hint)
        if codec is not None:
            return codec
        with self._lock:
            if hint in self._building:
                return self._building[hint]
            is_outermost = not self._building
            try:
                codec = self._building[hint] = self._build(hint)
                if is_outermost:
                    # All of them are complete now, so other threads may use them.
                    self._cache.update(self._building)
                return codec
            finally:
                if is_outermost:
                    self._building.clear()

    def _encode_untyped(self, value: object) -> object:
        return make_plain(value, size_max=self._size_max)

    def _build(self, hint: Any) -> TypeCodec:
        if hint is Any or hint is object:
            return self.untyped
        if hint is None or hint is type(None):
            return NONE_CODEC
        if isinstance(hint, str | ForwardRef):
            raise Unresolved(hint if isinstance(hint, str) else hint.__forward_arg__)
        if isinstance(hint, NewType):
            return self.codec_of(hint.__supertype__)
        if isinstance(hint, TypeVar):
            if hint.__constraints__:
                return self._union(hint.__constraints__, str(hint))
            return self.untyped if hint.__bound__ is None else self.codec_of(hint.__bound__)
        if type(hint).__name__ == "TypeAliasType":
            self._building[hint] = self.untyped  # for an alias that refers to itself
            return self.codec_of(hint.__value__)
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._annotated(hint, args[0])
        if origin in _WRAPPERS:
            return self.codec_of(args[0])
        if origin is Union or origin is types.UnionType:
            return self._union(args, label_of(hint))
        if origin is Literal:
            return literal_codec(args, self)
        kind = hint if origin is None else origin
        if not isinstance(kind, type):
            return self.untyped
        if kind in self._registered:
            return self._registered[kind]
        if kind in LEAVES:
            return LEAVES[kind]
        container = CONTAINERS.get(kind)
        if container is not None:
            return container(self, hint, args)
        codec = class_codec(self, hint, kind)
        if isinstance(codec, ObjectCodec):
            self._building[hint] = codec  # first: a field may have this type itself
            codec.fill(fields_of(self, kind, args))
        return codec

    # ------------------------------------------------------------ special forms

    def _annotated(self, hint: Any, inner: Any) -> TypeCodec:
        codec = self.codec_of(inner)
        check = constraint_of(hint)
        if check is None:
            return codec
        encode, decode = codec.encode, codec.decode

        def encode_checked(value: Any) -> object:
            plain = encode(value)
            check(value)
            return plain

        def decode_checked(raw: Any) -> Any:
            value = decode(raw)
            check(value)
            return value

        return TypeCodec(
            codec.label,
            encode_checked,
            decode_checked,
            matches=codec.matches,
            raw=codec.raw,
            exactness=codec.exactness,
        )

    def _union(self, hints: Sequence[Any], label: str) -> TypeCodec:
        members = [self.codec_of(each) for each in hints]
        names = [each.label for each in members]
        labels = {
            member: label if names.count(label) == 1 else f"{label}:{position}"
            for position, (member, label) in enumerate(zip(members, names, strict=True))
        }
        by_label = {label: member for member, label in labels.items()}
        shared = {each for each in members if is_ambiguous(each, members)}
        by_raw = {raw: each for each in members if each not in shared for raw in each.raw or ()}

        def encode(value: Any) -> object:
            first: Mismatch | None = None
            for member in members:
                if not member.matches(value):
                    continue
                try:
                    plain = member.encode(value)
                except Mismatch as mismatch:
                    first = first or mismatch
                    continue
                if member in shared:
                    return {TYPE_KEY: labels[member], VALUE_KEY: plain}
                return plain
            raise first or wrong_type(label, value)

        def decode(raw: Any) -> Any:
            kind = type(raw)
            if kind in by_raw:
                return by_raw[kind].decode(raw)
            tried: Sequence[TypeCodec] = members
            if kind is dict and raw.keys() == _TYPED and raw[TYPE_KEY] in by_label:
                tried, raw = [by_label[raw[TYPE_KEY]]], raw[VALUE_KEY]
            mismatch: Mismatch | None = None
            for member in tried:
                try:
                    return member.decode(raw)
                except Mismatch as error:
                    mismatch = error
            if len(tried) == 1 and mismatch is not None:
                raise mismatch
            raise wrong_type(label, raw)

        return TypeCodec(
            label,
            encode,
            decode,
            matches=lambda value: any(each.matches(value) for each in members),
            raw=join_raw(members),
            exactness=max(each.exactness for each in members),
            simple={kind for each in members if each not in shared for kind in each.simple},
            kept={kind for each in members if each not in shared for kind in each.kept},
        )


def is_ambiguous(codec: TypeCodec, members: Sequence[TypeCodec]) -> bool:
    """Whether another member of a union has the same stored form."""
    for other in members:
        if other is codec:
            continue
        if codec.raw is None or other.raw is None or codec.raw & other.raw:
            return True
    return False


def constraint_of(hint: Any) -> Callable[[Any], None] | None:
    """The check of constraints of Pydantic or msgspec, such as ``Field(gt=0)``."""
    roots = {type(each).__module__.partition(".")[0] for each in hint.__metadata__}
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if pydantic is not None and roots & {"pydantic", "annotated_types"}:
        try:
            adapter = pydantic.TypeAdapter(hint)
        except Exception:  # noqa: BLE001  # a type that Pydantic does not know
            return None
        return lambda value: _check_by(lambda: adapter.validate_python(value, strict=True))
    if msgspec is not None and "msgspec" in roots:
        return lambda value: _check_by(lambda: msgspec.convert(value, hint, strict=True))
    return None


def _check_by(validate: Callable[[], object]) -> None:
    try:
        validate()
    except Exception as error:  # noqa: BLE001  # code of the program
        errors = getattr(error, "errors", None)
        if errors is None:
            raise WrongType(f"does not fit: {error}.") from None
        raise WrongType(f"does not fit: {errors(include_input=False)[0]['msg']}.") from None
