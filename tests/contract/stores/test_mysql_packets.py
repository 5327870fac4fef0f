"""With a small max_allowed_packet, batches are split, and what is too large is an error."""

from collections.abc import Iterator

import pytest

from contract.builders import NOON, StoreDriver, a_run, add, all_runs, ids, settled
from servers import mariadb
from servers.mariadb import MariaDBServer
from tickwork import Tickwork
from tickwork._domain.runs.outcome import Succeeded
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.mysql.store import MysqlStore
from tickwork.errors import StoreError
from tickwork.testing import ManualClock

pytestmark = pytest.mark.servers("mariadb")

WIDE = "日" * 50_000  # 150,000 bytes
TOO_LARGE = "日" * 500_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with MariaDBServer(fsync=False, settings={"max-allowed-packet": "1M"}) as server:
        yield server.url(server.create_database())


@pytest.fixture
def store(url: str) -> Iterator[MysqlStore]:
    opened = MysqlStore(url)
    opened.install()
    yield opened
    opened.close()
    mariadb.empty(url)


class TestBatches:
    def test_they_are_split(self, store):
        driver = StoreDriver(store, ManualClock(NOON))
        add(store, *(runs := [a_run(args=f'["{WIDE}"]') for _ in range(20)]))
        claims = driver.claim(100)

        assert store.record([settled(claim, Succeeded(f'"{WIDE}"')) for claim in claims]) == []

        assert ids(all_runs(store)) == ids(runs)
        assert {run.result for run in all_runs(store)} == {f'"{WIDE}"'}

    def test_on_a_connection_of_the_caller(self, store, url):
        with mariadb.connect(url, charset="utf8mb4", autocommit=False) as connection:
            store.using(connection).add_runs(runs := [a_run(args=f'["{WIDE}"]') for _ in range(20)])
            connection.commit()

        assert ids(all_runs(store)) == ids(runs)


class TestTooLarge:
    def test_a_dispatch_is_an_error(self, store):
        with pytest.raises(StoreError, match="max_allowed_packet"):
            add(store, a_run(args=f'["{TOO_LARGE}"]'))

        add(store, run := a_run())
        assert ids(all_runs(store)) == [run.id]

    def test_a_dispatch_on_a_connection_of_the_caller(self, store, url):
        with mariadb.connect(url, charset="utf8mb4", autocommit=False) as connection:
            borrowed = store.using(connection)
            borrowed.add_runs([run := a_run()])
            with pytest.raises(StoreError, match="max_allowed_packet"):
                borrowed.add_runs([a_run(args=f'["{TOO_LARGE}"]')])
            connection.commit()

        assert ids(all_runs(store)) == [run.id]

    def test_a_run_with_such_a_result_is_completed_without_it(self, store, url):
        with Tickwork(url, clock=ManualClock(NOON), payload_max=10_000_000) as app:

            @app.job
            def render(text: str, times: int) -> str:
                return text * times

            runs = [app.dispatch(render, "日", times) for times in (1, 500_000, 2)]

            app.run()

            found = [run.read() for run in runs]
        assert [run.status for run in found] == [
            RunStatus.COMPLETED,
            RunStatus.COMPLETED,
            RunStatus.COMPLETED,
        ]
        assert "max_allowed_packet" in found[1].reason
