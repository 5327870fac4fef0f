"""Engines of a program's own: ``Tickwork(engines=...)``."""

import threading
from functools import partial
from typing import Any

import pytest

from tickwork import JobDefaults, Tickwork
from tickwork._engines.contract import health_of
from tickwork._engines.local.threads import ThreadEngine
from tickwork.contracts import EngineHealth, EngineRegistration, EngineSetup
from tickwork.errors import EngineUnavailable, InvalidOption

NOT_A_FACTORY: Any = 7
UNUSED: Any = None
REQUIRED = (
    *("durations", "start", "submit", "make_quick_attempts", "take_back", "rebalance"),
    *("cancel", "interrupt", "unfinished", "stop"),
)


def work() -> int:
    return threading.get_ident()


class NamedEngine(ThreadEngine):
    """Its threads are the same as those of the thread engine; it notes that it was used."""

    def __init__(self, setup: EngineSetup, used: list[str], name: str = "") -> None:
        super().__init__(setup)
        self._used, self._name = used, name or setup.options

    def submit(self, claims):
        self._used += [f"{self._name}: {claim.job}" for claim in claims]
        super().submit(claims)


class PlainEngine:
    """Passes on what the contract requires, and no more."""

    def __init__(self, setup: EngineSetup) -> None:
        inner = ThreadEngine(setup)
        for name in REQUIRED:
            setattr(self, name, getattr(inner, name))
        self._inner = inner

    slots = property(lambda self: self._inner.slots)
    waiting = property(lambda self: self._inner.waiting)
    running = property(lambda self: self._inner.running)


@pytest.fixture
def used() -> list[str]:
    return []


class TestChoice:
    def test_a_job_chooses_it_by_name(self, used):
        app = Tickwork("memory://", engines={"own": partial(NamedEngine, used=used, name="own")})
        app.schedule("chosen", work).engine("own")
        app.job(name="other")(work)

        chosen, other = app.dispatch("chosen"), app.dispatch("other")
        with app.running():
            assert chosen.result(timeout=30) != threading.get_ident()
            other.result(timeout=30)

        assert used == ["own: chosen"]

    def test_a_single_pass_uses_it_too(self, used):
        app = Tickwork("memory://", engines={"own": partial(NamedEngine, used=used, name="own")})
        run = app.job(name="chosen", engine="own")(lambda: 2).dispatch()

        app.run()

        assert (run.result(), used) == (2, ["own: chosen"])
        app.close()

    def test_it_can_be_the_default(self, used):
        app = Tickwork(
            "memory://",
            engines={"own": partial(NamedEngine, used=used)},
            defaults=JobDefaults(engine="own"),
        )
        app.engine_options["own"] = "with options"
        run = app.job(name="any")(lambda: 3).dispatch()

        with app.running():
            assert run.result(timeout=30) == 3

        assert used == ["with options: any"]

    def test_the_error_about_another_name_lists_it(self):
        app = Tickwork("memory://", engines={"http": ThreadEngine})

        with pytest.raises(InvalidOption) as error:
            app.job(engine="htpp")(work)

        assert "async, auto, celery, dask, dask_results, http, process, thread" in str(error.value)
        assert "Did you mean 'http'" in str(error.value)

    def test_other_applications_do_not_know_it(self):
        Tickwork("memory://", engines={"http": ThreadEngine})

        with pytest.raises(InvalidOption, match="must be one of"):
            Tickwork("memory://").job(engine="http")(work)


class TestHealth:
    """An engine may report its health. The method is optional."""

    def test_an_engine_without_the_method_works_and_counts_as_alive(self):
        engines: list[Any] = []

        def build(setup: EngineSetup) -> Any:
            engines.append(PlainEngine(setup))
            return engines[-1]

        app = Tickwork("memory://", engines={"plain": build})
        run = app.job(name="any", engine="plain")(lambda: 3).dispatch()

        with app.running():
            assert run.result(timeout=30) == 3
            assert health_of(engines[0]) == EngineHealth()

    def test_an_engine_with_the_method_reports_it(self):
        class SickEngine(ThreadEngine):
            def health(self) -> EngineHealth:
                return EngineHealth(is_alive=False, reason="It has a cold.")

        setup = EngineSetup(UNUSED, UNUSED, 1, UNUSED, UNUSED, UNUSED)

        assert health_of(SickEngine(setup)).reason == "It has a cold."


class TestRegistrations:
    def test_the_worker_option_with_the_slots_can_be_chosen(self):
        seen: list[int] = []

        def build(setup: EngineSetup) -> ThreadEngine:
            seen.append(setup.slots)
            return ThreadEngine(setup)

        registration = EngineRegistration(build, slots_option="children")
        app = Tickwork("memory://", engines={"own": registration})
        with app.running(children=7):
            pass

        assert seen == [7]

    def test_its_check_is_part_of_the_health_checks(self):
        def check(options: object) -> str:
            raise EngineUnavailable("own", str(options), reason="It is switched off.")

        registration = EngineRegistration(ThreadEngine, check=check)
        app = Tickwork("memory://", engines={"own": registration})
        app.engine_options["own"] = "own://here"
        app.job(engine="own")(work)

        [found] = [each for each in app.check_health() if each.name == "engine own"]
        assert (found.level, "own://here does not answer" in found.text) == ("bad", True)

    @pytest.mark.parametrize(
        ("name", "value", "rule"),
        [
            ("thread", ThreadEngine, "must not have the name of an engine of tickwork"),
            ("auto", ThreadEngine, "must not have the name of an engine of tickwork"),
            ("", ThreadEngine, "must not be empty"),
            ("own", NOT_A_FACTORY, "must be a function or a class that gets an EngineSetup"),
            ("own", EngineRegistration(ThreadEngine, "hands"), "must be one of threads"),
        ],
    )
    def test_what_is_no_engine_is_refused_at_once(self, name, value, rule):
        with pytest.raises(InvalidOption, match=rule):
            Tickwork("memory://", engines={name: value})
