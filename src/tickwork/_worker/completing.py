"""Runs that their handlers completed: what is left to be written about them."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.run import Claim
from tickwork._domain.transitions import Transition
from tickwork.engines.invoke import ROLLED_BACK

_log: Final = logging.getLogger("tickwork.worker")


class CompletingStore(Protocol):
    """All that is needed of a store."""

    def after_complete(self, claims: Sequence[Claim]) -> list[RunId]:
        """Look which of these claims completed their run, and do the rest for those."""
        ...


class LookedAfter(NamedTuple):
    """Steps as they really are: those to be written, and those that are written already."""

    unwritten: Sequence[Transition]
    landed: Sequence[Transition]


def look_after(store: CompletingStore, steps: Sequence[Transition]) -> LookedAfter:
    """See what became of runs that were completed in their handlers' own transactions.

    One that is gone is done with, once its limits and its job know of it. One that is still
    there was rolled back: its attempt failed. To ask again does no harm.
    """
    claims = [step.claim for step in steps if step.undone is not None]
    if not claims:
        return LookedAfter(steps, ())
    gone = set(store.after_complete(claims))
    unwritten: list[Transition] = []
    landed: list[Transition] = []
    for step in steps:
        if step.undone is None:
            unwritten.append(step)
        elif step.claim.run_id in gone:
            landed.append(step._replace(undone=None))
            if step.undone.outcome is OutcomeKind.FAILED and step.undone.reason != ROLLED_BACK:
                _log.error(
                    "%s: run %s was completed; what its handler did afterwards failed: %s",
                    *step.claim[1::-1],
                    step.undone.reason,
                )
        else:
            unwritten.append(step.undone)
    return LookedAfter(unwritten, landed)
