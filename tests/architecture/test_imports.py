"""What importing tickwork loads, and what it does not."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tickwork.app.composition import ENGINES

DRIVERS = {"sqlite3", "psycopg", "pymysql", "asyncio", "click", "rich"}
DISPATCH = """
from tickwork import Tickwork
app = Tickwork("sqlite://")
@app.job
def report() -> None: ...
report.dispatch()
"""


def modules_loaded_by(program: str) -> set[str]:
    code = f"import sys\n{program}\nprint(chr(10).join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_tickwork_loads_no_driver_and_no_event_loop():
    loaded = modules_loaded_by("import tickwork, tickwork.schedules, tickwork.errors")

    assert not loaded & DRIVERS


def test_no_module_imports_from_the_root():
    # Such a module would depend on everything that the root exports.
    loaded = modules_loaded_by("import tickwork._domain.tick")

    assert "tickwork.schedules" not in loaded


def test_a_process_that_only_dispatches_loads_no_worker():
    loaded = modules_loaded_by(DISPATCH)

    assert not {name for name in loaded if name.startswith("tickwork._worker")}
    assert not loaded & (DRIVERS - {"sqlite3"})


def test_the_contracts_of_engines_name_every_engine():
    factories = [str(registration.factory) for registration in ENGINES.values()]
    engines = {"tickwork._engines.local.inline", *(path.partition(":")[0] for path in factories)}
    file = Path(__file__).resolve().parents[2] / "pyproject.toml"
    importlinter = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract_by_start = {each["name"].split()[0]: each for each in importlinter["contracts"]}

    assert set(contract_by_start["Engines"]["modules"]) == engines
    assert engines <= set(contract_by_start["Services"]["forbidden_modules"])
