"""Endpoints of the REST API: each is one typed function, whose signature is the request."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar, get_args, get_type_hints

from tickwork.dashboard.fields import (
    BODY,
    KEY_HEADER,
    PATH,
    QUERY,
    InputField,
    fields_of,
    read_annotation,
)

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One operation of the API.

    The parameters of the function are those of the request, with the types of ``fields``; the
    first one is what the function works on, and the second one that of the path, if it has one.
    Its result and the first line of its docstring are in the OpenAPI document.
    """

    method: str
    path: str
    function: Callable[..., Any]
    tag: str = ""
    status: int = 200
    errors: tuple[int, ...] = ()
    either: tuple[str, ...] = ()  # fields of which the body has one, and no more
    is_either_required: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def summary(self) -> str:
        return (self.function.__doc__ or "").splitlines()[0]

    @cached_property
    def result(self) -> Any:
        """The type of the response; None if there is no content."""
        found = get_type_hints(self.function, include_extras=True)["return"]
        return None if found is type(None) else found

    @cached_property
    def fields(self) -> tuple[InputField, ...]:
        return tuple(self._read_signature())

    @property
    def has_key(self) -> bool:
        """Whether it takes an idempotency key."""
        return any(each.name == KEY_HEADER for each in self.fields_in("header"))

    def fields_in(self, place: str) -> tuple[InputField, ...]:
        return tuple(each for each in self.fields if each.place.name == place)

    def _read_signature(self) -> Iterator[InputField]:
        place = QUERY if self.method in {"GET", "DELETE"} else BODY
        hints = get_type_hints(self.function, include_extras=True)
        [_, *parameters] = inspect.signature(self.function).parameters.values()
        if "{" in self.path:
            name = self.path.partition("{")[2].partition("}")[0]
            hint = hints[parameters.pop(0).name]
            yield read_annotation(name, hint, place=PATH, is_required=True)
        for each in parameters:
            if each.kind is each.VAR_KEYWORD:  # Unpack[the declaration]
                [declared] = get_args(hints[each.name])
                yield from fields_of(declared, place)
            else:
                is_required = each.default is each.empty
                yield read_annotation(
                    each.name, hints[each.name], place=place, is_required=is_required
                )


READS: Final[list[Endpoint]] = []


def read(
    path: str, *, tag: str = "", errors: tuple[int, ...] = ()
) -> Callable[[FunctionT], FunctionT]:
    """Add a function that reads, and that every user may call, to the API."""

    def declare(function: FunctionT) -> FunctionT:
        READS.append(
            Endpoint(
                method="GET",
                path=path,
                function=function,
                tag=tag or path.split("/")[1],
                errors=errors or ((404,) if "{" in path else ()),
            )
        )
        return function

    return declare
