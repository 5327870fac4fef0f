"""Many processes install at once: one creates the tables, the others find them."""

import subprocess
import sys

import pytest

from scenarios.conftest import SERVERS
from tickwork._stores import open_store
from tickwork._stores._sql.migrate import SCHEMA_VERSION

INSTALL = "import sys; from tickwork._stores import open_store; open_store(sys.argv[1]).install()"


def install_by_ten_processes(url: str) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", INSTALL, url], stderr=subprocess.PIPE, text=True)
        for _ in range(10)
    ]
    failures = []
    for process in processes:
        _, errors = process.communicate(timeout=100)
        if process.returncode:
            failures.append(errors)
    assert failures == []


def check_installed(url: str) -> None:
    store = open_store(url)
    try:
        assert store.schema_version() == SCHEMA_VERSION
        store.check_schema()
        assert store.list_jobs() == []
        assert store.count_taken(["job:a"]) == {"job:a": 0}
    finally:
        store.close()


def test_sqlite_is_installed_once(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"

    install_by_ten_processes(url)

    check_installed(url)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.servers(kind)) for kind in SERVERS]
)
def test_a_server_is_installed_once(kind, request):
    url = request.getfixturevalue(f"{kind}_url")

    install_by_ten_processes(url)

    check_installed(url)
