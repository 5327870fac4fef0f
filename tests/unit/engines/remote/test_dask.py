"""The connection to a Dask scheduler, without a scheduler."""

from collections.abc import Callable
from itertools import chain, repeat

import pytest

from tickwork._engines.remote import dask
from tickwork._engines.remote.dask import CONFIRM_SECONDS, DaskTransport
from tickwork.errors import EngineUnavailable

LOOK_SECONDS = 0.8 * CONFIRM_SECONDS
"""How long each look at the tasks takes: two without a confirmation are too many."""


class FakeTime:
    """A clock that moves only by looks and by pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(dask, "time", clock)
    return clock


@pytest.fixture
def transport(monkeypatch, clock) -> Callable[..., DaskTransport]:
    def make(*confirmed: int) -> DaskTransport:
        """``confirmed`` are how many tasks each look finds to be accepted; the last one repeats."""
        made = DaskTransport({"address": "tcp://x:1"}, "jobs", "app")
        counts = chain(confirmed, repeat(confirmed[-1]))

        def look(_client: object, keys: list[str]) -> dict[str, str | None]:
            clock.now += LOOK_SECONDS
            count = next(counts)
            return {key: "waiting" if at < count else None for at, key in enumerate(keys)}

        monkeypatch.setattr(made, "_states", look)
        return made

    return make


KEYS = [f"task-{number}" for number in range(10)]


def test_a_scheduler_that_is_slow_may_go_on(transport, clock):
    """To submit the tasks again would make it slower."""
    transport(1)._confirm(None, KEYS)

    assert clock.now >= len(KEYS) * LOOK_SECONDS


def test_one_that_pauses_is_not_away(transport):
    transport(1, 0, 1, 0, 8)._confirm(None, KEYS)


def test_one_that_confirms_nothing_is_away_after_a_while(transport, clock):
    with pytest.raises(EngineUnavailable, match="did not accept 10 of 10 tasks in time"):
        transport(0)._confirm(None, KEYS)

    assert CONFIRM_SECONDS <= clock.now <= CONFIRM_SECONDS + LOOK_SECONDS


def test_one_that_stops_to_confirm_is_away(transport):
    with pytest.raises(EngineUnavailable, match="did not accept 6 of 6 tasks in time"):
        transport(4, 0)._confirm(None, KEYS)
