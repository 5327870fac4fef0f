"""The loop that coroutines share: what a process does that one of them forked."""

import asyncio
import os

import pytest

from tickwork._engines.local.shared_loop import SharedLoop
from tickwork.testing import ManualClock


@pytest.fixture
def shared_loop():
    loop = SharedLoop(
        None,
        clock=ManualClock(),
        on_stopped=lambda error, ctx: False,
        on_broken=lambda reason: None,
    )
    yield loop
    loop.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_a_forked_process_runs_no_coroutine_of_its_parent(shared_loop):
    reader, writer = os.pipe()
    parent = os.getpid()

    def note(name: str) -> None:
        os.write(writer, f"{name} {'here' if os.getpid() == parent else 'in the fork'}\n".encode())

    async def other(number: int) -> None:
        note(f"other {number}")

    async def forks() -> int:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(other(number)) for number in range(3)]  # ready, and not begun
        child = os.fork()
        note("forks")
        await asyncio.gather(*tasks)
        note("goes on")
        return child

    child = shared_loop.wait(forks(), 20)
    _, status = os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, encoding="ascii") as notes:
        lines = notes.read().splitlines()

    assert os.waitstatus_to_exitcode(status) == 0
    assert sorted(lines) == [
        "forks here",
        "forks in the fork",
        "goes on here",
        *(f"other {number} here" for number in range(3)),
    ]
