"""A hot standby as URL of an application: reads work, and changes are a clear error."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.project import Project
from servers.postgres import PostgresServer
from tickwork import RunStatus, Tickwork
from tickwork.errors import StoreReadOnly

JOBS = """
@app.job
def note(n: int = 0):
    pass
"""


class Standby(PostgresServer):
    """A copy of another server, which follows it and accepts only reads."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(fsync=False)
        self.primary = primary

    def _seed(self) -> Path:
        return self.data_folder

    def _copy_seed(self, seed: Path) -> None:
        options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        source: list[str | Path] = [*options, "--dbname", self.primary.url()]
        self._run_as_owner([self.programs / "pg_basebackup", "--pgdata", seed, *source])


@pytest.fixture
def standby_project(tmp_path: Path) -> Iterator[Project]:
    with PostgresServer(fsync=False) as primary:
        database = primary.create_database()
        with Project(tmp_path, primary.url(database)) as project:
            project.write("shop", JOBS)
            project.dispatch("note")
        (tmp_path / "standby").mkdir()
        with (
            Standby(primary) as standby,
            Project(tmp_path / "standby", standby.url(database)) as project,
        ):
            project.write("shop", JOBS)
            yield project


@pytest.mark.servers("postgres")
def test_a_standby_can_be_read_and_changes_are_a_clear_error(standby_project):
    project = standby_project
    with Tickwork(project.url) as app:
        [run] = app.runs.page(limit=1).runs
        assert run.status is RunStatus.PENDING
        with pytest.raises(StoreReadOnly, match="is read-only"):
            app.remote("note").dispatch()

    commands = ["install", "dispatch note", "work --wait 1s", "collect"]
    processes = {command: project.run(*command.split()) for command in commands}
    for command, process in processes.items():
        assert process.wait(60) == 4, f"{command}: {process.log}"
        assert "is read-only" in process.log
        assert "Traceback" not in process.log
