"""Resets objects in forked child processes: threads are gone there, and locks may be held."""

import os
import weakref
from typing import Final, Protocol


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Forget threads and create new locks. Called in the child, before anything else."""
        ...


_known: Final["weakref.WeakSet[ForkAware]"] = weakref.WeakSet()


def reset_after_fork(item: ForkAware) -> None:
    """Call ``after_fork`` of this object in every forked child."""
    _known.add(item)


def _after_fork() -> None:
    for item in list(_known):
        item.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
