"""What a fork leaves behind: threads are gone in the child, and locks may be held for good."""

import os
import weakref
from typing import Final, Protocol


class Forked(Protocol):
    """Something that must begin anew in a child process."""

    def after_fork(self) -> None:
        """Forget threads, and make locks anew. In the child, before anything else runs."""
        ...


_known: Final["weakref.WeakSet[Forked]"] = weakref.WeakSet()


def reset_after_fork(one: Forked) -> None:
    """Call ``after_fork`` of this object in every child, for as long as it lives."""
    _known.add(one)


def _after_fork() -> None:
    for one in list(_known):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
