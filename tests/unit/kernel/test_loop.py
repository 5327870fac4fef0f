import threading
import time

import pytest

from tickwork._kernel.loop import Loop

PATIENCE = 10.0  # seconds that a loaded machine may take; no test waits that long


class Steps:
    """Counts steps, and lets a test wait for one."""

    def __init__(self):
        self.made = 0
        self.is_idle = False
        self.seconds = 0.001
        self.fault = None
        self._changed = threading.Condition()

    def step(self):
        with self._changed:
            self.made += 1
            self._changed.notify_all()
        if self.fault is not None:
            raise self.fault

    def wait_for(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: self.made >= count, PATIENCE)


@pytest.fixture
def steps():
    return Steps()


@pytest.fixture
def loop(steps):
    loop = Loop(
        steps.step, pace=lambda: steps.seconds, is_idle=lambda: steps.is_idle, name="a-loop"
    )
    yield loop
    loop.stop()


def wait_until(is_so):
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def wait_for_end(loop):
    for thread in threading.enumerate():
        if thread.name == "a-loop":
            thread.join(PATIENCE)
    assert not loop.is_running


class TestLoop:
    """A thread repeats a step until there is nothing to do."""

    def test_it_takes_step_after_step(self, loop, steps):
        loop.start()

        steps.wait_for(3)
        assert loop.is_running

    def test_it_waits_before_the_first_step(self, loop, steps):
        steps.seconds = 1000

        loop.start()
        loop.stop()

        assert steps.made == 0

    def test_stopping_it_ends_its_thread(self, loop, steps):
        loop.start()
        steps.wait_for(1)

        loop.stop()

        assert not loop.is_running

    def test_it_ends_by_itself_when_there_is_nothing_to_do(self, loop, steps):
        loop.start()
        steps.wait_for(1)

        steps.is_idle = True

        wait_for_end(loop)

    def test_it_can_be_started_again(self, loop, steps):
        steps.is_idle = True
        loop.start()
        wait_for_end(loop)

        steps.is_idle = False
        loop.start()

        steps.wait_for(1)

    def test_starting_it_twice_gives_one_thread(self, loop, steps):
        steps.seconds = 1000

        loop.start()
        loop.start()

        assert [thread.name for thread in threading.enumerate()].count("a-loop") == 1

    def test_start_wakes_it_when_the_pace_is_faster(self, loop, steps):
        steps.seconds = 1000
        loop.start()
        wait_until(lambda: loop._waits_until < float("inf"))  # it is asleep for long

        steps.seconds = 0.001
        loop.start()

        steps.wait_for(1)

    def test_the_loop_continues_after_an_error(self, loop, steps, caplog):
        steps.fault = ValueError("no")

        loop.start()

        steps.wait_for(2)
        loop.stop()
        assert "a-loop failed" in caplog.text
