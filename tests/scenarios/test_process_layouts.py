"""Where programs define their applications and jobs: child processes find both."""

from pathlib import Path

import pytest

from scenarios.project import Project
from tickwork import RunStatus

HANDLER = """
def double(n: int) -> int:
    return 2 * n
"""
APP = """
import os
from tickwork import Tickwork

app = Tickwork(os.environ["SHOP_URL"], install=True)
"""
JOBS = """
from core import app

@app.job(engine="process")
def double(n: int) -> int:
    return 2 * n
"""
RUN = """
with app.running():
    print("doubled", app.dispatch("double", 4).result(30))
"""


@pytest.fixture
def write(sqlite_project):
    def write_file(name: str, text: str) -> Path:
        path: Path = sqlite_project.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def output_of(project: Project, file: Path) -> str:
    program = project.program(str(file))
    assert program.wait(60) == 0, program.log
    return program.log


def test_a_configuration_file_is_the_whole_application(sqlite_project, write):
    write("work.py", HANDLER)
    write(
        "tickwork.toml",
        f"""
        [tickwork]
        url = "{sqlite_project.url}"
        install = true

        [[jobs]]
        name = "double"
        handler = "work:double"
        engine = "process"
        """,
    )
    worker = sqlite_project.command("work")

    run = sqlite_project.dispatch("double", n=4)

    assert run.wait(60) is RunStatus.COMPLETED, worker.log


def test_a_configuration_file_adds_jobs_to_an_application_in_code(sqlite_project, write):
    write("core.py", APP)
    write("work.py", HANDLER)
    config = '[[jobs]]\nname = "double"\nhandler = "work:double"\nengine = "process"\n'
    write("more.toml", config)
    start = "from core import app\napp.load_config('more.toml')\n"

    assert "doubled 8" in output_of(sqlite_project, write("start.py", start + RUN))


def test_a_script_that_imports_its_application(sqlite_project, write):
    write("core.py", APP)
    write("jobs.py", JOBS)
    script = "from jobs import app\nif __name__ != '__main__': raise SystemExit('imported')\n"

    assert "doubled 8" in output_of(sqlite_project, write("start.py", script + RUN))


def test_jobs_beside_the_module_of_the_application(sqlite_project, write):
    write("core.py", APP)
    write("jobs.py", JOBS)
    script = "import jobs\nfrom core import app\n"

    assert "doubled 8" in output_of(sqlite_project, write("start.py", script + RUN))


def test_a_function_of_another_module_as_a_job(sqlite_project, write):
    write("core.py", APP)
    write("work.py", HANDLER)
    write("jobs.py", "import work\nfrom core import app\napp.job(engine='process')(work.double)\n")
    script = "import jobs\nfrom core import app\n"

    assert "doubled 8" in output_of(sqlite_project, write("start.py", script + RUN))


def test_jobs_in_the_script_itself(sqlite_project, write):
    write("core.py", APP)
    start = f"{JOBS}\nif __name__ == '__main__':\n  with app.running():\n    "
    start += "print('doubled', app.dispatch('double', 4).result(30))\n"

    assert "doubled 8" in output_of(sqlite_project, write("start.py", start))
