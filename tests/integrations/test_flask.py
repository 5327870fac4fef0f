"""Flask: each attempt has an application context, and the commands are below ``flask tickwork``."""

import asyncio

import pytest
from flask import Flask, current_app, g

from tickwork import RunStatus, Tickwork
from tickwork.integrations.flask import FlaskTickwork


@pytest.fixture
def jobs(tmp_path):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db", install=True) as jobs:
        jobs.install()
        yield jobs


@pytest.fixture
def ended():
    return []


@pytest.fixture
def web(jobs, ended):
    web = Flask("shop")
    FlaskTickwork(jobs, web)

    @jobs.job
    def greet(name: str) -> str:
        assert not hasattr(g, "seen")  # a context of its own
        g.seen = name
        if name == "Eve":
            raise ValueError(name)
        return f"{name} at {current_app.name}"

    @jobs.job
    async def greet_later(name: str) -> str:
        await asyncio.sleep(0)
        assert not hasattr(g, "seen")
        g.seen = name
        await asyncio.sleep(0.01)
        return f"{g.seen} at {current_app.name}"

    @web.teardown_appcontext
    def note(error):
        ended.append(error)

    @web.post("/greet/<name>")
    def dispatch(name):
        return {"run": greet.dispatch(name=name).id}

    return web


def test_an_attempt_has_a_context(jobs, web, ended):
    answer = web.test_client().post("/greet/Ann").get_json()
    ended.clear()
    jobs.run()

    assert jobs.get_run(answer["run"]).result() == "Ann at shop"
    assert ended == [None]


def test_the_teardown_gets_the_exception(jobs, web, ended):
    run = jobs.dispatch("greet", name="Eve")
    jobs.run()

    assert run.read().status is RunStatus.FAILED_PERMANENT
    [error] = ended
    assert isinstance(error, ValueError)


def test_each_coroutine_has_a_context_of_its_own(jobs, web, ended):
    runs = [jobs.dispatch("greet_later", name=name) for name in ("Ann", "Bob", "Cid")]
    with jobs.running():
        results = [run.result(timeout=20) for run in runs]

    assert results == ["Ann at shop", "Bob at shop", "Cid at shop"]
    assert ended == [None] * 3


def test_the_commands(jobs, web):
    run = jobs.dispatch("greet", name="Ann")
    commands = web.test_cli_runner()

    done = commands.invoke(args=["tickwork", "collect"])
    assert done.exit_code == 0, done.output
    shown = commands.invoke(args=["tickwork", "runs", "--json"])
    assert run.id in shown.output
    assert web.extensions["tickwork"].jobs is jobs


def test_the_last_application_counts(jobs):
    extension = FlaskTickwork(jobs)
    for name in ("first", "second"):
        extension.init_app(Flask(name))

    run = jobs.schedule("name", lambda: current_app.name).dispatch()
    jobs.run()

    assert run.result() == "second"


def make_web() -> Flask:
    return Flask("made")


@pytest.mark.parametrize("create", [make_web, f"{__name__}:make_web"])
def test_a_process_without_an_application_makes_one(jobs, create):
    FlaskTickwork(jobs, create_app=create)
    run = jobs.schedule("name", lambda: current_app.name).dispatch()
    jobs.run()

    assert run.result() == "made"


def test_without_an_application_the_attempt_fails_and_says_so(jobs):
    FlaskTickwork(jobs)
    run = jobs.schedule("name", lambda: current_app.name).dispatch()
    jobs.run()

    assert "flask tickwork work" in run.read().reason
