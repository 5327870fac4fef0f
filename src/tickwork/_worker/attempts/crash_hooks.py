"""Calls the hooks of runs whose worker died."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tickwork._define.attempt_context import open_attempt
from tickwork._define.definition import Definition
from tickwork._domain.runs.outcome import Crashed, Outcome
from tickwork._domain.runs.transitions import Transition
from tickwork._handlers.context import AttemptStore, RunContext

_log: Final = logging.getLogger("tickwork.worker")

CallHooks = Callable[[Definition, RunContext, Outcome], object]


class CrashHooks:
    """Calls ``on_error`` and ``on_after`` of runs that were reaped.

    If this process dies before a hook is called, no other process calls it. With ``in_thread``
    they run in a thread of their own, because a hook may take long.
    """

    def __init__(
        self,
        *,
        find: Callable[[str], Definition | None],
        store: AttemptStore,
        call_hooks: CallHooks,
        in_thread: bool = True,
    ) -> None:
        self._find = find
        self._store = store
        self._call_hooks = call_hooks
        self._in_thread = in_thread

    def call(self, transitions: Sequence[Transition]) -> None:
        """Call the hooks of runs that are charged with a crash, where the job is known."""
        crashed = [
            (definition, transition)
            for transition in transitions
            if transition.crash and (definition := self._find(transition.claim.job)) is not None
            if definition.options.error or definition.options.after
        ]
        if crashed and self._in_thread:
            threading.Thread(
                target=self._call_all, args=(crashed,), name="tickwork-crash-hooks", daemon=True
            ).start()
        else:
            self._call_all(crashed)

    def _call_all(self, crashed: Sequence[tuple[Definition, Transition]]) -> None:
        for definition, transition in crashed:
            try:
                ctx = open_attempt(definition, transition.claim, self._store)
                self._call_hooks(definition, ctx, Crashed(transition.reason))
            except Exception:  # noqa: BLE001  # a hook may raise anything
                _log.exception("%s: a hook of a run that crashed failed.", transition.claim.job)
