"""The registry: every job that a process knows, by name."""

import sys
from collections.abc import Callable
from importlib import import_module, reload
from threading import Barrier, Thread
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork._define.definition import Declaration
from tickwork._define.options import options_by_name
from tickwork._define.registry import Registry, declare
from tickwork.errors import (
    DefinitionError,
    DuplicateDefinition,
    HandlerNotAllowed,
    HandlerNotFound,
    InvalidOption,
    JobNotFound,
)
from tickwork.schedules import Timetable
from unit.define import code

HERE = "unit.define.code"


def declared(
    name: str, target: object = code.report, place: str = "a.py:1", **options: Any
) -> Declaration:
    return declare(name, target, place=place, options=options_by_name(options))


def registry_of(*declarations: Declaration, **settings: Any) -> Registry:
    registry = Registry(**settings)
    for declaration in declarations:
        registry.add(declaration)
    return registry


class TestLookup:
    """A job is found by its name, an alias, the path of its handler, or its type."""

    def test_by_name(self):
        definition = registry_of(declared("report", queue="slow")).get("report")

        assert (definition.name, definition.spec.queue) == ("report", "slow")

    def test_by_an_alias(self):
        registry = registry_of(declared("report", aliases=["summary", "digest"]))

        assert registry.get("digest") is registry.get("report")

    def test_by_the_path_of_its_handler(self):
        definition = registry_of(handler_paths=["unit"]).get(f"{HERE}:Outer.Inner")

        assert definition.name == f"{HERE}:Outer.Inner"
        assert definition.parameters.names == ("number",)

    def test_a_job_whose_name_is_a_path_wins_over_the_path(self):
        path = f"{HERE}:StaticHandle"
        registry = registry_of(handler_paths=["unit"])
        registry.get(path)
        registry.add(declared(path, queue="slow"))

        assert registry.get(path).spec.queue == "slow"

    def test_by_its_type(self):
        registry = registry_of()
        registry.add_handler(code.ForType("invoice"))

        assert registry.get("invoice").handler.takes_run

    def test_an_unknown_name_suggests_a_close_one(self):
        with pytest.raises(JobNotFound, match="Did you mean 'report'"):
            registry_of(declared("report")).get("reprot")

    def test_a_path_outside_of_the_handler_paths_is_refused(self):
        registry = registry_of(handler_paths=["shop"])

        with pytest.raises(HandlerNotAllowed):
            registry.get("os:system")
        with pytest.raises(HandlerNotAllowed):
            registry.get("shopping:send")

    def test_a_path_close_to_a_name_is_treated_as_a_typo(self):
        with pytest.raises(JobNotFound, match="Did you mean 'mail:daily'"):
            registry_of(declared("mail:daily")).get("mail:dialy")

    def test_find_returns_none_for_any_error(self, modules):
        modules["broken"] = "1 / 0"
        registry = registry_of(handler_paths=["broken", "unit"])

        assert registry.find("nothing") is None
        assert registry.find("broken:send") is None
        assert registry.find("os:system") is None
        assert registry.find(f"{HERE}:nothing") is None
        assert registry.find(f"{HERE}:report") is None
        assert registry.find(f"{HERE}:StaticHandle") is not None

    def test_the_names_of_jobs_are_known_before_handlers_are_imported(self):
        registry = registry_of(declared("report", "nowhere:report", aliases="digest"))

        assert registry.job_names() == ["report", "digest"]


class TestPathsToJobs:
    """A path may lead to a function that a decorator made a job: it is that job."""

    class Decorated:
        def __init__(self, name: str, function: Callable[..., Any]) -> None:
            self.name = name
            self.__wrapped__ = function

        def __call__(self) -> None: ...

    def test_it_is_the_job(self, monkeypatch):
        job = self.Decorated("weekly", code.report)
        monkeypatch.setattr(code, "weekly", job, raising=False)
        registry = registry_of(declared("weekly", queue="slow"), handler_paths=["unit"])

        assert registry.job_of(job) == "weekly"
        assert registry.get(f"{HERE}:weekly") is registry.get("weekly")

    def test_another_wrapped_function_is_not_a_job(self):
        registry = registry_of(declared("weekly"))

        assert registry.job_of(self.Decorated("weekly", code.fetch)) is None
        assert registry.job_of(self.Decorated("monthly", code.report)) is None
        assert registry.job_of(code.report) is None


class TestDuplicates:
    """Two different definitions under one name are an error that shows both places."""

    def test_another_handler(self):
        registry = registry_of(declared("report", place="a.py:1"))

        with pytest.raises(DuplicateDefinition) as caught:
            registry.add(declared("report", code.fetch, place="b.py:2"))

        assert (caught.value.first, caught.value.second) == ("a.py:1", "b.py:2")
        assert registry.get("report").handler.call is code.report

    def test_other_options(self):
        registry = registry_of(
            declared("report", place="a.py:1"),
            declared("report", place="b.py:2", queue="slow"),
        )

        with pytest.raises(DuplicateDefinition, match=r"a\.py:1.*b\.py:2"):
            registry.definitions()

    def test_another_rule(self):
        daily, hourly = declared("report"), declared("report", place="b.py:2")
        daily.timing, hourly.timing = (
            Timetable().daily().timing,
            Timetable().hourly().timing,
        )

        with pytest.raises(DuplicateDefinition):
            registry_of(daily, hourly).definitions()

    def test_a_job_and_a_schedule_of_another_one(self):
        registry = registry_of(declared("report"))

        with pytest.raises(DuplicateDefinition):
            registry.add(Declaration(name="report", target=None, place="b.py:2", job="fetch"))

    def test_the_same_twice_is_one(self):
        registry = registry_of(declared("report", queue="slow"), declared("report", queue="slow"))

        assert list(registry.definitions()) == ["report"]

    def test_the_way_options_are_given_does_not_matter(self):
        plain, spelled = (
            declared("report"),
            declared("report", queue="default", overlap="skip"),
        )
        plain.timing, spelled.timing = (
            Timetable().hourly().timing,
            Timetable().every_hour().timing,
        )

        assert list(registry_of(plain, spelled).definitions()) == ["report"]

    def test_a_path_and_what_it_leads_to_are_the_same(self):
        registry = registry_of(
            declared("report", f"{HERE}:report"), declared("report", code.report)
        )

        assert list(registry.definitions()) == ["report"]
        with pytest.raises(DuplicateDefinition):
            registry.add(declared("report", f"{HERE}:fetch"))
        with pytest.raises(DuplicateDefinition):
            registry.add(declared("report", None))

    def test_a_bound_method_is_the_same_at_each_access(self):
        instance = code.Both()

        registry = registry_of(declared("both", instance.handle), declared("both", instance.handle))

        assert list(registry.definitions()) == ["both"]
        with pytest.raises(DuplicateDefinition):
            registry.add(declared("both", code.Both().handle))

    def test_an_alias_that_is_another_jobs_name(self):
        registry = registry_of(
            declared("report", place="a.py:1"),
            declared("digest", place="b.py:2", aliases=["report"]),
        )

        with pytest.raises(DuplicateDefinition, match=r"'report'") as caught:
            registry.definitions()
        assert (caught.value.first, caught.value.second) == ("a.py:1", "b.py:2")

    def test_an_alias_equal_to_the_name_is_ignored(self):
        assert list(registry_of(declared("report", aliases=["report"])).definitions()) == ["report"]

    def test_an_adhoc_job_replaces_one_of_the_same_name(self):
        registry = registry_of(declared("report"))
        registry.replace(declared("report", code.fetch))

        assert registry.get("report").handler.call is code.fetch


class TestReloading:
    """A reloaded module declares its jobs again, and its newest code counts."""

    SOURCE = """
from unit.define.test_registry import declare, options_by_name

def report(kind: str) -> str:
    return "VERSION"

registry.add(declare("report", report, place="shop.py:6"))
"""

    @pytest.fixture
    def registry(self, modules, monkeypatch) -> Registry:
        made = Registry()
        modules["shop"] = self.SOURCE
        monkeypatch.setattr("builtins.registry", made, raising=False)
        import_module("shop")
        return made

    def test_the_newest_code_counts(self, registry, modules):
        modules["shop"] = self.SOURCE.replace("VERSION", "new")
        reload(sys.modules["shop"])

        assert registry.get("report").handler.call("daily") == "new"

    def test_the_newest_options_count_too(self, registry, modules):
        modules["shop"] = self.SOURCE.replace(
            'place="shop.py:6"', 'place="shop.py:9", options=options_by_name({"queue": "slow"})'
        )
        reload(sys.modules["shop"])

        assert registry.get("report").spec.queue == "slow"

    def test_two_functions_with_one_name_in_a_module_differ(self, modules, monkeypatch):
        modules["shop"] = self.SOURCE + self.SOURCE.replace("shop.py:6", "shop.py:12")
        monkeypatch.setattr("builtins.registry", Registry(), raising=False)

        with pytest.raises(DuplicateDefinition, match=r"shop\.py:6.*shop\.py:12"):
            import_module("shop")

    def test_two_instances_of_one_class_differ(self):
        registry = registry_of(declared("both", code.Both()))

        with pytest.raises(DuplicateDefinition):
            registry.add(declared("both", code.Both(), place="a.py:2"))

    @pytest.mark.parametrize(
        ("first", "second", "is_again"),
        [
            ("<stdin>:1", "<stdin>:1", True),
            ("cell-1.py:3", "cell-2.py:3", True),
            ("script.py:3", "script.py:9", False),
        ],
    )
    def test_declarations_of_a_script_are_distinguished_by_their_places(
        self, first, second, is_again
    ):
        def function() -> Any:
            space: dict[str, Any] = {"__name__": "__notebook__"}
            exec("def report(): ...", space)
            return space["report"]

        registry = registry_of(declared("report", function(), place=first))

        if is_again:
            newest = function()
            registry.add(declared("report", newest, place=second))
            assert registry.get("report").handler.call is newest
        else:
            with pytest.raises(DuplicateDefinition):
                registry.add(declared("report", function(), place=second))


class TestAddingSeveral:
    """Complete declarations are added together, or none of them is."""

    def test_all_of_them(self):
        registry = registry_of(declared("report"))
        registry.add_all([declared("report"), declared("fetch", code.fetch)])

        assert list(registry.definitions()) == ["report", "fetch"]

    @pytest.mark.parametrize(
        "wrong",
        [
            declared("report", code.fetch),
            declared("report", queue="slow"),
            declared("other", aliases=["report"]),
            declared("other", concurrency={"slots": 5, "per": "queue"}),
        ],
    )
    def test_or_none_of_them(self, wrong):
        registry = registry_of(declared("report", concurrency={"slots": 3, "per": "queue"}))
        before = registry.get("report")

        with pytest.raises(DuplicateDefinition):
            registry.add_all([declared("first"), wrong, declared("last")])

        assert list(registry.definitions()) == ["report"]
        assert registry.get("report") is before

    def test_one_that_differs_is_refused_at_once(self):
        registry = registry_of(declared("report"))

        with pytest.raises(DuplicateDefinition):
            registry.add_complete(declared("report", queue="slow"))
        assert registry.get("report").spec.queue == "default"


class TestLimits:
    """Jobs that share a limit agree on it."""

    def test_a_disagreement_is_an_error_with_both_numbers(self):
        registry = registry_of(
            declared("a", place="a.py:1", queue="mail", concurrency={"slots": 3, "per": "queue"}),
            declared("b", place="b.py:2", queue="mail", concurrency={"slots": 5, "per": "queue"}),
        )

        with pytest.raises(DuplicateDefinition, match="'queue:mail'") as caught:
            registry.definitions()
        assert (caught.value.first, caught.value.second) == ("a.py:1 (3)", "b.py:2 (5)")

    def test_equal_or_separate_limits_are_allowed(self):
        registry = registry_of(
            declared("a", queue="mail", concurrency=[1, {"slots": 3, "per": "queue"}]),
            declared("b", queue="mail", concurrency=[2, {"slots": 3, "per": "queue"}]),
            declared("c", queue="slow", concurrency={"slots": 9, "per": "queue"}),
        )

        assert len(registry.definitions()) == 3


class TestHandlersOfTypes:
    """A job without a handler of its own gets the registered one that supports its type."""

    def test_supports_gets_the_name_of_the_job(self):
        registry = registry_of(declared("invoice", None, queue="slow"))
        registry.add_handler(code.ForType("invoice"))

        assert registry.get("invoice").handler.takes_run
        assert registry.get("invoice").spec.queue == "slow"

    def test_without_a_handler_there_is_an_error(self):
        with pytest.raises(DefinitionError, match="'invoice' has no handler"):
            registry_of(declared("invoice", None)).definitions()

    @pytest.mark.parametrize("is_defined", [True, False])
    def test_two_that_support_it_are_an_error(self, is_defined):
        registry = registry_of(*[declared("invoice", None)] * is_defined)
        registry.add_handler(code.ForType("invoice"))
        registry.get("invoice")
        registry.add_handler(code.ForType("invoice", "report"))

        with pytest.raises(DefinitionError, match="Two handlers support the job type 'invoice'"):
            registry.get("invoice")

    def test_a_handler_without_supports_is_refused(self):
        with pytest.raises(DefinitionError, match=r"it has no supports\(\)"):
            registry_of().add_handler(code.Both())


class TestDefine:
    """A declaration can be defined without adding it."""

    def test_it_returns_the_definition(self):
        registry = registry_of()

        assert registry.define(declared("report", queue="slow")).spec.queue == "slow"
        assert not registry.definitions()

    @pytest.mark.parametrize("target", [code.Neither, f"{HERE}:reprot", "nowhere:report"])
    def test_it_raises_the_error(self, target):
        with pytest.raises(HandlerNotFound):
            registry_of().define(declared("report", target))


class TestSchedules:
    """Every declaration with a rule, each once; ad hoc jobs are left out."""

    def test_they_are_those_with_a_rule(self):
        nightly = Declaration(name="nightly", target=None, place="a.py:2", job="report")
        adhoc = declare("adhoc", code.report, is_adhoc=True)
        daily, again = declared("daily"), declared("daily")
        for declaration in (nightly, adhoc, daily, again):
            declaration.timing = Timetable().daily().timing

        registry = registry_of(declared("report"), nightly, adhoc, daily, again)

        assert [declaration.name for declaration in registry.schedules()] == ["nightly", "daily"]
        assert set(registry.definitions()) == {"report", "adhoc", "daily"}


class TestThreads:
    """Threads may declare and read at the same time; no declaration is lost."""

    def test_a_change_during_a_read_is_seen_by_the_next_read(self):
        registry = registry_of()
        late = declared("late")

        class Slow:
            """It changes a declaration during a read, as another thread might."""

            def supports(self, job_type: str) -> bool:
                late.options = options_by_name({"queue": "slow"})
                registry.mark_changed()
                return job_type == "slow"

            def handle(self, run: Any) -> None: ...

        registry.add(late)
        registry.add(declared("slow", None))
        registry.add_handler(Slow())
        registry.definitions()

        assert registry.get("late").spec.queue == "slow"

    def test_a_read_that_failed_is_repeated(self):
        registry = registry_of(declared("invoice", None))
        with pytest.raises(DefinitionError):
            registry.definitions()

        registry.add_handler(code.ForType("invoice"))

        assert "invoice" in registry.definitions()

    def test_many_threads_see_their_declarations(self):
        registry = registry_of()
        barrier = Barrier(8)
        wrong: list[str] = []

        def define(number: int) -> None:
            barrier.wait(10)
            for count in range(50):
                name = f"job-{number}-{count}"
                registry.add(declared(name))
                if registry.get(name).name != name:
                    wrong.append(name)

        threads = [Thread(target=define, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert not wrong
        assert len(registry.definitions()) == 400

    def test_a_module_that_is_imported_by_path_may_declare_jobs(self, modules, monkeypatch):
        registry = registry_of(declared("report", "shop:report"))
        modules["shop"] = """
from unit.define.test_registry import declared
def report(kind: str) -> None: ...
registry.add(declared("second", report))
"""
        monkeypatch.setattr("builtins.registry", registry, raising=False)

        assert set(registry.definitions()) == {"report", "second"}

    def test_another_thread_may_declare_while_a_path_is_imported(self, modules, monkeypatch):
        # That thread may be importing the same module: waiting for each other would never end.
        registry = registry_of(declared("report", "shop:report"))
        modules["shop"] = """
from threading import Thread
from unit.define.test_registry import declared
def report(kind: str) -> None: ...
thread = Thread(target=lambda: registry.add(declared("second")), daemon=True)
thread.start()
thread.join(10)
was_stuck = thread.is_alive()
"""
        monkeypatch.setattr("builtins.registry", registry, raising=False)
        registry.definitions()

        assert sys.modules["shop"].was_stuck is False


class TestCost:
    """Definitions that did not change are kept."""

    def test_a_read_builds_only_new_definitions(self):
        registry = registry_of(declared("report"))
        before = registry.get("report")
        registry.add(declared("fetch", code.fetch))

        assert registry.get("report") is before

    def test_a_changed_declaration_is_defined_again(self):
        declaration = declared("report")
        registry = registry_of(declaration)
        before = registry.get("report")
        declaration.options = options_by_name({"queue": "slow"})
        registry.mark_changed()

        assert registry.get("report") is not before
        assert registry.get("report").spec.queue == "slow"


class TestEngines:
    """A job chooses one of the engines that the composition root registers."""

    def test_the_name_of_an_engine_is_checked(self):
        app = Tickwork("memory://")
        with pytest.raises(
            InvalidOption,
            match="must be one of async, auto, celery, dask, dask_results, process, thread",
        ) as raised:
            app.schedule("work", lambda: None).engine("proces")

        assert raised.value.fix == "Did you mean 'process'?"

    def test_any_job_can_run_in_a_thread(self):
        app = Tickwork("memory://")
        app.schedule("work", lambda: "done").engine("thread")

        assert app.registry.get("work").options.engine == "thread"
