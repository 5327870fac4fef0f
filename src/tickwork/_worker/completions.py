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

    A run in history is completed; the store then releases its limits. A run that is not was
    rolled back: its attempt failed. The check can be repeated.
    """
    claims = [step.claim for step in steps if step.if_rolled_back is not None]
    if not claims:
        return steps, ()
    committed = set(store.after_complete(claims))
    unwritten: list[Transition] = []
    completed: list[Transition] = []
    for step in steps:
        otherwise = step.if_rolled_back
        if otherwise is None:
            unwritten.append(step)
        elif step.claim.run_id in committed:
            completed.append(step._replace(if_rolled_back=None))
            if otherwise.outcome is OutcomeKind.FAILED and otherwise.reason != ROLLED_BACK:
                text = "run %s was completed; its handler failed afterwards: %s"
                log_run(logging.ERROR, step.claim, text, step.claim.run_id, otherwise.reason)
        else:
            unwritten.append(otherwise)
    return unwritten, completed
