"""Secret arguments appear in nothing that is stored for showing, printed or logged."""

import json
import logging
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from tickwork import RunContext, Secret, Tickwork
from tickwork._domain.runs.outcome import ERROR_MAX
from tickwork.errors import ArgumentError, NotSerializable, Snooze
from tickwork.testing import ManualClock

TOKEN = "t0ken/1234"


@dataclass
class Card:
    number: str


@pytest.fixture
def memory_app():
    with Tickwork("memory://", clock=ManualClock(), redact=["password"]) as app:
        yield app


class TestStoredTexts:
    def test_log_lines_and_notes(self, memory_app):
        def talk(token: Secret[str], password: str, ctx: RunContext):
            logging.getLogger("shop").warning("with %s and %s", token, password.upper())
            error = ValueError(f"GET /?token={quote(token, safe='')}")
            logging.getLogger("shop").warning("it failed", exc_info=error)
            ctx.progress(0.5, note=f"sent {token}")

        run = memory_app.job(talk).dispatch(token=TOKEN, password="hunter22")
        memory_app.run()

        assert run.log()[0].message == "with *** and ***"
        assert "GET /?token=***" in run.log()[1].message
        shown = memory_app.inspect.details(run.id)
        assert shown.run.progress == {"share": 0.5, "note": "sent ***"}
        assert "1234" not in repr(shown)

    def test_reasons(self, memory_app):
        def later(token: Secret[str]):
            raise Snooze(60, reason=f"{token} is not valid yet")

        run = memory_app.job(later).dispatch(token=TOKEN)
        memory_app.run()

        assert run.read().reason == "*** is not valid yet"

    def test_a_secret_that_is_a_key_of_the_result(self, memory_app):
        def answer(token: Secret[str]):
            return {token: 1, "seen": {f"Bearer {token}": [token]}}

        run = memory_app.job(answer).dispatch(token=TOKEN)
        memory_app.run()

        shown = memory_app.inspect.details(run.id).run.result
        assert shown == {"***": 1, "seen": {"Bearer ***": ["***"]}}

    def test_a_result_that_cannot_be_stored(self, memory_app):
        def answer(token: Secret[str]):
            return {(token,): 1}

        run = memory_app.job(answer).dispatch(token=TOKEN)
        memory_app.run()

        assert "1234" not in run.read().reason

    def test_the_default_of_a_secret_parameter(self, memory_app):
        def connect(password: Secret[str] = TOKEN):
            raise ValueError(f"{password} is wrong")

        run = memory_app.job(connect).dispatch()
        memory_app.run()

        assert run.read().reason == "ValueError: *** is wrong"

    def test_keys_of_limits(self, memory_app):
        @memory_app.job(concurrency={"slots": 1, "per": "token"})
        def use(token: Secret[str]) -> None: ...

        store = memory_app._services.store
        first, second = (use.dispatch(token=TOKEN) for _ in range(2))
        other = use.dispatch(token="another one")
        memory_app.run(batch=1)

        keys = [store.get_run(run.id).limit_keys for run in (first, second, other)]
        assert keys[0] == keys[1] != keys[2]
        assert "1234" not in repr(keys)


class TestLogRecords:
    def test_a_failure_shows_its_traceback_without_the_secret(self, memory_app, caplog):
        def fail(token: Secret[str]):
            raise KeyError(f"unknown token {token}") from ValueError(token)

        memory_app.job(fail).dispatch(token=TOKEN)
        memory_app.run()

        [record] = [each for each in caplog.records if each.levelname == "ERROR"]
        assert "1234" not in caplog.text
        assert "in fail" in caplog.text  # the frames
        kind, error, trace = record.exc_info
        assert (kind.__name__, trace is not None) == ("KeyError", True)
        assert "***" in str(error)
        assert "1234" not in repr(error)
        assert error.__cause__ is None

    def test_a_hook_that_fails(self, memory_app, caplog):
        def on_after(ctx: RunContext):
            raise KeyError(f"unknown token {ctx.args['token']}")

        @memory_app.job(on_after=on_after)
        def use(token: Secret[str]) -> None: ...

        use.dispatch(token=TOKEN)
        memory_app.run()

        assert "KeyError: 'unknown token ***'" in caplog.text
        assert "in on_after" in caplog.text
        assert "1234" not in caplog.text

    def test_an_exception_without_a_secret_is_logged_as_it_is(self, memory_app, caplog):
        def fail(token: Secret[str]):
            raise KeyError("unknown")

        memory_app.job(fail).dispatch(token=TOKEN)
        memory_app.run()

        [record] = [each for each in caplog.records if each.levelname == "ERROR"]
        assert type(record.exc_info[1]) is KeyError


class TestErrors:
    def test_the_default_of_a_secret_is_not_in_the_signature(self, memory_app):
        @memory_app.job
        def connect(host: str, token: Secret[str] = TOKEN, retries: int = 3) -> None: ...

        with pytest.raises(ArgumentError) as caught:
            connect.dispatch(port=1)

        assert "1234" not in str(caught.value)
        assert "token: str = ***, retries: int = 3" in str(caught.value)

    @pytest.mark.parametrize("value", [{(TOKEN,): 1}, {TOKEN: float("inf")}, [{TOKEN: object()}]])
    def test_a_secret_that_cannot_be_stored(self, memory_app, value):
        @memory_app.job
        def use(token: Secret[object]) -> None: ...

        with pytest.raises(NotSerializable) as caught:
            use.dispatch(token=value)

        assert "1234" not in str(caught.value)
        assert "payload['token']" in str(caught.value)


def test_settings_do_not_show_the_password():
    app = Tickwork("postgresql://app:s3cret@db/jobs", install=False)

    assert "s3cret" not in repr(app.settings)
    assert "postgresql://app:***@db/jobs" in repr(app.settings)
    assert "s3cret" not in json.dumps(repr(app))


class TestForms:
    """The forms in which a handler or a library may print a secret reach no row and no record."""

    @pytest.mark.parametrize("form", [ascii, json.dumps, repr, quote])
    def test_escaped(self, memory_app, caplog, form):
        def fail(token: Secret[str]):
            logging.getLogger("shop").warning(form(token))
            raise ValueError(form(token)) from KeyError(token)

        run = memory_app.job(fail).dispatch(token="tök/ën-zXq4")
        memory_app.run()

        details = memory_app.inspect.details(run.id)
        [attempt] = details.attempts
        shown = caplog.records[-1].getMessage() + str(caplog.records[-1].exc_text)
        for text in (attempt.error, attempt.traceback, details.log[0].message, shown):
            assert "***" in text
            assert "zXq4" not in text

    def test_a_secret_at_the_end_of_what_is_stored(self, memory_app):
        """Texts are masked before they are shortened: a part of a secret is not known any more."""

        def fail(token: Secret[str], start: int):
            text = "x" * start + token + "y" * ERROR_MAX
            logging.getLogger("shop").warning(text)
            raise ValueError(text)

        job = memory_app.job(fail)
        middle = ERROR_MAX // 2  # the start and the end of a long text are stored
        runs = [job.dispatch(token=TOKEN, start=at) for at in range(middle - 30, middle)]
        memory_app.run()

        for run in runs:
            details = memory_app.inspect.details(run.id)
            for text in (details.run.reason, details.log[0].message):
                assert "t0" not in text

    def test_a_nested_name(self):
        with Tickwork("memory://", clock=ManualClock(), redact=["card.number"]) as app:

            def pay(card: Card) -> str:
                raise ValueError(f"declined: {card.number}")

            run = app.job(pay).dispatch(card=Card("4111-1111"))
            app.run()

            assert run.read().reason == "ValueError: declined: ***"
            assert app.inspect.details(run.id).run.args == {"card": {"number": "***"}}


def test_a_job_without_secrets_makes_no_mask(monkeypatch):
    monkeypatch.setattr("tickwork._define.definition.SecretMask", None)

    with Tickwork("memory://", clock=ManualClock()) as app:

        @app.job
        def fail() -> None:
            logging.getLogger("shop").warning("x")
            raise ValueError("y")

        run = fail.dispatch()
        app.run()
        assert run.read().reason == "ValueError: y"
