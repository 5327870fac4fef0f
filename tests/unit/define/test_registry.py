"""Every job that a process knows, by name: what was said, checked as a whole."""

import sys
from collections.abc import Callable
from importlib import import_module, reload
from threading import Barrier, Thread
from typing import Any

import pytest

from tickwork._define.definition import Declaration
from tickwork._define.options import options_by_name
from tickwork._define.registry import Registry, declare
from tickwork._domain.schedules.frequencies import Timetable
from tickwork.errors import (
    DefinitionError,
    DuplicateDefinition,
    HandlerNotAllowed,
    HandlerNotFound,
    JobNotFound,
)
from unit.define import code

HERE = "unit.define.code"


def said(
    name: str, target: object = code.report, place: str = "a.py:1", **options: Any
) -> Declaration:
    return declare(name, target, place=place, options=options_by_name(options))


def registry_of(*entries: Declaration, **settings: Any) -> Registry:
    registry = Registry(**settings)
    for entry in entries:
        registry.add(entry)
    return registry


class TestLookingUp:
    """A job is found by its name, an old name, the path of its handler, or its type."""

    def test_by_name(self):
        definition = registry_of(said("report", queue="slow")).get("report")

        assert (definition.name, definition.spec.queue) == ("report", "slow")

    def test_by_an_old_name(self):
        registry = registry_of(said("report", aliases=["summary", "digest"]))

        assert registry.get("digest") is registry.get("report")

    def test_by_the_path_of_its_handler(self):
        definition = registry_of(handler_paths=["unit"]).get(f"{HERE}:Outer.Inner")

        assert definition.name == f"{HERE}:Outer.Inner"
        assert definition.parameters.names == ("number",)

    def test_a_definition_under_a_path_comes_before_the_path(self):
        path = f"{HERE}:report"
        registry = registry_of(handler_paths=["unit"])
        registry.get(path)
        registry.add(said(path, queue="slow"))

        assert registry.get(path).spec.queue == "slow"

    def test_by_its_type(self):
        registry = registry_of()
        registry.add_handler(code.ForType("invoice"))

        assert registry.get("invoice").handler.takes_run

    def test_an_unknown_name_suggests_the_close_one(self):
        with pytest.raises(JobNotFound, match="Did you mean 'report'"):
            registry_of(said("report")).get("reprot")

    def test_a_path_that_may_not_be_imported_is_refused(self):
        registry = registry_of(handler_paths=["shop"])

        with pytest.raises(HandlerNotAllowed):
            registry.get("os:system")
        with pytest.raises(HandlerNotAllowed):
            registry.get("shopping:send")

    def test_a_path_that_is_close_to_a_name_is_a_slip(self):
        with pytest.raises(JobNotFound, match="Did you mean 'mail:daily'"):
            registry_of(said("mail:daily")).get("mail:dialy")

    def test_finding_gives_none_whatever_the_reason(self, modules):
        modules["broken"] = "1 / 0"
        registry = registry_of(handler_paths=["broken", "unit"])

        assert registry.find("nothing") is None
        assert registry.find("broken:send") is None
        assert registry.find("os:system") is None
        assert registry.find(f"{HERE}:nothing") is None
        assert registry.find(f"{HERE}:report") is not None

    def test_the_names_of_jobs_are_known_without_their_code(self):
        registry = registry_of(said("report", "nowhere:report", aliases="digest"))

        assert registry.job_names() == ["report", "digest"]


class TestPathsToJobs:
    """A path may lead to a function of which a decorator has made a job: it is that job."""

    class Decorated:
        def __init__(self, name: str, function: Callable[..., Any]) -> None:
            self.name = name
            self.__wrapped__ = function

        def __call__(self) -> None: ...

    def test_it_is_the_job(self, monkeypatch):
        job = self.Decorated("weekly", code.report)
        monkeypatch.setattr(code, "weekly", job, raising=False)
        registry = registry_of(said("weekly", queue="slow"), handler_paths=["unit"])

        assert registry.job_of(job) == "weekly"
        assert registry.get(f"{HERE}:weekly") is registry.get("weekly")

    def test_a_wrapped_function_is_none(self):
        registry = registry_of(said("weekly"))

        assert registry.job_of(self.Decorated("weekly", code.fetch)) is None
        assert registry.job_of(self.Decorated("monthly", code.report)) is None
        assert registry.job_of(code.report) is None


class TestDuplicates:
    """Two different definitions under one name are an error that shows both places."""

    def test_another_handler(self):
        registry = registry_of(said("report", place="a.py:1"))

        with pytest.raises(DuplicateDefinition) as caught:
            registry.add(said("report", code.fetch, place="b.py:2"))

        assert (caught.value.first, caught.value.second) == ("a.py:1", "b.py:2")
        assert registry.get("report").handler.call is code.report

    def test_other_options(self):
        registry = registry_of(
            said("report", place="a.py:1"), said("report", place="b.py:2", queue="slow")
        )

        with pytest.raises(DuplicateDefinition, match=r"a\.py:1.*b\.py:2"):
            registry.definitions()

    def test_another_time(self):
        daily, hourly = said("report"), said("report", place="b.py:2")
        daily.timing, hourly.timing = Timetable().daily().said, Timetable().hourly().said

        with pytest.raises(DuplicateDefinition):
            registry_of(daily, hourly).definitions()

    def test_a_job_and_a_schedule_of_another_one(self):
        registry = registry_of(said("report"))

        with pytest.raises(DuplicateDefinition):
            registry.add(Declaration(name="report", target=None, place="b.py:2", job="fetch"))

    def test_the_same_twice_is_one(self):
        registry = registry_of(said("report", queue="slow"), said("report", queue="slow"))

        assert list(registry.definitions()) == ["report"]

    def test_the_words_do_not_matter(self):
        plain, spelled = said("report"), said("report", queue="default", overlap="skip")
        plain.timing, spelled.timing = Timetable().hourly().said, Timetable().every_hour().said

        assert list(registry_of(plain, spelled).definitions()) == ["report"]

    def test_a_path_and_what_it_leads_to_are_the_same(self):
        registry = registry_of(said("report", f"{HERE}:report"), said("report", code.report))

        assert list(registry.definitions()) == ["report"]
        with pytest.raises(DuplicateDefinition):
            registry.add(said("report", f"{HERE}:fetch"))
        with pytest.raises(DuplicateDefinition):
            registry.add(said("report", None))

    def test_a_method_is_the_same_each_time_it_is_looked_up(self):
        instance = code.Both()

        registry = registry_of(said("both", instance.handle), said("both", instance.handle))

        assert list(registry.definitions()) == ["both"]
        with pytest.raises(DuplicateDefinition):
            registry.add(said("both", code.Both().handle))

    def test_an_alias_that_is_another_jobs_name(self):
        registry = registry_of(
            said("report", place="a.py:1"),
            said("digest", place="b.py:2", aliases=["report"]),
        )

        with pytest.raises(DuplicateDefinition, match=r"'report'") as caught:
            registry.definitions()
        assert (caught.value.first, caught.value.second) == ("a.py:1", "b.py:2")

    def test_an_alias_that_is_the_jobs_own_name_is_none(self):
        assert list(registry_of(said("report", aliases=["report"])).definitions()) == ["report"]

    def test_what_this_process_makes_up_replaces_what_was_there(self):
        registry = registry_of(said("report"))
        registry.replace(said("report", code.fetch))

        assert registry.get("report").handler.call is code.fetch


class TestLoadingAgain:
    """A module that is loaded again says the same once more, and its newest code counts."""

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

    def test_even_where_it_has_moved_and_says_more(self, registry, modules):
        modules["shop"] = self.SOURCE.replace(
            'place="shop.py:6"', 'place="shop.py:9", options=options_by_name({"queue": "slow"})'
        )
        reload(sys.modules["shop"])

        assert registry.get("report").spec.queue == "slow"

    def test_two_functions_of_one_name_in_a_module_are_two(self, modules, monkeypatch):
        modules["shop"] = self.SOURCE + self.SOURCE.replace("shop.py:6", "shop.py:12")
        monkeypatch.setattr("builtins.registry", Registry(), raising=False)

        with pytest.raises(DuplicateDefinition, match=r"shop\.py:6.*shop\.py:12"):
            import_module("shop")

    def test_two_instances_of_one_class_are_two(self):
        registry = registry_of(said("both", code.Both()))

        with pytest.raises(DuplicateDefinition):
            registry.add(said("both", code.Both(), place="a.py:2"))

    @pytest.mark.parametrize(
        ("first", "second", "is_again"),
        [
            ("<stdin>:1", "<stdin>:1", True),
            ("cell-1.py:3", "cell-2.py:3", True),
            ("script.py:3", "script.py:9", False),
        ],
    )
    def test_a_script_or_a_notebook_is_told_by_its_places(self, first, second, is_again):
        def function() -> Any:
            space: dict[str, Any] = {"__name__": "__notebook__"}
            exec("def report(): ...", space)
            return space["report"]

        registry = registry_of(said("report", function(), place=first))

        if is_again:
            newest = function()
            registry.add(said("report", newest, place=second))
            assert registry.get("report").handler.call is newest
        else:
            with pytest.raises(DuplicateDefinition):
                registry.add(said("report", function(), place=second))


class TestTakingInSeveral:
    """What is said in full is taken in as a whole, or not at all."""

    def test_all_of_them(self):
        registry = registry_of(said("report"))
        registry.add_all([said("report"), said("fetch", code.fetch)])

        assert list(registry.definitions()) == ["report", "fetch"]

    @pytest.mark.parametrize(
        "wrong",
        [
            said("report", code.fetch),
            said("report", queue="slow"),
            said("other", aliases=["report"]),
            said("other", concurrency={"slots": 5, "per": "queue"}),
        ],
    )
    def test_or_none(self, wrong):
        registry = registry_of(said("report", concurrency={"slots": 3, "per": "queue"}))
        before = registry.get("report")

        with pytest.raises(DuplicateDefinition):
            registry.add_all([said("first"), wrong, said("last")])

        assert list(registry.definitions()) == ["report"]
        assert registry.get("report") is before

    def test_one_that_differs_is_refused_at_once(self):
        registry = registry_of(said("report"))

        with pytest.raises(DuplicateDefinition):
            registry.add_complete(said("report", queue="slow"))
        assert registry.get("report").spec.queue == "default"


class TestLimits:
    """Jobs that share a limit agree on it."""

    def test_those_that_disagree_are_an_error_with_both_numbers(self):
        registry = registry_of(
            said("a", place="a.py:1", queue="mail", concurrency={"slots": 3, "per": "queue"}),
            said("b", place="b.py:2", queue="mail", concurrency={"slots": 5, "per": "queue"}),
        )

        with pytest.raises(DuplicateDefinition, match="'queue:mail'") as caught:
            registry.definitions()
        assert (caught.value.first, caught.value.second) == ("a.py:1 (3)", "b.py:2 (5)")

    def test_those_that_agree_or_do_not_share_are_fine(self):
        registry = registry_of(
            said("a", queue="mail", concurrency=[1, {"slots": 3, "per": "queue"}]),
            said("b", queue="mail", concurrency=[2, {"slots": 3, "per": "queue"}]),
            said("c", queue="slow", concurrency={"slots": 9, "per": "queue"}),
        )

        assert len(registry.definitions()) == 3


class TestHandlersOfTypes:
    """A job without a handler of its own gets the registered one that supports its type."""

    def test_it_is_asked_by_the_name(self):
        registry = registry_of(said("invoice", None, queue="slow"))
        registry.add_handler(code.ForType("invoice"))

        assert registry.get("invoice").handler.takes_run
        assert registry.get("invoice").spec.queue == "slow"

    def test_without_one_there_is_no_job(self):
        with pytest.raises(DefinitionError, match="'invoice' has no handler"):
            registry_of(said("invoice", None)).definitions()

    @pytest.mark.parametrize("is_defined", [True, False])
    def test_two_that_support_it_are_an_error(self, is_defined):
        registry = registry_of(*[said("invoice", None)] * is_defined)
        registry.add_handler(code.ForType("invoice"))
        registry.get("invoice")
        registry.add_handler(code.ForType("invoice", "report"))

        with pytest.raises(DefinitionError, match="Two handlers support the job type 'invoice'"):
            registry.get("invoice")

    def test_one_that_cannot_be_asked_is_refused(self):
        with pytest.raises(DefinitionError, match=r"it has no supports\(\)"):
            registry_of().add_handler(code.Both())


class TestTrying:
    """A definition can be tried, and nothing is kept of it."""

    def test_it_is_what_it_would_be(self):
        registry = registry_of()

        assert registry.define(said("report", queue="slow")).spec.queue == "slow"
        assert not registry.definitions()

    @pytest.mark.parametrize("target", [code.Neither, f"{HERE}:reprot", "nowhere:report"])
    def test_it_fails_as_it_would(self, target):
        with pytest.raises(HandlerNotFound):
            registry_of().define(said("report", target))


class TestSchedules:
    """Everything that says when, each once; what only this process knows is not written down."""

    def test_they_are_those_with_a_rule(self):
        nightly = Declaration(name="nightly", target=None, place="a.py:2", job="report")
        adhoc = declare("adhoc", code.report, is_adhoc=True)
        daily, again = said("daily"), said("daily")
        for entry in (nightly, adhoc, daily, again):
            entry.timing = Timetable().daily().said

        registry = registry_of(said("report"), nightly, adhoc, daily, again)

        assert [entry.name for entry in registry.schedules()] == ["nightly", "daily"]
        assert set(registry.definitions()) == {"report", "adhoc", "daily"}


class TestLookingWhileSomethingIsSaid:
    """Threads may define and look at the same time; nothing that was said is forgotten."""

    def test_what_is_said_during_a_look_is_seen_by_the_next(self):
        registry = registry_of()
        late = said("late")

        class Slow:
            """Asked during a look, it says something more, as another thread might."""

            def supports(self, job_type: str) -> bool:
                late.options = options_by_name({"queue": "slow"})
                registry.mark_changed()
                return job_type == "slow"

            def handle(self, run: Any) -> None: ...

        registry.add(late)
        registry.add(said("slow", None))
        registry.add_handler(Slow())
        registry.definitions()

        assert registry.get("late").spec.queue == "slow"

    def test_a_look_that_failed_is_made_again(self):
        registry = registry_of(said("invoice", None))
        with pytest.raises(DefinitionError):
            registry.definitions()

        registry.add_handler(code.ForType("invoice"))

        assert "invoice" in registry.definitions()

    def test_many_threads_see_what_they_said(self):
        registry = registry_of()
        barrier = Barrier(8)
        wrong: list[str] = []

        def define(number: int) -> None:
            barrier.wait(10)
            for count in range(50):
                name = f"job-{number}-{count}"
                registry.add(said(name))
                if registry.get(name).name != name:
                    wrong.append(name)

        threads = [Thread(target=define, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert not wrong
        assert len(registry.definitions()) == 400

    def test_a_module_that_is_imported_by_path_may_define_jobs(self, modules, monkeypatch):
        registry = registry_of(said("report", "shop:report"))
        modules["shop"] = """
from unit.define.test_registry import said
def report(kind: str) -> None: ...
registry.add(said("second", report))
"""
        monkeypatch.setattr("builtins.registry", registry, raising=False)

        assert set(registry.definitions()) == {"report", "second"}

    def test_another_thread_may_define_while_a_path_is_imported(self, modules, monkeypatch):
        # That thread may be importing the same module: waiting for each other would never end.
        registry = registry_of(said("report", "shop:report"))
        modules["shop"] = """
from threading import Thread
from unit.define.test_registry import said
def report(kind: str) -> None: ...
thread = Thread(target=lambda: registry.add(said("second")), daemon=True)
thread.start()
thread.join(10)
was_stuck = thread.is_alive()
"""
        monkeypatch.setattr("builtins.registry", registry, raising=False)
        registry.definitions()

        assert sys.modules["shop"].was_stuck is False


class TestCost:
    """Defining stays cheap however much there is: what was made before is kept."""

    def test_a_look_makes_only_what_is_new(self):
        registry = registry_of(said("report"))
        before = registry.get("report")
        registry.add(said("fetch", code.fetch))

        assert registry.get("report") is before

    def test_what_is_said_anew_is_made_anew(self):
        entry = said("report")
        registry = registry_of(entry)
        before = registry.get("report")
        entry.options = options_by_name({"queue": "slow"})
        registry.mark_changed()

        assert registry.get("report") is not before
        assert registry.get("report").spec.queue == "slow"
