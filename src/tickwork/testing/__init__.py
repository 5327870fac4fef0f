"""Tools for testing programs that use tickwork.

Runs are executed in memory, on a clock that the test moves, by the same code as in a worker.
"""

from tickwork.testing import aio
from tickwork.testing.apps import app, isolated, swap
from tickwork.testing.assertions import (
    DispatchedRun,
    assert_dispatched,
    assert_not_dispatched,
    assert_nothing_dispatched,
    dispatched,
    watching,
)
from tickwork.testing.callbacks import answer
from tickwork.testing.clock import ManualClock
from tickwork.testing.drain import AttemptResult, DrainResult, drain
from tickwork.testing.immediate import immediately
from tickwork.testing.steps import steps
from tickwork.testing.travel import travel, travel_to

__all__ = [
    "AttemptResult",
    "DispatchedRun",
    "DrainResult",
    "ManualClock",
    "aio",
    "answer",
    "app",
    "assert_dispatched",
    "assert_not_dispatched",
    "assert_nothing_dispatched",
    "dispatched",
    "drain",
    "immediately",
    "isolated",
    "steps",
    "swap",
    "travel",
    "travel_to",
    "watching",
]
