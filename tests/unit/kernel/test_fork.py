"""Objects that are paused while the process forks."""

import os

import pytest

from tickwork._kernel.fork import pause_for_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


class Paused:
    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken
        self.calls: list[str] = []

    def before_fork(self) -> None:
        if self.is_broken:
            raise RuntimeError("the lock is gone")
        self.calls.append("paused")

    def after_fork_in_parent(self) -> None:
        self.calls.append("resumed")

    def after_fork(self) -> None:
        self.calls.append("reset")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_an_object_that_cannot_be_paused_does_not_keep_others_from_it(caplog):
    items = [Paused(is_broken=number % 2 == 0) for number in range(4)]
    for item in items:
        pause_for_fork(item)

    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)

    assert [item.calls for item in items] == [[], ["paused", "resumed"]] * 2
    assert caplog.text.count("could not be paused") == 2
