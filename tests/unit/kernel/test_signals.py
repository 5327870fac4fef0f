"""A process that gets one or two signals to stop."""

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, sys, time
from tickwork._kernel import signals

signals.SAME_WITHIN = float(sys.argv[1])
calls = []
with signals.stop_on_signals(lambda: calls.append(1)):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)  # the main thread calls signal handlers here
    print(len(calls), flush=True)
"""


def send_two_signals(*, same_within: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(same_within)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_two_signals_at_the_same_moment_count_as_one():
    ended = send_two_signals(same_within=30)

    assert (ended.returncode, ended.stdout) == (0, "1\n")


def test_the_second_signal_ends_the_process():
    ended = send_two_signals(same_within=0)

    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")
