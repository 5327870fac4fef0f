"""Runs that handlers completed in their own transactions: finds out whether those committed."""

import logging
from collections.abc import Sequence

from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.transitions import Transition
from tickwork._worker.run_log import log_run
from tickwork.engines.attempt import ROLLED_BACK
from tickwork.stores.contract import RunStore


def check_completions(
    store: RunStore, steps: Sequence[Transition]
) -> tuple[Sequence[Transition], Sequence[Transition]]:
    """Separate transitions that have to be written from those that handlers wrote already.

    A run that is gone is completed; the store then releases its limits. A run that is still
    there was rolled back: its attempt failed. The check can be repeated.
    """
    claims = [step.claim for step in steps if step.undone is not None]
    if not claims:
        return steps, ()
    gone = set(store.after_complete(claims))
    unwritten: list[Transition] = []
    completed: list[Transition] = []
    for step in steps:
        if step.undone is None:
            unwritten.append(step)
        elif step.claim.run_id in gone:
            completed.append(step._replace(undone=None))
            if step.undone.outcome is OutcomeKind.FAILED and step.undone.reason != ROLLED_BACK:
                text = "run %s was completed; its handler failed afterwards: %s"
                log_run(logging.ERROR, step.claim, text, step.claim.run_id, step.undone.reason)
        else:
            unwritten.append(step.undone)
    return unwritten, completed
