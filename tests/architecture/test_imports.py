"""What importing tickwork costs, and what it leaves alone."""

import subprocess
import sys

DRIVERS = ("sqlite3", "psycopg", "pymysql", "asyncio", "click", "rich")


def imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(chr(10).join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_tickwork_loads_no_driver_and_no_event_loop():
    loaded = imported_by("import tickwork, tickwork.schedules, tickwork.errors")

    assert not loaded & set(DRIVERS)


def test_nothing_imports_from_the_root():
    # A module that imports from the root is tied to everything the root exports.
    loaded = imported_by("import tickwork._domain.tick")

    assert "tickwork.schedules" not in loaded


def test_a_process_that_only_dispatches_loads_no_worker_and_no_engine():
    loaded = imported_by(
        "from tickwork import Tickwork; app = Tickwork('memory://'); "
        "job = app.job(name='add')(lambda number: number); "
        "job.delay(1).dispatch(number=1); job.dispatch_many([{'number': 2}])"
    )

    unwanted = ("tickwork._worker", "tickwork.worker_composition", "tickwork.engines")
    assert not [name for name in loaded if name.startswith(unwanted)]
