"""Bounds the work that a rule or a calendar can cause.

A rule comes from a request or a database row, and some rules never match: the search for their
next firing would visit every day for thousands of years. Each loop whose length depends on a rule
counts its steps. The outermost call opens the budget, and calls inside of it share it, so a rule
of rules has no more steps than a plain one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from tickwork.errors import RuleTooCostly

STEPS_MAX: Final = 250_000
"""Two seconds of work. ``max_firings(100_000)`` with windows of the day takes 200,000 steps."""

_left: ContextVar[list[int] | None] = ContextVar("tickwork_steps_left", default=None)


@contextmanager
def step_budget() -> Iterator[None]:
    """Bound the steps of this block, or of the function that this decorates.

    Not for generators: the budget would stay open in their caller.
    """
    if _left.get() is not None:
        yield
        return
    token = _left.set([STEPS_MAX])
    try:
        yield
    finally:
        _left.reset(token)


def count_steps(number: int = 1) -> None:
    """Count steps of the budget that is open.

    Raises:
        RuleTooCostly: There are none left.
    """
    left = _left.get()
    if left is None:
        return
    left[0] -= number
    if left[0] < 0:
        raise RuleTooCostly(STEPS_MAX)
