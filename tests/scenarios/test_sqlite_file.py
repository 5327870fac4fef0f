"""An SQLite file that is deleted, replaced or damaged while processes use it."""

import os
import shutil
import sqlite3
import time
from datetime import timedelta
from pathlib import Path

import pytest

from scenarios.project import Project, figure
from tickwork import RunStatus, Tickwork
from tickwork._domain.health import Check, Level
from tickwork._inspect.health import check_health
from tickwork._kernel.clock import SystemClock
from tickwork._stores.contract import RunFilter
from tickwork._stores.sqlite.connection import CHECK_EVERY, LOG_BYTES
from tickwork.errors import StoreLinked, StoreReplaced

JOBS = """
@app.job
def note(n: int = 0):
    mark("note", n=n)

@app.job
def slow(seconds: float):
    mark("begun")
    time.sleep(seconds)
    mark("done")
"""
EXIT_STORE = 4


@pytest.fixture
def shop(sqlite_project: Project) -> Project:
    sqlite_project.write("shop", JOBS)
    return sqlite_project


def file_of(project: Project) -> Path:
    return project.folder / "jobs.db"


def delete(file: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)


def replace(file: Path) -> None:
    """Put another database with the same tables in place, as a restore does."""
    other = file.with_name("other.db")
    with Tickwork(f"sqlite:///{other}", install=True) as app:
        app.install()
    delete(file)
    other.rename(file)


class TestAFileThatIsDeletedOrReplaced:
    @pytest.mark.parametrize("change", [delete, replace])
    def test_stops_the_worker(self, shop, change):
        worker = shop.work("--drain", "1s")
        assert shop.dispatch("note").wait(20) is RunStatus.COMPLETED

        change(file_of(shop))

        assert worker.wait(20) == EXIT_STORE
        assert f"{file_of(shop)} was {change.__name__}d" in worker.log
        assert "Traceback" not in worker.log

    def test_a_supervisor_starts_the_next_worker_on_the_new_file(self, shop):
        supervisor = shop.work("--processes", "2", "--drain", "1s")
        assert shop.dispatch("note").wait(20) is RunStatus.COMPLETED
        shop.app.close()

        replace(file_of(shop))

        assert shop.dispatch("note", n=2).wait(30) is RunStatus.COMPLETED
        supervisor.terminate()
        assert supervisor.wait(20) == 0

    def test_a_dispatch_is_an_error_until_the_application_is_closed(self, shop):
        shop.dispatch("note")
        time.sleep(CHECK_EVERY)
        delete(file_of(shop))

        with pytest.raises(StoreReplaced, match="was deleted"):
            shop.dispatch("note")
        with pytest.raises(StoreReplaced, match="was deleted"):
            shop.app._services.store.list_workers()
        assert not file_of(shop).exists()

        shop.app.close()
        assert shop.dispatch("note").status is RunStatus.PENDING


class TestAFileWithTwoNames:
    """Each hard link would have a log of its own. Symbolic links lead to the same file."""

    def test_every_command_refuses_a_hard_link_under_each_of_its_names(self, shop):
        shop.dispatch("note")
        shop.app.close()
        os.link(file_of(shop), shop.folder / "other.db")

        for name in ("jobs.db", "other.db"):
            shop.url = f"sqlite:///{shop.folder / name}"
            for command in ("status", "dispatch note", "work", "install", "doctor"):
                process = shop.run(*command.split())
                assert process.wait(30) == (1 if command == "doctor" else EXIT_STORE), process.log
                assert "a file with 2 names (hard links)" in process.log, command
                assert "find DIRECTORY -samefile" in process.log, command
                assert "Traceback" not in process.log, command
        assert not Path(f"{shop.folder / 'other.db'}-wal").exists()

        (shop.folder / "other.db").unlink()
        shop.url = f"sqlite:///{file_of(shop)}"
        assert shop.dispatch("note").status is RunStatus.PENDING

    def test_a_link_that_is_created_later_is_found_by_health_checks_and_the_next_process(
        self, shop
    ):
        worker = shop.work("--drain", "1s")
        assert shop.dispatch("note").wait(20) is RunStatus.COMPLETED
        other = shop.folder / "other.db"
        os.link(file_of(shop), other)

        [check] = shop.app.check_health()
        with Tickwork(f"sqlite:///{other}") as app, pytest.raises(StoreLinked):
            app.remote("note").dispatch()

        assert (check.name, check.level) == ("schema", Level.BAD)
        assert "2 names" in check.text
        assert "find DIRECTORY" in check.fix
        # The worker uses one name, as before.
        assert shop.dispatch("note").wait(20) is RunStatus.COMPLETED
        assert worker.is_alive

    def test_processes_with_a_symbolic_link_share_the_file_and_its_log(self, shop):
        folder = shop.folder / "elsewhere"
        folder.mkdir()
        (folder / "link.db").symlink_to(file_of(shop))
        shop.work("--drain", "1s")

        with Tickwork(f"sqlite:///{folder / 'link.db'}") as app:
            runs = [app.remote("note").dispatch(n=n) for n in range(20)]
            assert all(run.wait(20) is RunStatus.COMPLETED for run in runs)
            assert app._services.store.health().log_bytes

        assert len(shop.marks("note")) == 20
        assert [file.name for file in folder.iterdir()] == ["link.db"]

    def test_a_symbolic_link_that_is_changed_is_a_replaced_file(self, shop):
        link = shop.folder / "link.db"
        link.symlink_to(file_of(shop))
        with Tickwork(f"sqlite:///{link}") as app:
            app.remote("note").dispatch()
            with Tickwork(f"sqlite:///{shop.folder / 'next.db'}") as other:
                other.install()
            link.unlink()
            link.symlink_to(shop.folder / "next.db")
            time.sleep(CHECK_EVERY)

            with pytest.raises(StoreReplaced, match="was replaced"):
                app.remote("note").dispatch()

    def test_a_connection_of_the_caller_to_another_name_is_refused(self, shop):
        shop.dispatch("note")
        other = shop.folder / "other.db"
        os.link(file_of(shop), other)
        connection = sqlite3.connect(other)

        with pytest.raises(StoreLinked, match="2 names"):
            shop.app.remote("note").using(connection).dispatch()
        connection.close()


MEGABYTE = 1024 * 1024
LOAD = """
@app.job
def load(text: str):
    pass
"""


class LongReader:
    """A program that reads, and does not end its transaction."""

    def __init__(self, project: Project) -> None:
        self._connection = sqlite3.connect(file_of(project), isolation_level=None)
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT count(*) FROM tickwork_run").fetchall()

    def close(self) -> None:
        self._connection.close()


def work_off(project: Project, megabytes: int) -> int:
    """Dispatch runs of this size and wait for the last; return the size of the log."""
    for _ in range(megabytes):
        runs = project.app.remote("load").dispatch_many([{"text": "x" * 50_000}] * 20)
        assert runs[-1].wait(60) is RunStatus.COMPLETED
    return log_of(project).stat().st_size


def log_of(project: Project) -> Path:
    return Path(f"{file_of(project)}-wal")


def tables_check(project: Project, *, log_max: int) -> Check:
    checks = check_health(
        project.app._services.store,
        clock=SystemClock(),
        machine=SystemClock(),
        retire_after=timedelta(days=1),
        version="",
        log_max=log_max,
    )
    return next(check for check in checks if check.name == "tables")


class TestAReaderThatDoesNotEnd:
    """It keeps the write-ahead log growing: the worker goes on, and doctor warns meanwhile."""

    def test_the_log_grows_until_it_ends(self, sqlite_project):
        sqlite_project.write("shop", LOAD)
        sqlite_project.work()
        before = work_off(sqlite_project, 3)
        reader = LongReader(sqlite_project)

        grown = work_off(sqlite_project, 6)

        assert before < 2 * LOG_BYTES < grown
        warned = tables_check(sqlite_project, log_max=2 * LOG_BYTES)
        assert warned.level is Level.WARN
        assert "write-ahead log has grown to" in warned.text
        reader.close()
        # From then on it is used from its beginning, and cut.
        after = work_off(sqlite_project, 6)
        figure(f"the log was {before:,}, with a reader {grown:,}, afterwards {after:,} bytes")
        assert after < 2 * LOG_BYTES
        assert tables_check(sqlite_project, log_max=2 * LOG_BYTES).level is Level.OK

    @pytest.mark.long
    @pytest.mark.timeout(600)
    def test_doctor_warns_from_256_megabytes(self, sqlite_project):
        sqlite_project.write("shop", LOAD)
        worker = sqlite_project.work()
        reader = LongReader(sqlite_project)

        grown = work_off(sqlite_project, 70)

        figure(f"the log has {grown / MEGABYTE:,.0f} MB")
        doctor = sqlite_project.run("doctor")
        doctor.wait(30)
        assert "The write-ahead log has grown to" in doctor.log
        reader.close()
        work_off(sqlite_project, 12)
        doctor = sqlite_project.run("doctor")
        doctor.wait(30)
        assert "The write-ahead log has grown to" not in doctor.log
        assert worker.is_alive


COMMANDS = [
    "status",
    "doctor",
    "runs",
    "next",
    "install",
    "upgrade",
    "dispatch note",
    "work",
    "collect",
    "explain note",
    "prune --days 1",
    "pause --job note",
    "unlock x",
]


class TestAFileThatIsNoDatabase:
    def test_is_an_error_of_every_command(self, shop):
        file_of(shop).write_text("a text\n" * 1000)
        processes = {command: shop.run(*command.split()) for command in COMMANDS}

        for command, process in processes.items():
            assert process.wait(60) == (1 if command == "doctor" else EXIT_STORE), process.log
            assert "is not an SQLite database" in process.log, command
            assert "Traceback" not in process.log, command


def damage(file: Path) -> None:
    """Overwrite every page but the first one."""
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\x5a" * (size - 4096))


class TestADamagedFile:
    def test_is_an_error_of_commands(self, shop):
        for n in range(50):
            shop.dispatch("note", n=n)
        shop.app.close()
        damage(file_of(shop))

        for command in ["status", "dispatch note", "work", "doctor"]:
            process = shop.run(*command.split())
            assert process.wait(30) == (1 if command == "doctor" else EXIT_STORE), process.log
            assert "damaged" in process.log, command
            assert "Traceback" not in process.log, command

    def test_stops_the_worker_and_no_run_has_failed(self, shop):
        worker = shop.work("--drain", "20s")
        shop.dispatch("slow", seconds=2)
        shop.marked("begun")

        damage(file_of(shop))

        assert worker.wait(30) == EXIT_STORE
        assert shop.marks("done")
        assert "1 outcome could not be written. The attempts will be repeated." in worker.log
        assert "the database rejected the outcome" not in worker.log
        assert "damaged" in worker.log


def test_a_backup_of_a_live_file_is_whole(shop):
    """A copy of the file alone is a state of the past: the newest runs are in its log."""
    worker = shop.work()
    runs = [shop.dispatch("note", n=n) for n in range(50)]
    for run in runs:
        assert run.wait(20) is RunStatus.COMPLETED
    plain, whole = shop.folder / "plain.db", shop.folder / "whole.db"

    shutil.copy(file_of(shop), plain)
    connection = sqlite3.connect(file_of(shop))
    connection.execute("VACUUM INTO ?", (str(whole),))
    connection.close()

    with Tickwork(f"sqlite:///{whole}") as app:
        assert app.get_run(runs[-1].id).status is RunStatus.COMPLETED
    with Tickwork(f"sqlite:///{plain}", install=True) as app:  # it is old, but not damaged
        assert len(app._services.store.list_runs(RunFilter()).runs) <= len(runs)
    assert worker.is_alive
