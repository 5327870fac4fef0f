"""Which faults are injected, and when: a pure function of the seed.

The same seed injects the same faults at the same moments. What a fault hits also depends on the
machine, so a failure may need a few repeats to come again.
"""

from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

PAUSE: Final = (0.3, 2.0)
"""Seconds between two faults."""


class Fault(NamedTuple):
    """One fault: when it begins, how long it takes, and a number to choose its target by."""

    at: float
    name: str
    seconds: float
    target: int


# How often each is drawn, and how many seconds it takes.
_KINDS: Final[dict[str, tuple[int, float, float]]] = {
    "kill_worker": (5, 0.0, 0.8),  # seconds until the next worker starts
    "kill_child": (2, 0.0, 0.0),  # one process of a supervisor, which replaces it
    # Longer than its lease and the five seconds that a live process has to extend it: meanwhile
    # another worker takes its runs.
    "freeze_worker": (4, 7.6, 10.0),
    "pause_worker": (2, 0.5, 6.0),
    "stop_loop": (2, 5.0, 15.0),  # as long as it takes until an attempt does it
    "stop_worker": (3, 0.0, 0.5),
    "deploy": (2, 0.0, 0.3),  # replaced by the other version
    "kill_dispatcher": (2, 0.0, 0.5),
    "freeze_dispatcher": (1, 0.5, 3.0),
    "collect": (1, 2.0, 2.0),  # `tickwork collect`, as from a crontab
    "jump_clock": (2, 1.0, 6.0),
    # servers
    "restart_server": (1, 0.1, 1.5),
    "crash_server": (2, 0.1, 1.5),
    "cut": (3, 0.2, 4.0),
    "delay": (2, 0.5, 2.0),
    "stall": (2, 0.5, 4.0),
    "lose_answer": (6, 0.5, 0.5),
    # PostgreSQL
    "revoke_rights": (3, 0.5, 3.0),
    "hold_reader": (3, 2.0, 20.0),
    "hold_writer": (3, 2.0, 20.0),
    # PostgreSQL and SQLite
    "fill_disk": (3, 0.2, 1.5),
    # SQLite
    "hog": (2, 0.2, 3.0),
    "step_clock": (2, 1.0, 6.0),
}
EVERYWHERE: Final = frozenset(
    {"kill_worker", "kill_child", "freeze_worker", "pause_worker", "stop_loop", "stop_worker",
     "deploy", "kill_dispatcher", "freeze_dispatcher", "collect"}
)  # fmt: skip


def draw_faults(seed: int, seconds: float, possible: Iterable[str]) -> list[Fault]:
    """Return the faults of one run, in order. One of them is an upgrade of the schema."""
    chance = Random(f"faults {seed}")
    names = sorted(EVERYWHERE | set(possible))
    weights = [_KINDS[name][0] for name in names]
    faults = [Fault(seconds * chance.uniform(0.3, 0.6), "upgrade", 0.0, 0)]
    at = 2.0
    while at < seconds - 1.0:
        [name] = chance.choices(names, weights)
        _, shortest, longest = _KINDS[name]
        faults.append(Fault(at, name, chance.uniform(shortest, longest), chance.randrange(1000)))
        at += chance.uniform(*PAUSE)
    return sorted(faults)
