"""The payload of a handler: its arguments and its result, encoded and rebuilt by annotation."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, Unpack, get_args, get_origin

from tickwork._domain.runs.outcome import JobResult
from tickwork._domain.runs.run import NO_ARGS
from tickwork._handlers.arguments import Parameters, hints_of, is_secret
from tickwork._handlers.handlers import Handler
from tickwork._payload.class_codecs import class_hints, warn_unresolved
from tickwork._payload.codec import (
    INT_MAX,
    SIMPLE,
    Mismatch,
    decode,
    encode_checked,
    escape,
)
from tickwork._payload.payload_types import Codec
from tickwork._payload.type_codecs import EXACT, TypeCodec, Unresolved, WrongType
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
        arguments = parameters.bind(self._job, args, kwargs) if args else kwargs
        if self._defaults:
            arguments = {**self._defaults, **arguments}
        if not parameters.required <= arguments.keys() <= parameters.known:
            parameters.check(self._job, arguments)
        return self.encode(arguments)

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

    def encode(self, arguments: Mapping[str, Any]) -> str:
        """Check the types of arguments and encode them. Required ones may be missing.

        Raises:
            ArgumentError: One has another type than its parameter.
            NotSerializable: One cannot be stored.
        """
        if not arguments:
            return NO_ARGS
        simple = self._simple
        if simple is None:
            simple = self._resolve()
        rest = self._rest_kinds
        # Most arguments are stored as they are, and need no more than this loop.
        for name, value in arguments.items():
            kind = type(value)
            if kind not in simple.get(name, rest) or (
                kind is int and not -INT_MAX <= value <= INT_MAX
            ):
                return self._encode_typed(arguments)
        plain = arguments if type(arguments) is dict else dict(arguments)
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
        except Mismatch as error:
            raise PayloadMismatch(self._job, self._describe(error)) from error

    def rebuild(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert JSON values of the command line or a configuration file to arguments.

        Raises:
            ArgumentError: One does not fit its annotation.
        """
        if self._simple is None:
            self._resolve()
        try:
            return self._rebuild(arguments)
        except Mismatch as error:
            raise self._argument_error(error) from error

    def encode_result(self, value: Any) -> str:
        """Encode what a handler returned.

        Raises:
            NotSerializable: It does not fit the return annotation, or cannot be stored.
        """
        if self._simple is None:
            self._resolve()
        return _encode_result(self._result, value, self._size_max)

    def decode_result(self, text: str) -> Any:
        """Decode and rebuild a stored result.

        Raises:
            PayloadMismatch: It does not fit the return annotation.
        """
        if self._simple is None:
            self._resolve()
        return _decode_result(self._result, text, job=self._job)

    # ------------------------------------------------------------ steps

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        return self._handler.is_async

    def for_step(self, function: Callable[..., Any]) -> "StepPayload":
        """The payload of a step that calls this function, by its return annotation."""
        hint = hints_of(function).get("return", Any)
        codec = self._codec.untyped
        if hint is not None and hint is not NoneType:
            with suppress(Unresolved):
                codec = self._codec.codec_of(hint)
        return StepPayload(codec, self._size_max, is_secret(hint))

    def for_type(self, kind: Any) -> "StepPayload":
        """The payload of a value of this type."""
        return StepPayload(self._codec.codec_of(kind), self._size_max, is_secret(kind))

    # ------------------------------------------------------------ the slow path

    def _encode_typed(self, arguments: Mapping[str, Any]) -> str:
        codec_by_name, rest = self._codec_by_name, self._rest or self._codec.untyped
        plain: dict[str, object] = {}
        name = ""
        try:
            for name, value in arguments.items():
                plain[name] = codec_by_name.get(name, rest).encode(value)
            text = encode_checked(escape(plain), self._size_max)
            if self._checked:
                self._check_rebuilt(arguments, text)
        except Mismatch as error:
            error.path.append(f"[{name!r}]")
            if isinstance(error, WrongType):
                raise self._argument_error(error) from None
            if name in self._secrets:  # its keys and values may be secret
                raise NotSerializable(f"payload[{name!r}]", _NO_JSON) from None
            raise NotSerializable(_place("payload", error), error.reason, fix=error.fix) from None
        except RecursionError:
            raise NotSerializable(f"payload[{name!r}]", _CONTAINS_ITSELF) from None
        return text

    def _check_rebuilt(self, arguments: Mapping[str, Any], text: str) -> None:
        """Check that the handler will get equal values, where code of the program rebuilds them."""
        args = decode(text)
        for name, value in arguments.items():
            codec = self._codec_by_name.get(name, self._rest)
            if codec is None or codec.exactness == EXACT:
                continue
            try:
                if not codec.is_rebuilt(value, codec.decode(args[name])):
                    raise WrongType(_not_rebuilt(value))
            except Mismatch as error:
                error.path.append(f"[{name!r}]")
                raise self._argument_error(error) from None

    def _rebuild(self, args: Mapping[str, Any]) -> dict[str, Any]:
        codec_by_name, rest = self._codec_by_name, self._rest or self._codec.untyped
        rebuilt: dict[str, Any] = {}
        name = ""
        try:
            for name, value in args.items():
                rebuilt[name] = codec_by_name.get(name, rest).decode(value)
        except Mismatch as error:
            error.path.append(f"[{name!r}]")
            raise
        return rebuilt

    def _argument_error(self, error: Mismatch) -> ArgumentError:
        parameters = self._handler.parameters
        reason = " ".join(filter(None, [self._describe(error), error.fix]))
        return ArgumentError(self._job, reason, signature=parameters.text)

    def _describe(self, error: Mismatch) -> str:
        """The argument and what is wrong with it. The path begins with the argument."""
        *path, first = error.path
        name = first[2:-2]
        if name in self._secrets:  # the path could contain its keys, the reason its value
            is_type = isinstance(error, WrongType)
            return f"{name} {error.reason if is_type else 'does not fit its annotation.'}"
        return f"{name}{''.join(reversed(path))} {error.reason}"

    # ------------------------------------------------------------ annotations

    def _resolve(self) -> dict[str, frozenset[type]]:
        handler, codec = self._handler, self._codec
        parameters = handler.parameters
        hints = hints_of(handler.call) if not handler.takes_run else {}
        codecs = {name: self._find(name, hints, parameters) for name in parameters.names}
        rest_name = _rest_of(parameters)
        rest = None if rest_name is None else hints.get(rest_name, Any)
        if get_origin(rest) is Unpack:
            fields = class_hints(get_args(rest)[0])
            codecs |= {name: self._find(name, fields, parameters) for name in fields}
        elif rest is not None and rest_name is not None:
            self._rest = self._find(rest_name, hints, parameters)
        self._codec_by_name = codecs
        self._rest_kinds = SIMPLE if self._rest is codec.untyped else _NOTHING
        self._kept = {name: each.kept for name, each in codecs.items()}
        known = [*codecs.values(), *([] if self._rest is None else [self._rest])]
        self._checked = any(each.exactness != EXACT for each in known)
        self._result = self._find_result(hints)
        # Set last: another thread may use this object meanwhile.
        self._simple = {name: each.simple for name, each in codecs.items()}
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


def encode_data(codec: Codec, data: Any, *, size_max: int) -> str:
    """Encode the data of an event: JSON values.

    Raises:
        PayloadError: It cannot be stored.
    """
    return _encode_result(codec.untyped, data, size_max)


class StepPayload(NamedTuple):
    """Encodes and rebuilds the value of a step, as the result of a handler."""

    codec: TypeCodec
    size_max: int
    is_secret: bool

    def encode(self, value: Any) -> str:
        """Encode what the function of the step returned.

        Raises:
            PayloadError: It does not fit the return annotation, or cannot be stored.
        """
        return _encode_result(self.codec, value, self.size_max)

    def decode(self, text: str) -> Any:
        """Decode and rebuild the stored value.

        Raises:
            PayloadError: It does not fit the return annotation, or cannot be read.
        """
        return _decode_result(self.codec, text, job="")


def _encode_result(codec: TypeCodec, value: Any, size_max: int) -> str:
    try:
        plain = codec.encode(value)
        text = encode_checked(plain, size_max)
        if codec.exactness != EXACT and not codec.is_rebuilt(value, codec.decode(decode(text))):
            raise WrongType(_not_rebuilt(value))  # reported like other wrong types
    except Mismatch as error:
        if isinstance(error, WrongType):
            reason = f"{_place('result', error)} {error.reason}"
            raise NotSerializable("payload", reason, fix=error.fix) from error
        raise NotSerializable(_place("payload", error), error.reason, fix=error.fix) from error
    except RecursionError:
        raise NotSerializable("payload", _CONTAINS_ITSELF) from None
    return text


def _decode_result(codec: TypeCodec, text: str, *, job: str) -> Any:
    try:
        return codec.decode(decode(text))
    except Mismatch as error:
        reason = f"{_place('result', error)} {error.reason}"
        raise PayloadMismatch(job, reason, what="result") from error


_NO_JSON: Final = "a part of it has no JSON form."
_CONTAINS_ITSELF: Final = "it is nested too deeply, or contains itself."


def _place(start: str, error: Mismatch) -> str:
    return start + "".join(reversed(error.path))


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
