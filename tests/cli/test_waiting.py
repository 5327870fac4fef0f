"""``work`` started while the database is away."""

import socket
import time
from datetime import timedelta

import pytest

from cli.test_processes import SHOP, Folder
from tickwork.cli.database_wait import wait_for_database
from tickwork.errors import AccessDenied, SchemaMissing, StoreDamaged, StoreUnavailable

URL = "postgresql://app:s3cret@db/jobs"
SHOWN = "postgresql://app:***@db/jobs"
SQLITE = "sqlite:///shop.db?synchronous=NORMAL"


def not_at_all(seconds):
    raise AssertionError(f"It waits for {seconds} s.")


class FakeApp:
    """An application whose database answers after some tries."""

    def __init__(self, *faults):
        self.faults = list(faults)
        self.tries = 0
        self.runs = self

    def page(self, *_, **__):
        self.tries += 1
        if self.faults:
            raise self.faults.pop(0)


class TestWaiting:
    def test_it_tries_until_the_database_answers_and_says_so_once(self, caplog):
        caplog.set_level("INFO")
        app = FakeApp(*[StoreUnavailable(URL, "connection refused")] * 3)
        slept: list[float] = []

        wait_for_database(app, limit=None, sleep=slept.append)

        assert app.tries == 4
        assert len(slept) == 3
        assert slept == sorted(slept)
        assert [record.getMessage() for record in caplog.records] == [
            f"Waiting for the database: The store at {SHOWN} cannot be reached. connection refused",
            "The database answers.",
        ]

    @pytest.mark.parametrize(
        "error",
        [
            AccessDenied(URL, "password authentication failed"),
            SchemaMissing(URL),
            StoreDamaged("jobs.db", "file is not a database"),
            StoreUnavailable("sqlite:///missing/jobs.db", "unable to open database file"),
        ],
    )
    def test_it_does_not_wait_for_what_time_does_not_cure(self, error):
        with pytest.raises(type(error)):
            wait_for_database(FakeApp(error), limit=None, sleep=not_at_all)

    def test_a_stop_ends_it(self):
        app = FakeApp(*[StoreUnavailable(URL, "connection refused")] * 3)
        slept: list[float] = []

        is_there = wait_for_database(
            app, limit=None, sleep=slept.append, is_stopped=lambda: len(slept) == 2
        )

        assert (is_there, app.tries) == (False, 2)

    def test_a_limit_of_zero_does_not_wait(self):
        with pytest.raises(StoreUnavailable):
            wait_for_database(
                FakeApp(StoreUnavailable(URL, "no")), limit=timedelta(0), sleep=not_at_all
            )

    def test_a_process_waits_for_as_long_as_it_is_allowed_to(self, tmp_path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder = Folder(tmp_path)
        folder.write(SHOP.replace(SQLITE, f"mysql://a@127.0.0.1:{port}/b"))
        begun = time.monotonic()

        done = folder.run("work", "--wait", "1s")

        assert done.returncode == 4
        assert time.monotonic() - begun >= 1
        assert "Waiting for the database: " in done.stderr
        assert "Error: The store at mysql://" in done.stderr


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgres", marks=pytest.mark.servers("postgres")),
        pytest.param("mariadb", marks=pytest.mark.servers("mariadb")),
    ],
)
def test_a_database_that_does_not_exist_is_an_error_at_once(kind, request, tmp_path):
    url = request.getfixturevalue(f"{kind}_url")
    base, _, rest = url.rpartition("/")
    missing = f"{base}/missing_{rest}"
    folder = Folder(tmp_path)
    folder.write(SHOP.replace(SQLITE, missing))

    done = folder.run("work")

    assert done.returncode == 4
    assert "Waiting" not in done.stderr
    assert "refused the connection" in done.stderr
