"""What a handler takes, and whether a call fits."""

from __future__ import annotations  # annotations are texts here, as in many programs

from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

from tickwork import RunContext, Secret
from tickwork._define.arguments import (
    encoded,
    masked_args,
    names_taken,
    parameters_of,
    positionals_taken,
)
from tickwork.errors import ArgumentError, DefinitionError, PayloadTooLarge

if TYPE_CHECKING:
    from somewhere.else_ import Unknown  # type: ignore[import-not-found]


def taken(function: Any) -> Any:
    return parameters_of(function, context_type=RunContext)


def send(to: str, subject: str = "Hello", *, urgent: bool = False) -> None:
    """A handler as most are."""


class TestBinding:
    """Arguments are stored by the names of the parameters; positionals are bound to them."""

    def test_positionals_get_the_names_of_the_parameters(self):
        assert taken(send).bind("send", ("ann",), {"urgent": True}) == {
            "to": "ann",
            "urgent": True,
        }

    def test_what_is_missing_may_still_come_from_the_definition(self):
        assert taken(send).bind("send", (), {}) == {}

    def test_too_many_positionals_are_refused(self):
        def one(first: int) -> None: ...

        with pytest.raises(ArgumentError, match="2 positional arguments are too many"):
            taken(one).bind("one", (1, 2), {})

    def test_a_keyword_only_parameter_is_not_bound_by_position(self):
        with pytest.raises(ArgumentError, match="3 positional arguments are too many"):
            taken(send).bind("send", ("ann", "Hi", True), {})

    def test_the_same_one_twice_is_refused(self):
        with pytest.raises(ArgumentError, match="'to' is given twice"):
            taken(send).bind("send", ("ann",), {"to": "bob"})


class TestChecking:
    """A call has every argument that is required, and none that the handler does not take."""

    @pytest.mark.parametrize(
        "given", [{"to": "ann"}, {"to": "ann", "subject": "Hi", "urgent": True}]
    )
    def test_defaults_may_be_left_out(self, given):
        taken(send).check("send", given)

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({}, "'to' is missing"),
            ({"to": "ann", "cc": "bob"}, "it takes no argument 'cc'"),
        ],
    )
    def test_anything_else_is_an_error_that_shows_the_signature(self, given, reason):
        with pytest.raises(ArgumentError, match=reason) as caught:
            taken(send).check("send", given)

        assert caught.value.job == "send"
        assert "subject: 'str' = 'Hello'" in caught.value.signature

    def test_all_that_is_missing_is_named_in_the_order_of_the_signature(self):
        def move(source: str, target: str) -> None: ...

        with pytest.raises(ArgumentError, match="'source', 'target' are missing"):
            taken(move).check("move", {})

    def test_a_handler_with_kwargs_takes_any_name(self):
        def note(kind: str, **rest: object) -> None: ...

        taken(note).check("note", {"kind": "a", "whatever": 1})
        with pytest.raises(ArgumentError, match="'kind' is missing"):
            taken(note).check("note", {"whatever": 1})


class TestRefused:
    """A handler whose arguments cannot be passed by name is refused when it is defined."""

    def test_a_positional_only_parameter(self):
        def move(source: str, /, target: str) -> None: ...

        with pytest.raises(DefinitionError, match="'source' is positional-only"):
            taken(move)

    def test_a_positional_only_context(self):
        def move(ctx: RunContext, /, target: str) -> None: ...

        with pytest.raises(DefinitionError, match="'ctx' is positional-only"):
            taken(move)

    def test_any_number_of_positionals(self):
        def add(*numbers: int) -> None: ...

        with pytest.raises(DefinitionError, match="'numbers' takes any number"):
            taken(add)

    def test_something_without_a_signature(self):
        def odd() -> None: ...

        odd.__signature__ = "none"  # type: ignore[attr-defined]

        with pytest.raises(DefinitionError, match="Wrap it in a function of your own"):
            taken(odd)


class TestContext:
    """A parameter that is annotated as RunContext is injected, and is no argument."""

    def test_wherever_it_stands(self):
        def first(ctx: RunContext, number: int) -> None: ...
        def last(number: int, ctx: RunContext) -> None: ...
        def named(number: int, *, about: RunContext) -> None: ...

        assert [taken(each).context for each in (first, last, named)] == ["ctx", "ctx", "about"]
        assert {taken(each).names for each in (first, last, named)} == {("number",)}
        assert taken(first).bind("first", (5,), {}) == {"number": 5}

    def test_it_is_not_in_the_signature_that_people_see(self):
        def work(ctx: RunContext, number: int) -> None: ...

        assert taken(work).shown == "(number: 'int')"

    def test_an_optional_one(self):
        def old(ctx: Optional[RunContext] = None) -> None: ...  # noqa: UP045  # it is common
        def new(ctx: RunContext | None = None) -> None: ...
        def noted(ctx: Annotated[RunContext, "injected"]) -> None: ...

        assert [taken(each).context for each in (old, new, noted)] == ["ctx"] * 3
        assert taken(old).required == frozenset()

    def test_where_another_annotation_cannot_be_evaluated(self):
        def work(ctx: RunContext | None, other: Unknown) -> None: ...

        assert taken(work).context == "ctx"
        assert taken(work).names == ("other",)

    def test_where_it_cannot_be_evaluated_itself(self):
        def work(ctx: RunContext | None, number: int) -> None: ...
        def qualified(number: int, ctx: tickwork.RunContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        work.__annotations__["ctx"] = "Optional[missing.RunContext]"

        assert [taken(work).context, taken(qualified).context] == ["ctx", "ctx"]

    def test_a_list_of_them_is_an_argument(self):
        def work(contexts: list[RunContext]) -> None: ...
        def other(strange: MyRunContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        assert taken(work).context is None
        assert taken(other).context is None

    def test_its_name_alone_does_not_make_it_one(self):
        def work(ctx, number): ...

        assert taken(work).names == ("ctx", "number")


class TestSecrets:
    """An argument that is annotated as Secret is masked wherever people look."""

    def test_it_is_found_however_it_is_written(self):
        def charge(
            card: Secret[str],
            pin: Secret[int] | None,
            codes: list[Secret[str]],
            amount: int,
        ) -> None: ...

        assert taken(charge).secrets == {"card", "pin", "codes"}

    def test_it_is_found_where_another_annotation_cannot_be_evaluated(self):
        def charge(card: Secret[str], other: Unknown, hidden: Secret[Unknown]) -> None: ...

        assert taken(charge).secrets == {"card", "hidden"}

    def test_it_is_an_argument_as_any_other(self):
        def charge(card: Secret[str], amount: int) -> None: ...

        assert taken(charge).bind("charge", ("4111", 5), {}) == {"card": "4111", "amount": 5}

    def test_it_is_masked(self):
        shown = masked_args({"card": "4111", "amount": 5}, frozenset({"card"}))

        assert shown == {"card": "***", "amount": 5}


class TestKindsOfCallables:
    """A partial, a method, a wrapped function and a callable object are read as what they call."""

    def test_a_partial_has_what_is_left(self):
        def work(number: int, ctx: RunContext, *, card: Secret[str], note: str = "") -> None: ...

        found = taken(partial(partial(work, 5), note="x"))

        assert found.names == ("card", "note")
        assert (found.context, found.secrets) == ("ctx", {"card"})
        assert found.required == {"card"}

    def test_a_method_is_without_its_self(self):
        class Mailer:
            def send(self, to: str, ctx: RunContext) -> None: ...

            @classmethod
            def make(cls, card: Secret[str]) -> None: ...

        assert (taken(Mailer().send).names, taken(Mailer().send).context) == (("to",), "ctx")
        assert taken(Mailer.make).secrets == {"card"}

    def test_a_callable_object(self):
        class Sender:
            def __call__(self, to: Secret[str], ctx: RunContext) -> None: ...

        found = taken(Sender())

        assert (found.names, found.context, found.secrets) == (("to",), "ctx", {"to"})

    def test_a_wrapped_function_has_the_signature_of_what_it_wraps(self):
        def loud(function: Any) -> Any:
            @wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            return wrapper

        @loud
        def work(to: Secret[str], ctx: RunContext) -> None: ...

        assert (taken(work).names, taken(work).context, taken(work).secrets) == (
            ("to",),
            "ctx",
            {"to"},
        )


class TestFiltersAndHooks:
    """They may take less than there is: as many arguments as they name."""

    def test_the_names_that_a_filter_takes(self):
        assert names_taken(lambda kind, ctx: True) == frozenset({"kind", "ctx"})
        assert names_taken(lambda: True) == frozenset()
        assert names_taken(lambda **any_: True) is None

    def test_how_much_a_hook_takes(self):
        assert positionals_taken(lambda: None) == 0
        assert positionals_taken(lambda ctx, result: None) == 2
        assert positionals_taken(lambda ctx, *, loud=True: None) == 1
        assert positionals_taken(lambda *facts: None) is None

    def test_they_need_not_be_hashable(self):
        @dataclass
        class Holiday:
            name: str

            def __call__(self, kind: str) -> bool:
                return kind == self.name

        assert names_taken(Holiday("easter")) == frozenset({"kind"})
        assert positionals_taken(Holiday("easter")) == 1


class TestEncoding:
    """Arguments are stored as JSON, within a limit."""

    def test_nothing_is_an_empty_object(self):
        assert encoded({}, size_max=1) == "{}"

    def test_what_is_too_large_is_refused(self):
        with pytest.raises(PayloadTooLarge):
            encoded({"text": "x" * 100}, size_max=50)
