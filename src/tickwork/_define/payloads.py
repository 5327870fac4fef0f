"""The payload of a handler: its arguments and its result, encoded and rebuilt by annotation."""

import inspect
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Union, Unpack, get_args, get_origin

from tickwork._define.arguments import Parameters, hints_of
from tickwork._define.class_codecs import class_hints, warn_unresolved
from tickwork._define.handlers import Handler
from tickwork._define.payload_types import Codec
from tickwork._define.type_codecs import EXACT, TypeCodec, Unresolved, WrongType
from tickwork._domain.outcome import JobResult
from tickwork._domain.run import NO_ARGS
from tickwork._kernel.codec import (
    INT_MAX,
    SIMPLE,
    Unfit,
    decode,
    encode_checked,
    escape,
)
from tickwork.errors import ArgumentError, NotSerializable, PayloadMismatch, PayloadUnreadable

_NOTHING: Final[frozenset[type]] = frozenset()
_NO_DEFAULTS: Final[Mapping[str, Any]] = {}


class HandlerPayload:
    """Encodes and rebuilds the arguments and results of one handler.

    Annotations are resolved at the first use, because a type that they name may not exist yet
    when the job is defined. An argument whose annotation cannot be resolved even then is stored
    as one without annotation. ``defaults`` are the arguments that the job sets.
    """

    __slots__ = (
        "_checked",
        "_codec",
        "_codec_by_name",
        "_defaults",
        "_handler",
        "_is_trial",
        "_job",
        "_kept",
        "_rest",
        "_rest_kinds",
        "_result",
        "_secrets",
        "_simple",
        "_size_max",
    )

    def __init__(
        self,
        job: str,
        handler: Handler,
        codec: Codec,
        *,
        size_max: int,
        secrets: frozenset[str],
        defaults: Mapping[str, Any] = _NO_DEFAULTS,
        is_trial: bool = False,
    ) -> None:
        self._job = job
        self._handler = handler
        self._codec = codec
        self._size_max = size_max
        self._secrets = secrets
        self._defaults = defaults
        self._is_trial = is_trial
        # By parameter: the types that are stored as they are.
        self._simple: dict[str, frozenset[type]] | None = None
        self._codec_by_name: dict[str, TypeCodec] = {}
        self._rest: TypeCodec | None = None  # of **kwargs
        self._rest_kinds = _NOTHING
        # By parameter: the types that are passed to the handler as they were decoded.
        self._kept: dict[str, frozenset[type]] = {}
        self._checked = False
        self._result: TypeCodec = codec.untyped

    def encode_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Merge the arguments of a dispatch with the defaults, check them, and encode them.

        Raises:
            ArgumentError: They do not fit the handler.
            NotSerializable: One cannot be stored.
        """
        parameters = self._handler.parameters
        given = parameters.bind(self._job, args, kwargs) if args else kwargs
        if self._defaults:
            given = {**self._defaults, **given}
        if not parameters.required <= given.keys() <= parameters.known:
            parameters.check(self._job, given)
        return self.encode(given)

    def encode_calls(self, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """The same for many dispatches."""
        if self._defaults:
            return [self.encode_call((), kwargs) for kwargs in calls]
        parameters, encode = self._handler.parameters, self.encode
        required, known = parameters.required, parameters.known
        texts = []
        for kwargs in calls:
            if not required <= kwargs.keys() <= known:
                parameters.check(self._job, kwargs)
            texts.append(encode(kwargs))
        return texts

    def encode(self, given: Mapping[str, Any]) -> str:
        """Check the types of arguments and encode them. Required ones may be missing.

        Raises:
            ArgumentError: One has another type than its parameter.
            NotSerializable: One cannot be stored.
        """
        if not given:
            return NO_ARGS
        simple = self._simple
        if simple is None:
            simple = self._resolve()
        rest = self._rest_kinds
        # Most arguments are stored as they are, and need no more than this loop.
        for name, value in given.items():
            kind = type(value)
            if kind not in simple.get(name, rest) or (
                kind is int and not -INT_MAX <= value <= INT_MAX
            ):
                return self._encode_typed(given)
        plain = given if type(given) is dict else dict(given)
        return encode_checked(escape(plain) if rest else plain, self._size_max)

    def decode(self, text: str) -> dict[str, Any]:
        """Decode and rebuild stored arguments.

        Raises:
            PayloadUnreadable: The text is not a JSON object.
            PayloadMismatch: An argument does not fit its annotation.
        """
        if text == NO_ARGS:
            return {}
        args = decode(text)
        if type(args) is not dict:
            raise PayloadUnreadable(f"the arguments are {type(args).__name__}, not an object.")
        if self._simple is None:
            self._resolve()
        kept = self._kept
        try:
            for name, value in args.items():
                if type(value) not in kept[name]:
                    break
            else:
                return args
        except KeyError:
            pass  # an argument of **kwargs, or one that the handler does not take
        try:
            return self._rebuild(args)
        except Unfit as unfit:
            raise PayloadMismatch(self._job, self._describe(unfit)) from unfit

    def rebuild(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Convert JSON values of the command line or a configuration file to arguments.

        Raises:
            ArgumentError: One does not fit its annotation.
        """
        if self._simple is None:
            self._resolve()
        try:
            return self._rebuild(given)
        except Unfit as unfit:
            raise self._argument_error(unfit) from unfit

    def encode_result(self, value: Any) -> str:
        """Encode what a handler returned.

        Raises:
            NotSerializable: It does not fit the return annotation, or cannot be stored.
        """
        if self._simple is None:
            self._resolve()
        codec = self._result
        try:
            plain = codec.encode(value)
            text = encode_checked(plain, self._size_max)
            if codec.exactness != EXACT and not codec.is_rebuilt(value, codec.decode(decode(text))):
                raise WrongType(_not_rebuilt(value))  # reported like other wrong types
        except Unfit as unfit:
            if isinstance(unfit, WrongType):
                reason = f"{_place('result', unfit)} {unfit.reason}"
                raise NotSerializable("payload", reason, fix=unfit.fix) from unfit
            raise NotSerializable(_place("payload", unfit), unfit.reason, fix=unfit.fix) from unfit
        except RecursionError:
            raise NotSerializable("payload", _CONTAINS_ITSELF) from None
        return text

    def decode_result(self, text: str) -> Any:
        """Decode and rebuild a stored result.

        Raises:
            PayloadMismatch: It does not fit the return annotation.
        """
        if self._simple is None:
            self._resolve()
        try:
            return self._result.decode(decode(text))
        except Unfit as unfit:
            reason = f"{_place('result', unfit)} {unfit.reason}"
            raise PayloadMismatch(self._job, reason, what="result") from unfit

    # ------------------------------------------------------------ the slow path

    def _encode_typed(self, given: Mapping[str, Any]) -> str:
        codec_by_name, rest = self._codec_by_name, self._rest or self._codec.untyped
        plain: dict[str, object] = {}
        name = ""
        try:
            for name, value in given.items():
                plain[name] = codec_by_name.get(name, rest).encode(value)
            text = encode_checked(escape(plain), self._size_max)
            if self._checked:
                self._check_rebuilt(given, text)
        except Unfit as unfit:
            unfit.path.append(f"[{name!r}]")
            if isinstance(unfit, WrongType):
                raise self._argument_error(unfit) from None
            if name in self._secrets:  # its keys and values may be secret
                raise NotSerializable(f"payload[{name!r}]", _NO_JSON) from None
            raise NotSerializable(_place("payload", unfit), unfit.reason, fix=unfit.fix) from None
        except RecursionError:
            raise NotSerializable(f"payload[{name!r}]", _CONTAINS_ITSELF) from None
        return text

    def _check_rebuilt(self, given: Mapping[str, Any], text: str) -> None:
        """Check that the handler will get equal values, where code of the program rebuilds them."""
        args = decode(text)
        for name, value in given.items():
            codec = self._codec_by_name.get(name, self._rest)
            if codec is None or codec.exactness == EXACT:
                continue
            try:
                if not codec.is_rebuilt(value, codec.decode(args[name])):
                    raise WrongType(_not_rebuilt(value))
            except Unfit as unfit:
                unfit.path.append(f"[{name!r}]")
                raise self._argument_error(unfit) from None

    def _rebuild(self, args: Mapping[str, Any]) -> dict[str, Any]:
        codec_by_name, rest = self._codec_by_name, self._rest or self._codec.untyped
        rebuilt: dict[str, Any] = {}
        name = ""
        try:
            for name, value in args.items():
                rebuilt[name] = codec_by_name.get(name, rest).decode(value)
        except Unfit as unfit:
            unfit.path.append(f"[{name!r}]")
            raise
        return rebuilt

    def _argument_error(self, unfit: Unfit) -> ArgumentError:
        parameters = self._handler.parameters
        reason = " ".join(filter(None, [self._describe(unfit), unfit.fix]))
        return ArgumentError(self._job, reason, signature=parameters.text)

    def _describe(self, unfit: Unfit) -> str:
        """The argument and what is wrong with it. The path begins with the argument."""
        *path, first = unfit.path
        name = first[2:-2]
        if name in self._secrets:  # the path could contain its keys, the reason its value
            is_type = isinstance(unfit, WrongType)
            return f"{name} {unfit.reason if is_type else 'does not fit its annotation.'}"
        return f"{name}{''.join(reversed(path))} {unfit.reason}"

    # ------------------------------------------------------------ annotations

    def _resolve(self) -> dict[str, frozenset[type]]:
        handler, codec = self._handler, self._codec
        parameters = handler.parameters
        hints = hints_of(handler.call) if not handler.takes_run else {}
        found = {name: self._find(name, hints, parameters) for name in parameters.names}
        rest_name = _rest_of(parameters)
        rest = None if rest_name is None else hints.get(rest_name, Any)
        if get_origin(rest) is Unpack:
            fields = class_hints(get_args(rest)[0])
            found |= {name: self._find(name, fields, parameters) for name in fields}
        elif rest is not None and rest_name is not None:
            self._rest = self._find(rest_name, hints, parameters)
        self._codec_by_name = found
        self._rest_kinds = SIMPLE if self._rest is codec.untyped else _NOTHING
        self._kept = {name: each.kept for name, each in found.items()}
        known = [*found.values(), *([] if self._rest is None else [self._rest])]
        self._checked = any(each.exactness != EXACT for each in known)
        self._result = self._find_result(hints)
        # Set last: another thread may use this object meanwhile.
        self._simple = {name: each.simple for name, each in found.items()}
        return self._simple

    def _find(self, name: str, hints: Mapping[str, Any], parameters: Parameters) -> TypeCodec:
        hint = hints.get(name)
        if hint is None:
            parameter = parameters.signature.parameters.get(name)
            if parameter is None or parameter.annotation is inspect.Parameter.empty:
                return self._codec.untyped
            hint = parameter.annotation
        try:
            return self._codec.codec_of(hint)
        except Unresolved as unresolved:
            if not self._is_trial:
                warn_unresolved(f"The parameter {name!r} of the job {self._job!r}", unresolved)
            return self._codec.untyped

    def _find_result(self, hints: Mapping[str, Any]) -> TypeCodec:
        hint = _without_job_result(hints.get("return", Any))
        if self._handler.returns_success or hint is None or hint is NoneType:
            return self._codec.untyped  # ctx.complete() can have a result nevertheless
        return self._codec.codec_of(hint)


_NO_JSON: Final = "a part of it has no JSON form."
_CONTAINS_ITSELF: Final = "it is nested too deeply, or contains itself."


def _place(start: str, unfit: Unfit) -> str:
    return start + "".join(reversed(unfit.path))


def _not_rebuilt(value: object) -> str:
    return f"would not be rebuilt: the handler would get a different {type(value).__name__}."


def _rest_of(parameters: Parameters) -> str | None:
    for name, each in parameters.signature.parameters.items():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            return name
    return None


def _without_job_result(hint: Any) -> Any:
    """The type of the output, where a handler may return it in a JobResult."""
    if hint is JobResult:
        return Any
    args = get_args(hint)
    if get_origin(hint) not in {Union, UnionType} or JobResult not in args:
        return hint
    return Union[tuple(each for each in args if each is not JobResult)]  # noqa: UP007  # computed
