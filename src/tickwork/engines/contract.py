"""What every engine does: take claims, make attempts, hand over what came of them."""

from collections.abc import Sequence
from typing import Protocol

from tickwork._domain.run import Claim


class Engine(Protocol):
    """Where attempts happen.

    Whoever made it has said where outcomes go. A claim that was submitted is handed over
    once, or is given back by :meth:`take_back`, or is in :meth:`unfinished`.
    """

    def start(self) -> None:
        """Be ready to take claims."""
        ...

    @property
    def slots(self) -> int:
        """How many attempts it makes at the same time."""
        ...

    @property
    def waiting(self) -> int:
        """How many claims it has that have not started."""
        ...

    @property
    def running(self) -> int:
        """How many attempts it is making."""
        ...

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these: they start in this order, as soon as there is room."""
        ...

    def take_back(self) -> list[Claim]:
        """Give back what has not started."""
        ...

    def interrupt(self) -> list[Claim]:
        """End what can be ended; return the claims whose attempts go on all the same.

        Returns at once: what was ended is handed over a moment later. Nothing starts any more.
        """
        ...

    def unfinished(self) -> list[Claim]:
        """The claims whose attempts are being made now."""
        ...

    def stop(self) -> None:
        """Take nothing any more, and let go of threads and processes that are idle."""
        ...
