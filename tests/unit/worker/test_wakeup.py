"""Waiting for idle threads."""

import threading

from tickwork._worker.wakeup import Wakeup


def test_it_waits_for_a_thread_that_waits():
    wakeup = Wakeup()
    found: list[bool] = []
    listener = threading.Thread(target=lambda: found.append(wakeup.wait_for_idle(30)))
    listener.start()

    while listener.is_alive():
        wakeup.wait(wakeup.count, 0.001)

    assert found == [True]


def test_it_returns_at_once_while_a_thread_waits():
    wakeup = Wakeup()
    waiting = threading.Thread(target=wakeup.wait, args=(wakeup.count, 30))
    waiting.start()

    assert wakeup.wait_for_idle(30)

    wakeup.notify()
    waiting.join(30)


def test_it_ends_after_its_time():
    assert not Wakeup().wait_for_idle(0)


def test_it_ends_when_the_worker_stops():
    wakeup = Wakeup()
    wakeup.stop()

    assert wakeup.wait_for_idle(30)
