"""What tests of programs that use tickwork need.

In memory and on a clock that a test moves, by the same code that a worker runs.
"""

from tickwork.testing.apps import app, isolated, swap
from tickwork.testing.assertions import (
    Dispatched,
    assert_dispatched,
    assert_not_dispatched,
    assert_nothing_dispatched,
    dispatched,
    watching,
)
from tickwork.testing.clock import ManualClock
from tickwork.testing.drain import Attempted, Done, drain
from tickwork.testing.immediate import immediately
from tickwork.testing.travel import travel, travel_to

__all__ = [
    "Attempted",
    "Dispatched",
    "Done",
    "ManualClock",
    "app",
    "assert_dispatched",
    "assert_not_dispatched",
    "assert_nothing_dispatched",
    "dispatched",
    "drain",
    "immediately",
    "isolated",
    "swap",
    "travel",
    "travel_to",
    "watching",
]
