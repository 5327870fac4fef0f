"""The pytest plugin, in the tests of a program that uses tickwork."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = "tickwork.integrations.pytest_plugin"


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """Run tests of a program that uses tickwork, in a process of their own."""
    # By name, so that it does not matter whether this copy of tickwork is installed.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(*options, **files):
        if files:
            pytester.makepyfile(**files)
        return pytester.runpytest_subprocess(
            "-p", PLUGIN, "--strict-markers", "-W", "error", *options
        )

    return run


SHOP = """
    from tickwork import Tickwork

    app = Tickwork("postgresql://user@127.0.0.1:9/nothing")

    @app.job
    def welcome(name: str) -> str:
        if not name:
            raise ValueError("no name given")
        return f"Welcome {name}"

    app.schedule("digest", lambda: None).daily_at("9:00")

    def sign_up(name):
        return welcome.dispatch(name=name)
"""


class TestFixtures:
    """Fixtures: an application in memory, a clock, and your own application in memory."""

    def test_an_application_in_memory_on_a_clock_of_the_tests(self, run_tests):
        found = run_tests(
            test_it="""
                from tickwork.testing import drain, travel

                def test_run(tickwork_app, tickwork_clock):
                    run = tickwork_app.schedule("it", lambda n: n).dispatch(n=3)
                    assert len(drain(tickwork_app)) == 1
                    assert run.result() == 3
                    assert tickwork_app.clock is tickwork_clock

                def test_travel(tickwork_app, tickwork_clock):
                    tickwork_app.schedule("report", lambda: None).hourly()
                    assert len(travel(tickwork_app, days=1)) == 24
                    assert tickwork_clock.now().isoformat() == "2026-01-02T00:00:00+00:00"

                def test_paths(tickwork_app):
                    assert tickwork_app.settings.handler_paths == ("test_it",)
            """
        )

        assert found.parseoutcomes() == {"passed": 3}

    def test_every_test_gets_an_application_of_its_own(self, run_tests):
        found = run_tests(
            test_it="""
                import pytest
                from tickwork.testing import assert_nothing_dispatched

                @pytest.mark.parametrize("turn", [1, 2])
                def test_it(tickwork_app, turn):
                    assert_nothing_dispatched(tickwork_app)
                    tickwork_app.schedule("it", lambda: None).dispatch()
            """
        )

        assert found.parseoutcomes() == {"passed": 2}

    def test_an_application_of_the_user_in_memory(self, run_tests):
        found = run_tests(
            shop=SHOP,
            test_shop="""
                import pytest
                import shop
                from tickwork.errors import DriverMissing, StoreUnavailable
                from tickwork.testing import assert_dispatched, drain, travel

                @pytest.fixture(autouse=True)
                def in_memory(tickwork_swap):
                    assert tickwork_swap(shop.app) is shop.app

                def test_signing_up():
                    run = shop.sign_up("Ann")
                    assert_dispatched(shop.app, shop.welcome, args={"name": "Ann"})
                    assert not drain(shop.app).failures
                    assert run.result() == "Welcome Ann"

                def test_the_digest():
                    assert [each.job for each in travel(shop.app, days=2)] == ["digest"] * 2
            """,
            test_zzz_afterwards="""
                import pytest
                import shop
                from tickwork.errors import DriverMissing, StoreUnavailable

                def test_it_is_itself_again():
                    with pytest.raises((DriverMissing, StoreUnavailable)):
                        shop.sign_up("Ann")
            """,
        )

        assert found.parseoutcomes() == {"passed": 3}

    def test_a_conftest_can_choose_the_application_for_all_tests(self, run_tests):
        found = run_tests(
            shop=SHOP,
            conftest="""
                import pytest
                import shop

                @pytest.fixture
                def tickwork_app(tickwork_swap):
                    return tickwork_swap(shop.app)
            """,
            test_it="""
                import shop
                from tickwork.testing import drain

                def test_it(tickwork_app):
                    assert tickwork_app is shop.app
                    shop.sign_up("Ann")
                    assert len(drain(tickwork_app)) == 1
            """,
        )

        assert found.parseoutcomes() == {"passed": 1}

    def test_doctests_can_use_the_fixtures(self, run_tests):
        found = run_tests(
            "--doctest-modules",
            shop='''
                """
                >>> app = getfixture("tickwork_app")
                >>> app.schedule("it", lambda: None).dispatch().status.value
                'pending'
                """
            ''',
        )

        assert found.parseoutcomes() == {"passed": 1}


class TestMarker:
    """The marker sets the start time, and whether runs are executed at their dispatch."""

    def test_the_start_of_the_clock(self, run_tests):
        found = run_tests(
            test_it="""
                import pytest

                @pytest.mark.tickwork(start="2026-03-01T09:00:00+01:00")
                def test_it(tickwork_app):
                    assert tickwork_app.clock.now().isoformat() == "2026-03-01T08:00:00+00:00"
            """
        )

        assert found.parseoutcomes() == {"passed": 1}

    def test_runs_that_are_executed_at_their_dispatch(self, run_tests):
        found = run_tests(
            shop=SHOP,
            test_it="""
                import pytest
                import shop

                @pytest.mark.tickwork(immediately=True)
                def test_result(tickwork_swap):
                    tickwork_swap(shop.app)
                    assert shop.sign_up("Ann").result() == "Welcome Ann"

                @pytest.mark.tickwork(raising=True)
                def test_failure(tickwork_swap):
                    tickwork_swap(shop.app)
                    with pytest.raises(ValueError, match="no name given"):
                        shop.sign_up("")

                @pytest.mark.tickwork(immediately=True)
                def test_in_memory(tickwork_app):
                    assert tickwork_app.schedule("it", lambda: 42).dispatch().result() == 42
            """,
        )

        assert found.parseoutcomes() == {"passed": 3}

    @pytest.mark.parametrize("options", ["imediately=True", "'2026-01-01T00:00:00+00:00'"])
    def test_an_unknown_option_is_an_error(self, run_tests, options):
        found = run_tests(
            test_it=f"""
                import pytest

                @pytest.mark.tickwork({options})
                def test_it(tickwork_app):
                    pass
            """
        )

        assert found.parseoutcomes() == {"errors": 1}
        found.stdout.fnmatch_lines(["*@pytest.mark.tickwork: it takes no *"])

    def test_pytest_lists_the_marker(self, run_tests):
        found = run_tests("--markers")

        found.stdout.fnmatch_lines(["@pytest.mark.tickwork(start=None, *"])


class TestWithoutTheFixtures:
    """In tests that use no fixture, nothing is loaded, patched or slowed down."""

    def test_nothing_of_tickwork_is_loaded(self, run_tests):
        found = run_tests(
            test_it="""
                import sys

                def test_it():
                    loaded = {name for name in sys.modules if name.startswith("tickwork")}
                    assert loaded == {
                        "tickwork",
                        "tickwork.integrations",
                        "tickwork.integrations.pytest_plugin",
                    }
                    assert not {"psycopg", "sqlite3"} & set(sys.modules)
            """
        )

        assert found.parseoutcomes() == {"passed": 1}

    def test_the_plugin_loads_fast(self):
        code = (
            "import pytest, time\n"
            "begun = time.process_time()\n"
            f"import {PLUGIN}\n"
            "print(time.process_time() - begun)"
        )
        seconds = min(
            float(
                subprocess.run(
                    [sys.executable, "-c", code],
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=60,
                ).stdout
            )
            for _ in range(3)
        )

        assert seconds < 0.02

    def test_pytest_is_no_hard_dependency(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

        assert not [name for name in project["dependencies"] if "pytest" in name]


def test_pytest_loads_the_plugin_by_itself():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["entry-points"]["pytest11"] == {"tickwork": PLUGIN}
