"""Prometheus: processes that share a folder are summed up."""

import os
import subprocess
import sys

PROGRAM = """
import os, sys
from tickwork import Tickwork
from tickwork.integrations.prometheus import instrument, render

with Tickwork(sys.argv[1], install=True) as app:
    instrument(app)
    send = app.schedule("send", lambda: None)
    send.dispatch()
    if os.fork() == 0:
        send.dispatch()
        os._exit(0)
    os.wait()
    print(render(app).decode())
"""


def test_forked_processes_are_summed_up(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, f"sqlite:///{tmp_path}/jobs.db"],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert 'tickwork_runs_dispatched_total{job_name="send",queue="default"} 2.0' in done.stdout
    assert 'tickwork_queue_runs{phase="ready",queue="default"} 2.0' in done.stdout
