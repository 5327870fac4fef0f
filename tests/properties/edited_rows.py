"""Edits columns of any table to any value, and checks that the worker goes on.

A round fills the tables with runs, schedules, limits and the rest, edits some rows, and lets the
application work for some minutes. Other rows must not suffer: what is dispatched after the edits
completes, the schedules that were not edited fire, and every reader answers.
"""

import json
import random
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import psycopg
import pymysql
from click.testing import CliRunner
from starlette.testclient import TestClient

from contract.builders import NOON
from servers import mariadb
from tickwork import Tickwork, dashboard
from tickwork._domain.identity import WorkerId
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ClaimRequest, LockRow, LogLine, Store, WorkerRow
from tickwork.cli.main import command_for
from tickwork.dashboard import authentication
from tickwork.errors import TickworkError
from tickwork.testing import ManualClock

EDITS_PER_ROUND: Final = 40
MICROS: Final = int(NOON.timestamp()) * 1_000_000

INTEGERS: Final = [
    *(0, 1, -1, 2, 7, 100, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53 + 1),
    *(2**63 - 1, -(2**63), 2**62, 10**15, -(10**15)),
    *(MICROS, MICROS + 1, MICROS - 60_000_000, MICROS + 90_000_000, MICROS + 10**14),
    *(253_402_300_800_000_000, -62_135_596_800_000_001),  # the years 10000 and 0
]
WORDS: Final = [
    *("", " ", "x", "0", "-1", "1.5", "nan", "null", "true", "{", "[", "{}", "[]", '"x"', '""'),
    *("[1]", "[null]", '["a", "a"]', '["x"]', "[[]]", '[""]', '["\\ud800"]', '["job/x:y"]'),
    *('["@schedule:1"]', '["job/minute:rated", "job/minute:rated"]', '{"a": 1}', '[1, "a"]'),
    *("pending", "running", "failed", "completed", "canceled", "skipped", "failed_permanent"),
    *("ready", "waiting", "blocked", "lost", "skip", "queue_one", "queue_all", "cancel_running"),
    *("allow", "one", "all", "code", "api", "queue", "job", "succeeded", "crashed", "UTC"),
    *(
        "Mars/Olympus",
        "job:limited",
        "job/minute:rated",
        "a/b:c",
        "job/0s:x",
        "@schedule:",
        "=",
        ":",
    ),
    *(
        "held:x",
        "waiting:x",
        "every minute",
        "* * * * *",
        "cron * * * * *",
        "日本 é",
        "\u202e\x1b[31m",
    ),
    *("x" * 200, "é" * 300, "a\nb", "\t", "'; DROP", "%s %d", "\ufeff", "0" * 40, "9" * 400),
]
NOT_UNICODE: Final = "a text of SQLite that is no Unicode"
CONTROL: Final = "control"
"""Rows whose names begin with it are not edited."""

_STEPS: Final = 4
_UNEDITED: Final = {"tickwork_meta"}  # a database of another version is refused, by design


class Column(NamedTuple):
    table: str
    name: str
    kind: str  # "integer", "text" or "uuid"
    is_nullable: bool


class Edit(NamedTuple):
    table: str
    column: str
    value: Any
    row: int  # the number of the row, in the order of the table
    where: str = ""  # how the database finds it

    def __str__(self) -> str:
        shown = repr(self.value)
        return f"{self.table}.{self.column} = {shown if len(shown) < 60 else shown[:57] + '...'}"


class Editor(ABC):
    """Edits rows with SQL. The database refuses what its constraints forbid."""

    @abstractmethod
    def columns(self) -> list[Column]: ...

    @abstractmethod
    def apply(self, edit: Edit) -> bool:
        """Edit a row; False if there is none, or if the database refuses the value."""

    @abstractmethod
    def empty(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def extra_values(self, column: Column) -> list[Any]:
        """More values that the database can store in this column."""
        return []


def _is_edited(table: str) -> bool:
    return table.startswith("tickwork_") and table not in _UNEDITED


def _not_control(columns: Sequence[str]) -> str:
    """SQL that leaves out the rows of controls."""
    named = [name for name in ("name", "job", "schedule", "key") if name in columns]
    return " AND ".join(f"coalesce({{{name}}}, '') NOT LIKE '%{CONTROL}%'" for name in named)


class SqliteEditor(Editor):
    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._connection.text_factory = lambda data: data.decode(errors="replace")
        self._columns = self._read_columns()

    def columns(self) -> list[Column]:
        return self._columns

    def _read_columns(self) -> list[Column]:
        tables = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        return [
            Column(table, name, "integer" if kind == "INTEGER" else "text", not not_null)
            for (table,) in tables
            if _is_edited(table)
            for _, name, kind, not_null, _, _ in self._connection.execute(
                f"PRAGMA table_info({table})"
            )
        ]

    def extra_values(self, column: Column) -> list[Any]:
        return [] if column.kind == "integer" else [NOT_UNICODE]

    def apply(self, edit: Edit) -> bool:
        names = [column.name for column in self._columns if column.table == edit.table]
        keys = [
            row[1] for row in self._connection.execute(f"PRAGMA table_info({edit.table})") if row[5]
        ]
        skipped = _not_control(names).format_map({name: name for name in names}) or "1"
        rows = self._connection.execute(
            f"SELECT {', '.join(keys)} FROM {edit.table} WHERE {skipped}"
        ).fetchall()
        if not rows:
            return False
        chosen = rows[edit.row % len(rows)]
        where = " AND ".join(f"{key} = ?" for key in keys)
        value, place = edit.value, "?"
        if value is NOT_UNICODE:
            value, place = b"\xff", "CAST(? AS TEXT)"
        try:
            self._connection.execute(
                f"UPDATE {edit.table} SET {edit.column} = {place} WHERE {where}", (value, *chosen)
            )
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            return False
        return True

    def empty(self) -> None:
        for table in {column.table for column in self._columns} - {"tickwork_gate"}:
            self._connection.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        self._connection.close()


class ServerEditor(Editor):
    """What the two servers share: they have an information_schema."""

    error: type[Exception]
    quote: str

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        rows = self._run(
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
            f" WHERE table_schema = {schema} AND coalesce(generation_expression, '') = ''"
            " AND table_name IN (SELECT table_name FROM information_schema.tables"
            f" WHERE table_schema = {schema} AND table_type = 'BASE TABLE')"
            " ORDER BY table_name, ordinal_position"
        )
        self._columns = [
            Column(table, name, self._kind(table, name, kind), is_nullable == "YES")
            for table, name, kind, is_nullable in rows
            if _is_edited(table)
        ]
        self._keys: dict[str, list[str]] = {}
        for table, name in self._run(
            "SELECT use_.table_name, use_.column_name FROM information_schema.key_column_usage use_"
            " JOIN information_schema.table_constraints con"
            " ON con.constraint_name = use_.constraint_name AND con.table_name = use_.table_name"
            " AND con.table_schema = use_.table_schema"
            f" WHERE use_.table_schema = {schema} AND con.constraint_type = 'PRIMARY KEY'"
        ):
            self._keys.setdefault(table, []).append(name)

    def _run(self, text: str, values: Sequence[Any] | None = None) -> list[Any]:
        cursor = self._connection.cursor()
        cursor.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def _kind(self, table: str, name: str, kind: str) -> str:
        if kind == "uuid":
            return "uuid"
        return "integer" if "int" in kind.lower() else "text"

    def columns(self) -> list[Column]:
        return self._columns

    def apply(self, edit: Edit) -> bool:
        quoted = {
            column.name: f"{self.quote}{column.name}{self.quote}"
            for column in self._columns
            if column.table == edit.table
        }
        keys = [quoted[name] for name in self._keys[edit.table]]
        skipped = _not_control(list(quoted)).replace("%", "%%").format_map(quoted) or "true"
        rows = self._run(
            f"SELECT {', '.join(keys)} FROM {edit.table} WHERE {skipped} ORDER BY 1", ()
        )
        if not rows:
            return False
        chosen = rows[edit.row % len(rows)]
        where = " AND ".join(f"{key} = %s" for key in keys)
        try:
            self._run(
                f"UPDATE {edit.table} SET {quoted[edit.column]} = %s WHERE {where}",
                (edit.value, *chosen),
            )
        except self.error:
            return False
        return True

    def empty(self) -> None:
        for table in {column.table for column in self._columns}:
            if table not in {"tickwork_gate", "tickwork_change_counter"}:
                self._run(f"DELETE FROM {table}")

    def close(self) -> None:
        self._connection.close()


class PostgresEditor(ServerEditor):
    error = psycopg.Error
    quote = '"'

    def __init__(self, url: str) -> None:
        super().__init__(psycopg.connect(url, autocommit=True), "'public'")


class MariadbEditor(ServerEditor):
    error = pymysql.err.Error
    quote = "`"

    def __init__(self, url: str) -> None:
        connection = mariadb.connect(url, charset="utf8mb4")
        connection.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
        super().__init__(connection, "database()")


# ---------------------------------------------------------------- rounds


class Rounds:
    """Rounds on one database. The same seed makes the same edits."""

    def __init__(self, url: str, editor: Editor, *, seed: int) -> None:
        self.url = url
        self.editor = editor
        self.seed = seed
        self.applied = 0
        self.rounds = 0

    def run(self, edits: int) -> None:
        while self.applied < edits:
            self.rounds += 1
            self.play(f"{self.seed}/{self.rounds}")

    def play(self, key: str, *, only: set[int] | None = None) -> None:
        """Play one round; ``only`` applies some of its edits, to find the one at fault."""
        chance = random.Random(key)
        self.editor.empty()
        clock = ManualClock(NOON)
        with Tickwork(self.url, clock=clock) as app:
            world = _World(app, clock)
            world.fill()
            made: list[Edit] = []
            for number in range(EDITS_PER_ROUND):
                edit = self._choose(chance)
                if (only is None or number in only) and self.editor.apply(edit):
                    made.append(edit)
            self.applied += len(made)
            try:
                world.work()
                world.read()
            except BaseException as error:
                error.add_note(f"round {key!r}: " + "; ".join(map(str, made)))
                raise

    def _choose(self, chance: random.Random) -> Edit:
        columns = self.editor.columns()
        # Each table as often as another, but for runs and schedules.
        weights = {
            "tickwork_run": 8,
            "tickwork_schedule": 6,
            "tickwork_rate": 3,
            "tickwork_limit": 2,
        }
        tables = sorted({column.table for column in columns})
        [table] = chance.choices(tables, [weights.get(name, 1) for name in tables])
        column = chance.choice([each for each in columns if each.table == table])
        values: list[Any] = list(INTEGERS if column.kind == "integer" else WORDS)
        values += [chance.randrange(-(2**40), 2**40)] if column.kind == "integer" else []
        if column.kind == "uuid":
            values = [f"00000000-0000-0000-0000-{chance.randrange(100):012x}", "f" * 32]
        values += self.editor.extra_values(column)
        value = chance.choice(values)
        if column.is_nullable and chance.random() < 0.15:
            value = None
        return Edit(table, column.name, value, chance.randrange(1000))


LOCAL = ("127.0.0.1", 50_000)
PAGES = (
    "/", "/runs", "/schedules", "/schedules/watched", "/time", "/queues", "/workers", "/alerts",
    "/audit", "/api/v1/runs", "/api/v1/schedules",
)  # fmt: skip


class _World:
    """An application with jobs, schedules and rows of every kind."""

    def __init__(self, app: Tickwork, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.done: list[str] = []
        self._define(app)

    def _define(self, app: Tickwork) -> None:
        done = self.done

        @app.job(name="plain")
        def plain(n: int = 0) -> int:
            return n

        @app.job(name="limited", concurrency=2)
        def limited(n: int = 0) -> None: ...

        @app.job(name="rated", rate="3/minute")
        def rated(n: int = 0) -> None: ...

        @app.job(name="flaky", retries={"max": 3, "base": 2})
        def flaky(n: int = 0) -> None:
            raise ValueError("no")

        @app.job(name="single")
        def single(n: int = 0) -> None: ...

        @app.job(name=f"{CONTROL}_plain")
        def control_plain(name: str) -> None:
            done.append(name)

        @app.job(name=f"{CONTROL}_limited", concurrency=1)
        def control_limited(name: str) -> None:
            done.append(name)

        @app.job(name=f"{CONTROL}_rated", rate="100/second")
        def control_rated(name: str) -> None:
            done.append(name)

        @app.job(name=f"{CONTROL}_retried", retries={"max": 2, "base": 2})
        def control_retried(name: str) -> None:
            if f"{name} failed" not in done:
                done.append(f"{name} failed")
                raise ValueError("once")
            done.append(name)

        @app.job(name=f"{CONTROL}_fired")
        def control_fired() -> None:
            done.append("fired")

        for overlap in ("skip", "queue_one", "queue_all", "allow", "cancel_running"):
            app.schedule(f"every-{overlap}", plain).every_minute().overlap(overlap)
        app.schedule("limited-minute", limited).every_minute()
        app.schedule("watched", flaky).every_minute().expect_within(seconds=30)
        app.schedule(f"{CONTROL}-minute", control_fired).every_minute()

    def fill(self) -> None:
        app, store = self.app, self.store
        for number in range(4):
            app.dispatch("plain", number)
            app.dispatch("limited", number)
            app.dispatch("rated", number)
            app.dispatch("flaky", number)
            app.draft.unique(f"k{number}").dispatch("single", number)
            app.draft.delay("30s").dispatch("plain", number)
        for number in range(2):
            app.schedules.register("acme", f"api-{number}", NOON, "1m", "plain")
        self.clock.advance(seconds=60)
        app.run(10)  # fires schedules, and leaves history, attempts and retries
        self._add_rows(store)
        for number in range(6):
            app.dispatch("plain", number)
            app.dispatch("limited", number)
            app.dispatch("rated", number)

    def _add_rows(self, store: Store) -> None:
        now = self.clock.now()
        worker = WorkerId(new_id(now))
        for number in range(2):
            store.beat_worker(
                WorkerRow(
                    id=WorkerId(new_id(now)),
                    host="web-1",
                    pid=number + 1,
                    boot_id="boot",
                    process_started="1",
                    started_at=now,
                    beat_at=now,
                    queues=None,
                    jobs=("plain",),
                    slots=1,
                    running=0,
                    version="0.1.0",
                )
            )
        claims = store.claim(
            ClaimRequest(8, jobs=("plain", "limited", "rated", "flaky")),
            worker=worker,
            tag="dead",
            now=now,
            lease=timedelta(seconds=20),
        )
        store.append_logs(
            {claim.run_id: [LogLine(now, "INFO", "x", "y")] for claim in claims}, lines_max=9
        )
        self.app.pause(queue="elsewhere")
        self.app.pause(job="single", until=now + timedelta(minutes=1))
        store.acquire_lock(
            LockRow("lock", "me", "host", 1, now, now + timedelta(minutes=1)), now=now
        )
        self.app.limits.change("job:limited", 3)

    @property
    def store(self) -> Store:
        return self.app._services.store  # for tests

    # ------------------------------------------------------------ what must go on

    def work(self) -> None:
        names = []
        for kind in ("plain", "limited", "rated", "retried"):
            for number in range(2):
                names.append(f"{kind} {number}")
                self.app.dispatch(f"{CONTROL}_{kind}", names[-1])
        before = self.clock.now()
        for _ in range(_STEPS):
            self.clock.advance(seconds=60)
            for _ in range(6):
                if not self.app.run(50):
                    break
            self._maintain()
        missing = [name for name in names if name not in self.done]
        assert not missing, f"These runs did not complete: {missing}"
        fired = self.done.count("fired")
        assert fired >= _STEPS, f"The schedule fired {fired} times since {before}."

    def _maintain(self) -> None:
        """What a worker does beside its passes."""
        passes = self.app._services.passes  # for tests
        passes.heartbeat.step()
        passes.reaper.step()
        passes.reaper.release_dead()
        passes.timer.step()
        passes.timer.seconds_left(1.0)
        passes.find_next_due(is_stuck=True)
        self.app._services.watcher.step()
        self.app.prune(days=1)

    # ------------------------------------------------------------ readers

    def read(self) -> None:
        app = self.app
        runs = app.runs.recent(limit=200)
        chosen = [runs[number * len(runs) // 12] for number in range(12)] if runs else []
        app.schedules.list()
        app.pauses()
        app.limits.list()
        app.due(10)
        commands = [
            ["status"], ["doctor"], ["runs"], ["next"], ["simulate", "--days", "1"],
            ["explain", "plain"], ["explain", "limited"], ["explain", "every-skip"],
        ]  # fmt: skip
        commands += [["inspect", run.id] for run in chosen[:4]]
        for number, command in enumerate(commands):
            self._invoke(command, is_json=number % 2 == 0)
        self._open_pages([run.id for run in chosen[:2]])
        for run in chosen:
            app.inspect.view(run)
            with suppress(TickworkError):
                app.inspect.details(run.id)
            with suppress(TickworkError):
                app.explain(run.id)

    def _open_pages(self, run_ids: list[str]) -> None:
        """Open pages of the dashboard: 404 is an answer, a crash is not."""
        paths = [
            *PAGES,
            *(f"/runs/{quote(run_id, safe='', errors='replace')}" for run_id in run_ids),
        ]
        # On a busy machine a page may take longer than the limit of a server.
        identify = authentication.identify_loopback
        pages = dashboard.asgi(self.app, identify=identify, read_timeout=timedelta(minutes=2))
        client = TestClient(pages, base_url="http://127.0.0.1", client=LOCAL)
        with client:
            for path in paths:
                found = client.get(path)
                assert found.status_code < 500, f"{path}: {found.status_code} {found.text[-500:]}"

    def _invoke(self, command: list[str], *, is_json: bool) -> None:
        done = CliRunner().invoke(
            command_for(self.app),
            [*command, *(["--json"] if is_json else [])],
            prog_name="tickwork",
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            done.exception.add_note(f"tickwork {' '.join(command)}")
            raise done.exception
        if is_json and done.exit_code in {0, 1} and done.stdout:
            json.loads(done.stdout)


@contextmanager
def closing_editor(editor: Editor) -> Iterator[Editor]:
    try:
        yield editor
    finally:
        editor.close()
