"""The connection to a Dask scheduler, without a scheduler."""

from collections.abc import Callable

import pytest

from tickwork._engines.remote import dask
from tickwork._engines.remote.dask import DaskTransport
from tickwork.errors import EngineUnavailable


class FakeTime:
    """Each look at the tasks takes four seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def transport(monkeypatch) -> Callable[[int], DaskTransport]:
    def make(confirmed_each_time: int) -> DaskTransport:
        clock, made = FakeTime(), DaskTransport({"address": "tcp://x:1"}, "jobs", "app")
        monkeypatch.setattr(dask, "time", clock)

        def look(_client: object, keys: list[str]) -> dict[str, str | None]:
            clock.now += 4
            return {
                key: "waiting" if place < confirmed_each_time else None
                for place, key in enumerate(keys)
            }

        monkeypatch.setattr(made, "_states", look)
        return made

    return make


KEYS = [f"task-{number}" for number in range(10)]


def test_a_scheduler_that_is_slow_may_go_on(transport):
    """To submit the tasks again would make it slower."""
    transport(1)._confirm(None, KEYS)


def test_one_that_confirms_nothing_is_away(transport):
    with pytest.raises(EngineUnavailable, match="did not accept 10 of 10 tasks in time"):
        transport(0)._confirm(None, KEYS)
