"""Runs that handlers completed in their own transactions: finds out whether those committed."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.run import Claim
from tickwork._domain.transitions import Transition
from tickwork.engines.attempt import ROLLED_BACK

_log: Final = logging.getLogger("tickwork.worker")


class CompletingStore(Protocol):
    def after_complete(self, claims: Sequence[Claim]) -> list[RunId]: ...


class CheckedTransitions(NamedTuple):
    """Transitions that have to be written, and those that the handlers wrote already."""

    unwritten: Sequence[Transition]
    landed: Sequence[Transition]


def check_completions(store: CompletingStore, steps: Sequence[Transition]) -> CheckedTransitions:
    """Find out which runs were completed in transactions of their handlers.

    A run that is gone is completed; the store then releases its limits. A run that is still
    there was rolled back: its attempt failed. The check can be repeated.
    """
    claims = [step.claim for step in steps if step.undone is not None]
    if not claims:
        return CheckedTransitions(steps, ())
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
                    "%s: run %s was completed; its handler failed afterwards: %s",
                    *step.claim[1::-1],
                    step.undone.reason,
                )
        else:
            unwritten.append(step.undone)
    return CheckedTransitions(unwritten, landed)
