"""Hooks of runs whose worker died: somebody else has to call them."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tickwork._define.context import Desk, RunContext
from tickwork._define.definition import Definition
from tickwork._domain.outcome import Crashed, Outcome
from tickwork._domain.transitions import Transition
from tickwork._kernel.codec import decode

_log: Final = logging.getLogger("tickwork.worker")

CallHooks = Callable[[Definition, RunContext, Outcome], None]


class CrashHooks:
    """Calls ``on_error`` and ``on_after`` of runs that were taken back from the dead.

    In a thread of their own: a hook is a user's, and may take its time. It is called at
    least once: should this process die too, the run has moved on, and nobody calls it again.
    """

    def __init__(
        self, *, find: Callable[[str], Definition | None], desk: Desk, hooks: CallHooks
    ) -> None:
        self._find = find
        self._desk = desk
        self._hooks = hooks

    def call(self, steps: Sequence[Transition]) -> None:
        """Call those of runs that are charged with a crash, where the job is known."""
        told = [
            (definition, step)
            for step in steps
            if step.crash and (definition := self._find(step.claim.job)) is not None
            if definition.options.error or definition.options.after
        ]
        if told:
            work = threading.Thread(
                target=self._call_all, args=(told,), name="tickwork-hooks", daemon=True
            )
            work.start()

    def _call_all(self, told: Sequence[tuple[Definition, Transition]]) -> None:
        for definition, step in told:
            try:
                ctx = RunContext(step.claim, desk=self._desk, args=decode(step.claim.args))
                self._hooks(definition, ctx, Crashed(step.reason))
            except BaseException:  # noqa: BLE001  # a hook may raise anything, and has no say
                _log.exception("%s: a hook of a run that crashed failed.", step.claim.job)
