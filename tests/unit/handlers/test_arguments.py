"""The parameters of a handler, and the check of a dispatch against them."""

from __future__ import annotations  # annotations are strings here, as in many programs

from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

from tickwork import RunContext, Secret
from tickwork._handlers.arguments import (
    check_hook,
    parameter_names,
    parameters_of,
    plan_hook,
)
from tickwork._masks.secret_mask import mask_args
from tickwork.errors import ArgumentError, DefinitionError

if TYPE_CHECKING:
    from somewhere.else_ import Unknown  # type: ignore[import-not-found]


def read(function: Any) -> Any:
    return parameters_of(function, context_type=RunContext)


def send(to: str, subject: str = "Hello", *, urgent: bool = False) -> None:
    """A typical handler."""


class TestBinding:
    """Arguments are stored by the names of the parameters; positionals are bound to them."""

    def test_positionals_get_the_names_of_the_parameters(self):
        assert read(send).bind("send", ("ann",), {"urgent": True}) == {
            "to": "ann",
            "urgent": True,
        }

    def test_missing_arguments_may_come_from_the_definition(self):
        assert read(send).bind("send", (), {}) == {}

    def test_too_many_positionals_are_refused(self):
        def one(first: int) -> None: ...

        with pytest.raises(ArgumentError, match="2 positional arguments are too many"):
            read(one).bind("one", (1, 2), {})

    def test_a_keyword_only_parameter_is_not_bound_by_position(self):
        with pytest.raises(ArgumentError, match="3 positional arguments are too many"):
            read(send).bind("send", ("ann", "Hi", True), {})

    def test_an_argument_given_twice_is_refused(self):
        with pytest.raises(ArgumentError, match="'to' is given twice"):
            read(send).bind("send", ("ann",), {"to": "bob"})


class TestChecking:
    """A call needs all required arguments, and none that the handler does not take."""

    @pytest.mark.parametrize(
        "given", [{"to": "ann"}, {"to": "ann", "subject": "Hi", "urgent": True}]
    )
    def test_defaults_may_be_left_out(self, given):
        read(send).check("send", given)

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({}, "'to' is missing"),
            ({"to": "ann", "cc": "bob"}, "it takes no argument 'cc'"),
        ],
    )
    def test_a_wrong_call_is_an_error_that_shows_the_signature(self, given, reason):
        with pytest.raises(ArgumentError, match=reason) as caught:
            read(send).check("send", given)

        assert caught.value.job == "send"
        assert "subject: 'str' = 'Hello'" in caught.value.signature

    def test_missing_arguments_are_listed_in_the_order_of_the_signature(self):
        def move(source: str, target: str) -> None: ...

        with pytest.raises(ArgumentError, match="'source', 'target' are missing"):
            read(move).check("move", {})

    def test_a_handler_with_kwargs_takes_any_name(self):
        def note(kind: str, **rest: object) -> None: ...

        read(note).check("note", {"kind": "a", "whatever": 1})
        with pytest.raises(ArgumentError, match="'kind' is missing"):
            read(note).check("note", {"whatever": 1})


class TestRefused:
    """A handler whose arguments cannot be passed by name is refused when it is defined."""

    def test_a_positional_only_parameter(self):
        def move(source: str, /, target: str) -> None: ...

        with pytest.raises(DefinitionError, match="'source' is positional-only"):
            read(move)

    def test_a_positional_only_context(self):
        def move(ctx: RunContext, /, target: str) -> None: ...

        with pytest.raises(DefinitionError, match="'ctx' is positional-only"):
            read(move)

    def test_any_number_of_positionals(self):
        def add(*numbers: int) -> None: ...

        with pytest.raises(DefinitionError, match="'numbers' takes any number"):
            read(add)

    def test_a_callable_without_a_signature(self):
        def odd() -> None: ...

        odd.__signature__ = "none"  # type: ignore[attr-defined]

        with pytest.raises(DefinitionError, match="Wrap it in a function of your own"):
            read(odd)


class TestContext:
    """A parameter that is annotated as RunContext is injected. It is not an argument of the job."""

    def test_it_is_found_at_any_position(self):
        def first(ctx: RunContext, number: int) -> None: ...
        def last(number: int, ctx: RunContext) -> None: ...
        def named(number: int, *, about: RunContext) -> None: ...

        assert [read(each).context for each in (first, last, named)] == ["ctx", "ctx", "about"]
        assert {read(each).names for each in (first, last, named)} == {("number",)}
        assert read(first).bind("first", (5,), {}) == {"number": 5}

    def test_the_shown_signature_does_not_have_it(self):
        def work(ctx: RunContext, number: int) -> None: ...

        assert read(work).text == "(number: 'int')"

    def test_an_optional_one(self):
        def old(ctx: Optional[RunContext] = None) -> None: ...  # noqa: UP045  # it is common
        def new(ctx: RunContext | None = None) -> None: ...
        def noted(ctx: Annotated[RunContext, "injected"]) -> None: ...

        assert [read(each).context for each in (old, new, noted)] == ["ctx"] * 3
        assert read(old).required == frozenset()

    def test_it_is_found_beside_an_annotation_that_cannot_be_evaluated(self):
        def work(ctx: RunContext | None, other: Unknown) -> None: ...

        assert read(work).context == "ctx"
        assert read(work).names == ("other",)

    def test_it_is_found_if_its_own_annotation_cannot_be_evaluated(self):
        def work(ctx: RunContext | None, number: int) -> None: ...
        def qualified(number: int, ctx: tickwork.RunContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        work.__annotations__["ctx"] = "Optional[missing.RunContext]"

        assert [read(work).context, read(qualified).context] == ["ctx", "ctx"]

    def test_a_list_of_contexts_is_an_argument(self):
        def work(contexts: list[RunContext]) -> None: ...
        def other(strange: MyRunContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        assert read(work).context is None
        assert read(other).context is None

    def test_a_parameter_named_ctx_without_annotation_is_an_argument(self):
        def work(ctx, number): ...

        assert read(work).names == ("ctx", "number")


class TestSecrets:
    """An argument that is annotated as Secret is masked wherever it is shown."""

    def test_it_is_found_in_any_spelling(self):
        def charge(
            card: Secret[str],
            pin: Secret[int] | None,
            codes: list[Secret[str]],
            amount: int,
        ) -> None: ...

        assert read(charge).secrets == {"card", "pin", "codes"}

    def test_it_is_found_where_another_annotation_cannot_be_evaluated(self):
        def charge(card: Secret[str], other: Unknown, hidden: Secret[Unknown]) -> None: ...

        assert read(charge).secrets == {"card", "hidden"}

    def test_it_is_passed_like_any_other_argument(self):
        def charge(card: Secret[str], amount: int) -> None: ...

        assert read(charge).bind("charge", ("4111", 5), {}) == {"card": "4111", "amount": 5}

    def test_it_is_masked(self):
        shown = mask_args({"card": "4111", "amount": 5}, frozenset({"card"}))

        assert shown == {"card": "***", "amount": 5}


class TestKindsOfCallables:
    """Partials, methods, wrappers and callable objects have the parameters of what they call."""

    def test_a_partial_has_the_remaining_parameters(self):
        def work(number: int, ctx: RunContext, *, card: Secret[str], note: str = "") -> None: ...

        found = read(partial(partial(work, 5), note="x"))

        assert found.names == ("card", "note")
        assert (found.context, found.secrets) == ("ctx", {"card"})
        assert found.required == {"card"}

    def test_a_method_has_no_self(self):
        class Mailer:
            def send(self, to: str, ctx: RunContext) -> None: ...

            @classmethod
            def make(cls, card: Secret[str]) -> None: ...

        assert (read(Mailer().send).names, read(Mailer().send).context) == (("to",), "ctx")
        assert read(Mailer.make).secrets == {"card"}

    def test_a_callable_object(self):
        class Sender:
            def __call__(self, to: Secret[str], ctx: RunContext) -> None: ...

        found = read(Sender())

        assert (found.names, found.context, found.secrets) == (("to",), "ctx", {"to"})

    def test_a_wrapper_has_the_signature_of_the_wrapped_function(self):
        def loud(function: Any) -> Any:
            @wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            return wrapper

        @loud
        def work(to: Secret[str], ctx: RunContext) -> None: ...

        assert (read(work).names, read(work).context, read(work).secrets) == (
            ("to",),
            "ctx",
            {"to"},
        )


class TestFiltersAndHooks:
    """They may take fewer arguments than are available."""

    def test_the_parameter_names_of_a_filter(self):
        assert parameter_names(lambda kind, ctx: True) == frozenset({"kind", "ctx"})
        assert parameter_names(lambda: True) == frozenset()
        assert parameter_names(lambda **any_: True) is None

    @pytest.mark.parametrize(
        ("kind", "hook", "facts"),
        [
            ("on_before", lambda: None, {}),
            ("on_before", lambda run: None, {"run": "ctx"}),
            ("on_error", lambda error: None, {"error": "error"}),
            ("on_error", lambda exception: None, {"exception": "error"}),
            ("on_error", lambda error, ctx: None, {"error": "error", "ctx": "ctx"}),
            ("on_error", lambda e: None, {"e": "ctx"}),
            ("on_error", lambda ctx, e: None, {"ctx": "ctx", "e": "error"}),
            ("on_error", lambda error, other: None, {"error": "error", "other": "ctx"}),
            ("on_success", lambda result: None, {"result": "result"}),
            ("on_success", lambda ctx, page=3: None, {"ctx": "ctx"}),
            ("on_success", lambda ctx, *, loud=True: None, {"ctx": "ctx"}),
            ("on_success", lambda *, outcome: None, {"outcome": "outcome"}),
            ("on_after", lambda outcome: None, {"outcome": "outcome"}),
            ("on_after", lambda error, result: None, {"error": "error", "result": "result"}),
            ("on_before", lambda **facts: None, {"ctx": "ctx"}),
        ],
    )
    def test_a_hook_gets_what_its_parameters_are_called(self, kind, hook, facts):
        assert plan_hook(kind, hook) == ((), facts)

    @pytest.mark.parametrize(
        ("hook", "facts"),
        [
            (lambda *facts: None, ("ctx", "result")),
            (lambda first, *facts: None, ("ctx", "result")),
            (lambda result, *facts: None, ("result", "ctx")),
            ([].append, ("ctx",)),
            (print, ("ctx", "result")),
        ],
    )
    def test_a_hook_without_names_gets_positions(self, hook, facts):
        assert plan_hook("on_success", hook) == (facts, {})

    @pytest.mark.parametrize(
        ("kind", "hook", "name"),
        [
            ("on_before", lambda result, more: None, "more"),
            ("on_success", lambda ctx, result, extra: None, "extra"),
            ("on_error", lambda *, page: None, "page"),
        ],
    )
    def test_a_hook_that_requires_more_is_refused(self, kind, hook, name):
        with pytest.raises(DefinitionError, match=f"its parameter '{name}' has no value"):
            check_hook("report", kind, hook)

    def test_they_need_not_be_hashable(self):
        @dataclass
        class Holiday:
            name: str

            def __call__(self, kind: str) -> bool:
                return kind == self.name

        assert parameter_names(Holiday("easter")) == frozenset({"kind"})
        assert plan_hook("on_before", Holiday("easter")).by_name == {"kind": "ctx"}
