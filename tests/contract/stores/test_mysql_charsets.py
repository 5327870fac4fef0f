"""Texts keep every character, whatever character set the database has by default."""

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from contract.builders import NOON, StoreDriver, a_run, add, added, settled, tick
from servers import mariadb
from tickwork._domain.runs.outcome import Failed, Succeeded
from tickwork._stores.contract import LogLine
from tickwork._stores.mysql.store import MysqlStore
from tickwork.testing import ManualClock

TEXT = "日本 🎉 é"


@pytest.fixture(params=["latin1", "utf8mb3", "ascii", "utf8mb4"])
def store(request: pytest.FixtureRequest, mariadb_url: str) -> Iterator[MysqlStore]:
    database = mariadb_url.rpartition("/")[2]
    with mariadb.connect(mariadb_url) as connection:
        connection.execute(f"ALTER DATABASE {database} CHARACTER SET {request.param}")
    opened = MysqlStore(mariadb_url)
    opened.install()
    yield opened
    opened.close()


class TestDefaultsOfTheDatabase:
    def test_results_and_errors(self, store):
        driver = StoreDriver(store, ManualClock(NOON))
        add(store, *(runs := [a_run(attempts_max=2) for _ in range(6)]))
        claims = driver.claim()
        for claim, outcome in zip(
            claims,
            [Succeeded(f'"{TEXT}"')] * 2
            + [Failed(TEXT, TEXT)] * 2
            + [Failed(TEXT, TEXT, retry=False)] * 2,
            strict=True,
        ):
            store.record([settled(claim, outcome)])

        found = {run.id: run for run in store.get_runs([run.id for run in runs])}
        assert [found[run.id].result for run in runs[:2]] == [f'"{TEXT}"'] * 2
        assert [found[run.id].reason for run in runs[2:]] == [TEXT] * 4
        [attempt] = store.run_record(runs[2].id).attempts
        assert (attempt.error, attempt.traceback) == (TEXT, TEXT)
        assert [job.last_error for job in store.list_jobs()] == [TEXT]

    def test_names_keys_and_logs(self, store):
        driver = StoreDriver(store, ManualClock(NOON))
        key = f'account:send_email="{TEXT}"'
        store.set_limits({"account:send_email": 1})
        add(
            store,
            first := a_run(limit_keys=(key,), tags=(TEXT,)),
            second := a_run(limit_keys=(key,)),
        )
        driver.claim()
        store.append_logs({first.id: [LogLine(NOON, "INFO", TEXT, TEXT)]}, lines_max=9)

        assert store.get_run(second.id).blocked_on == key
        assert store.get_run(first.id).tags == (TEXT,)
        assert store.count_taken([key]) == {key: 1}
        assert store.run_record(first.id).log == [LogLine(NOON, "INFO", TEXT, TEXT)]

    def test_names_of_schedules(self, store):
        clock = ManualClock(NOON)
        added(store, TEXT)
        tick(store, clock)
        [claim] = StoreDriver(store, clock).claim()

        assert claim.schedule == TEXT
        assert store.cancel_schedule("", TEXT, now=NOON) == 1


def test_every_text_of_a_json_table_names_its_character_set():
    """Without one, it has the default of the database, and loses what that cannot store."""
    texts = [
        file.read_text(encoding="utf-8")
        for file in files("tickwork._stores.mysql").joinpath("queries").iterdir()
    ]
    bare = re.compile(r"\w+ (?:LONGTEXT|VARCHAR\(\d+\)|CHAR\(\d+\)) PATH")
    assert [found for text in texts for found in bare.findall(text)] == []
