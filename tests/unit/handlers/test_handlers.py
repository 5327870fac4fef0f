"""Handlers from functions, classes, instances and import paths."""

import re
from functools import partial
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork._handlers.handlers import (
    ScheduledJob,
    check_allowed,
    construct_plainly,
    handler_for_types,
    handler_of,
    import_handler,
    is_path,
    path_of,
    place_of_caller,
)
from tickwork.errors import DefinitionError, HandlerNotAllowed, HandlerNotFound
from unit.define import code

HERE = "unit.define.code"


def called(target: object, **args: Any) -> Any:
    return handler_of(target).callable_for(construct_plainly)(**args)


class TestKindsOfHandlers:
    """A callable, or a class or instance with handle() or execute()."""

    def test_a_function(self):
        assert called(code.report, kind="weekly") == "weekly"
        assert handler_of(code.report).path == f"{HERE}:report"

    def test_a_partial(self):
        assert called(partial(code.report, kind="weekly")) == "weekly"

    def test_a_bound_method(self):
        assert called(code.Both().handle, number=5) == "handle 5"

    def test_a_callable_object_is_called_even_if_it_has_a_handle(self):
        class Callable(code.Both):
            def __call__(self, number: int) -> str:
                return f"call {number}"

        assert called(Callable(), number=5) == "call 5"

    def test_a_class_with_a_static_handle(self):
        handler = handler_of(code.StaticHandle)

        assert handler.kind is None
        assert called(code.StaticHandle, number=5) == 5

    def test_a_class_with_a_class_level_handle(self):
        handler = handler_of(code.ClassHandle)

        assert (handler.kind, handler.is_async) == (None, True)
        assert handler.parameters.names == ("number",)

    def test_a_class_whose_handle_needs_an_instance_gets_a_new_one_for_each_attempt(self):
        made = []

        def construct(kind: type) -> Any:
            made.append(kind)
            return kind("made")

        handler = handler_of(code.InstanceHandle)
        bound: list[Any] = [handler.callable_for(construct) for _ in range(2)]

        assert made == [code.InstanceHandle] * 2
        assert bound[0].__self__ is not bound[1].__self__
        assert (handler.parameters.names, handler.parameters.context) == (("number",), "ctx")

    def test_an_instance_is_used_for_every_attempt(self):
        instance = code.Both()

        assert handler_of(instance).kind is None
        assert called(instance, number=5) == "handle 5"

    def test_handle_comes_before_execute(self):
        assert handler_of(code.Both).method == "handle"
        assert called(code.Both, number=5) == "handle 5"

    @pytest.mark.parametrize("target", [code.Execute, code.Execute()])
    def test_execute_returns_whether_it_succeeded(self, target):
        assert handler_of(target).returns_success
        assert not handler_of(code.Both).returns_success
        assert not handler_of(lambda: False).returns_success

    def test_the_optional_base_class(self):
        class Cleanup(ScheduledJob):
            def execute(self) -> bool:
                return True

        assert handler_of(Cleanup).returns_success
        assert called(Cleanup) is True
        with pytest.raises(HandlerNotFound, match=r"does not implement execute\(\)"):
            handler_of(ScheduledJob)

    def test_a_callable_class_attribute_gets_no_instance(self):
        class Work:
            handle = partial(code.report, kind="weekly")

        assert called(Work) == "weekly"

    @pytest.mark.parametrize("target", [code.Neither, code.Neither(), 5, None])
    def test_anything_else_is_an_error(self, target):
        with pytest.raises(HandlerNotFound):
            handler_of(target)

    @pytest.mark.parametrize(
        "target", [code.SETTINGS, vars(code), code], ids=["value", "all", "it"]
    )
    def test_an_error_shows_the_type_of_a_target_and_not_its_value(self, target):
        with pytest.raises(HandlerNotFound, match=r"of type dict|a module") as raised:
            handler_of(target, path="shop:SETTINGS")

        assert "'shop:SETTINGS'" in raised.value.what
        assert "S3CRET" not in str(raised.value)

    @pytest.mark.parametrize(
        "use",
        [
            lambda app, value: app.schedule("report", value),
            lambda app, value: app.dispatch(value),
            lambda app, value: app.on_worker_start(value),
            lambda app, value: app.schedule("report", code.report).on_before(value),
            lambda app, value: app.schedule("report", code.report).on_missed(value),
            lambda app, value: app.schedule("report", f"{HERE}:SETTINGS").dispatch(),
        ],
    )
    def test_neither_does_an_error_of_the_application(self, use):
        with Tickwork("memory://") as app, pytest.raises(DefinitionError) as raised:
            use(app, code.SETTINGS)

        assert "S3CRET" not in str(raised.value)

    @pytest.mark.parametrize(
        ("target", "is_async"),
        [
            (code.report, False),
            (code.fetch, True),
            (partial(code.fetch, "http://"), True),
            (code.ClassHandle, True),
            (code.ClassHandle.handle, True),
            (code.AsyncExecute, True),
            (code.AsyncExecute(), True),
            (code.Execute, False),
        ],
    )
    def test_it_is_known_whether_a_handler_is_async(self, target, is_async):
        assert handler_of(target).is_async is is_async

    def test_a_callable_object_may_be_async(self):
        class Fetch:
            async def __call__(self, url: str) -> str:
                return url

        assert handler_of(Fetch()).is_async


class TestHandlersOfJobTypes:
    """handle(run) of a registered handler gets only the context."""

    def test_a_single_parameter_is_the_context(self):
        handler = handler_for_types(code.ForType("report"))

        assert handler.takes_run
        assert handler.parameters.takes_any

    def test_even_without_an_annotation(self):
        class Plain:
            def handle(self, run): ...

        assert handler_for_types(Plain()).takes_run

    def test_with_more_parameters_it_takes_arguments(self):
        handler = handler_for_types(code.InstanceHandle())

        assert not handler.takes_run
        assert handler.parameters.names == ("number",)


class TestPaths:
    """``package.module:Name`` is imported; the error for a wrong path suggests a close name."""

    @pytest.mark.parametrize(
        ("path", "found"),
        [
            (f"{HERE}:report", code.report),
            (f"{HERE}:StaticHandle", code.StaticHandle),
            (f"{HERE}:Outer.Inner", code.Outer.Inner),
            (f"{HERE}:ClassHandle.handle", code.ClassHandle.handle),
        ],
    )
    def test_paths_of_functions_classes_and_nested_classes(self, path, found):
        assert import_handler(path) == found

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("unit.define.code.report", "no ':' between module and name"),
            (f"{HERE}:", "no ':' between"),
            (":report", "no ':' between"),
            ("unit..code:report", "made of identifiers"),
            (".code:report", "made of identifiers"),
            (f"{HERE}:report now", "made of identifiers"),
            ("nowhere.at.all:report", "There is no module 'nowhere'"),
            ("unit.define.cod:report", "There is no module 'unit.define.cod'"),
            (f"{HERE}:reprot", "has no 'reprot'.*Did you mean 'report'?"),
            (f"{HERE}:Outer.Iner", "has no 'Iner'.*Did you mean 'Inner'?"),
            (f"{HERE}:zzz", r"has no 'zzz'\.$"),
        ],
    )
    def test_a_path_that_leads_nowhere(self, path, reason):
        with pytest.raises(HandlerNotFound, match="was not found") as caught:
            import_handler(path)

        assert caught.value.path == path
        assert re.search(reason, caught.value.reason)

    def test_a_missing_import_inside_the_module_is_reported_as_such(self, modules):
        modules["shopping"] = "import shop"

        with pytest.raises(ModuleNotFoundError, match="'shop'"):
            import_handler("shopping:send")

    def test_the_error_of_a_failing_module_is_raised(self, modules):
        modules["broken"] = "1 / 0"

        with pytest.raises(ZeroDivisionError):
            import_handler("broken:send")

    @pytest.mark.parametrize(
        ("name", "is_one"),
        [
            ("shop.mail:Send", True),
            ("shop:Outer.Inner", True),
            ("mail", False),
            ("shop.mail", False),
            ("mail:daily report", False),
            ("mail:", False),
            ("Cleanup-2", False),
        ],
    )
    def test_which_names_are_paths(self, name, is_one):
        assert is_path(name) is is_one


class TestPrefixes:
    """A row may only name handlers below the handler paths."""

    @pytest.mark.parametrize("path", ["shop:send", "shop.mail:send", "shop.mail.new:Send.now"])
    def test_a_module_below_a_prefix_is_allowed(self, path):
        check_allowed(path, ["blog", "shop"])

    @pytest.mark.parametrize(
        "path", ["shopping:send", "shopping.mail:send", "os:system", "my.shop:send", "sho:send"]
    )
    def test_a_module_beside_a_prefix_is_not(self, path):
        with pytest.raises(HandlerNotAllowed) as caught:
            check_allowed(path, ["shop"])

        assert caught.value.allowed == ("shop",)

    def test_without_any_nothing_is_allowed(self):
        with pytest.raises(HandlerNotAllowed, match="allows: nothing"):
            check_allowed("shop:send", [])


class TestMessages:
    """Messages name handlers by path, and places by file and line."""

    @pytest.mark.parametrize(
        ("target", "path"),
        [
            (code.report, "report"),
            (code.Outer.Inner, "Outer.Inner"),
            (code.Both().handle, "Both.handle"),
            (partial(code.report, kind="weekly"), "report"),
            (code.Both(), "Both"),
        ],
    )
    def test_the_path_of_a_handler(self, target, path):
        assert path_of(target) == f"{HERE}:{path}"

    def test_the_place_is_outside_of_tickwork(self):
        place = place_of_caller()

        assert place.startswith(__file__)
