"""``Tickwork(encrypt=...)``: arguments, results, checkpoints and progress are encrypted."""

import inspect
import re
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from cryptography.fernet import Fernet

from cli.conftest import Cli
from servers import mariadb
from tickwork import RunContext, RunStatus
from tickwork.errors import InvalidOption, PayloadEncrypted
from tickwork.stores import contract
from tickwork.stores.encrypted import EncryptedStore

OLD, NEW = Fernet.generate_key(), Fernet.generate_key()
CLEAR = "plain-4711"


@dataclass
class Card:
    number: str


def define(app, seen=None):
    @app.job(unique=True, attempts=2)
    def charge(card: Card, ctx: RunContext) -> Card:
        if ctx.attempt == 1:
            ctx.checkpoint({"card": card.number})
            ctx.progress(0.5, note=card.number)
            raise ValueError("try again")
        assert ctx.checkpoint() == {"card": card.number}
        ctx.then(note, text=card.number)
        return card

    @app.job
    def note(text: str) -> None:
        if seen is not None:
            seen.append(text)

    app.schedule("nightly", note).args(text=f"{CLEAR}-nightly").daily_at("02:00")
    return charge


def stored_bytes(app, database, url):
    """Everything that the database has stored."""
    app.close()
    if database == "sqlite":
        file = Path(re.sub(r"sqlite:///|\?.*", "", url))
        return b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*"))
    tables = ("run", "history", "schedule", "job", "attempt", "log", "unique", "limit")
    rows: list[Any] = []
    connect: Any = psycopg.connect(url) if database == "postgres" else mariadb.connect(url)
    with connect as connection, connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT * FROM tickwork_{table}")
            rows += cursor.fetchall()
    return repr(rows).encode()


def test_the_database_does_not_contain_them(make_app, database, url, clock, passes):
    seen: list[str] = []
    app = make_app(encrypt=NEW)
    charge = define(app, seen)
    run = charge.dispatch(card=Card(CLEAR))
    again = charge.dispatch(card=Card(CLEAR))
    app.run()
    clock.advance(minutes=5)
    passes(app)
    clock.advance(days=1)
    passes(app)

    assert again.id == run.id
    assert run.result() == Card(CLEAR)
    assert app.inspect.view(run.read()).args == {"card": {"number": CLEAR}}
    assert seen == [CLEAR, f"{CLEAR}-nightly"]
    found = stored_bytes(app, database, url)
    assert CLEAR.encode() not in found
    assert b"$encrypted" in found


def test_without_encryption_the_database_contains_them(make_app, database, url):
    app = make_app()
    define(app).dispatch(card=Card(CLEAR))

    assert CLEAR.encode() in stored_bytes(app, database, url)


class TestOneDatabase:
    """The keys, where the kind of database does not matter."""

    @pytest.fixture
    def database(self):
        return "sqlite"

    def test_keys_are_rotated(self, make_app):
        run = define(make_app(encrypt=OLD)).delay("1h").dispatch(card=Card(CLEAR))
        both = make_app(encrypt=[NEW, Fernet(OLD)])
        charge = define(both)
        assert both.inspect.view(both.get_run(run.id).read()).args == {"card": {"number": CLEAR}}

        newer = charge.delay("1h").dispatch(card=Card("other"))
        new = make_app(encrypt=Fernet(NEW))
        assert "other" in new.get_run(newer.id).read().args
        assert CLEAR not in new.get_run(run.id).read().args

    def test_rows_from_before_are_read(self, make_app):
        run = define(make_app()).delay("1h").dispatch(card=Card(CLEAR))

        assert CLEAR in make_app(encrypt=NEW).get_run(run.id).read().args

    def test_without_the_key_it_is_shown_as_encrypted(self, make_app):
        app = make_app(encrypt=NEW)
        run = define(app).dispatch(card=Card(CLEAR))
        other = make_app()

        view = other.inspect.view(other.get_run(run.id).read())
        assert view.args == {"?": "<encrypted>"}
        assert "<encrypted>" in Cli(other).text("inspect", run.id)
        assert CLEAR in Cli(app).text("inspect", run.id)
        assert run.id[:8] in Cli(other).text("runs")

    def test_a_run_that_cannot_be_decrypted_fails_for_good(self, make_app):
        run = define(make_app(encrypt=OLD)).dispatch(card=Card(CLEAR))
        other = make_app(encrypt=NEW)
        define(other)
        other.run()

        found = other.get_run(run.id).read()
        assert found.status is RunStatus.FAILED_PERMANENT
        assert "encrypted" in found.reason

    def test_a_result_that_cannot_be_decrypted_is_an_error(self, make_app):
        app = make_app(encrypt=NEW)

        @app.job
        def give() -> str:
            return CLEAR

        run = give.dispatch()
        app.run()

        assert run.result() == CLEAR
        with pytest.raises(PayloadEncrypted):
            make_app().get_run(run.id).result()

    def test_the_callers_transaction(self, make_app, url):
        import sqlite3

        app = make_app(encrypt=NEW)
        charge = define(app)
        app.install()
        with sqlite3.connect(re.sub(r"sqlite:///|\?.*", "", url)) as connection:
            run = charge.using(connection).dispatch(card=Card(CLEAR))
            [(args,)] = connection.execute("SELECT args FROM tickwork_run").fetchall()
        connection.close()

        assert CLEAR not in args
        assert CLEAR in run.read().args

    @pytest.mark.parametrize("wrong", ["short", 7, [], [NEW, None], object()])
    def test_what_is_no_key(self, make_app, wrong):
        with pytest.raises(InvalidOption, match="encrypt"):
            make_app(encrypt=wrong)


class TestEveryMethod:
    """No method of a store passes payloads by the encryption."""

    PAYLOADS: ClassVar = {
        *("NewRun", "Claim", "Run", "RunPage", "RunRecord", "Transition", "TickPlan"),
        *("ScheduleRow", "ScheduleSpec", "NewSchedule", "Planner", "AsyncRuns", "Store"),
    }
    ONLY_IDS: ClassVar = {"after_complete"}  # it reads the ids and tokens of claims

    def test_those_with_payloads_are_encrypted(self):
        named = set()
        for name, function in inspect.getmembers(contract.Store, inspect.isfunction):
            text = " ".join(str(each) for each in typing.get_type_hints(function).values())
            words = set(re.findall(r"\w+", text))
            if not name.startswith("_") and words & self.PAYLOADS:
                named.add(name)

        assert named - vars(EncryptedStore).keys() == self.ONLY_IDS
