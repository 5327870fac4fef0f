"""``Tickwork(encrypt=...)``: arguments, results, checkpoints and progress are encrypted."""

import gc
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from cryptography.fernet import Fernet

from cli.conftest import Cli
from servers import mariadb
from tickwork import RunContext, RunStatus, Tickwork
from tickwork._stores._sql import columns
from tickwork._stores._sql.columns import PAYLOAD, PAYLOAD_OR_NONE, StoredColumn
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import RowMappers
from tickwork._stores._sql.table_check import table_columns
from tickwork.errors import InvalidOption, PayloadEncrypted

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


class TestColumns:
    """Every column with a payload is declared as one, so that no method stores it in plain text."""

    PAYLOADS: ClassVar = {"args", "result", "progress", "checkpoint", "value"}

    def declared(self) -> dict[str, tuple[StoredColumn, ...]]:
        found = {name: value for name, value in vars(columns).items() if isinstance(value, tuple)}
        return {
            name: value
            for name, value in found.items()
            if value and all(isinstance(each, StoredColumn) for each in value)
        }

    def test_payloads_are_declared_as_such(self):
        kinds = {PAYLOAD, PAYLOAD_OR_NONE}
        lists = self.declared()

        assert {"RUN", "NEW_RUN", "CLAIM", "SUMMARY", "SPEC", "SCHEDULE"} <= lists.keys()
        for name, declared in lists.items():
            for column in declared:
                assert (column.name in self.PAYLOADS) == (column.kind in kinds), (name, column)

    @pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"])
    def test_the_tables_have_no_other_columns_for_them(self, kind):
        found = table_columns(Queries(f"tickwork._stores.{kind}"))
        payloads = {
            (table, name) for table, names in found.items() for name in self.PAYLOADS & {*names}
        }

        assert payloads == {
            *(("tickwork_run", name) for name in ("args", "progress", "checkpoint")),
            *(("tickwork_history", name) for name in self.PAYLOADS - {"value"}),
            ("tickwork_schedule", "args"),
            ("tickwork_step", "value"),
        }


def test_a_store_without_a_cipher_calls_nothing_for_payloads():
    functions = [each for each in vars(RowMappers()).values() if hasattr(each, "__code__")]

    assert len(functions) > 5
    assert not {"encrypt", "decrypt"} & {
        name for each in functions for name in each.__code__.co_names
    }


def test_handles_are_read_after_the_application_is_gone():
    app = Tickwork("memory://", encrypt=NEW)
    run = define(app).dispatch(card=Card(CLEAR))
    store = app._services.store
    del app
    gc.collect()

    found = store.get_run(run.id)
    assert found is not None
    assert CLEAR in found.args
