"""``app.audit``: who did what, and requests that happen once."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from tickwork._dispatch.dispatch import Dispatcher
from tickwork._dispatch.jobs import Draft, plan_run
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.runs.run import NewRun
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import AuditEntry, IdempotentRequest, Store
from tickwork.errors import KeyReused, TickworkError

T = TypeVar("T")

KEY_TIME: Final = timedelta(days=1)
"""How long an idempotency key stands for its request."""

NAMES_MAX: Final = 100
"""The most names in an entry about many things."""

TEXT_MAX: Final = 255
SUBJECT_MAX: Final = 512

# Inside the class, ``list`` is a method.
AuditEntries: TypeAlias = list[AuditEntry]


class AuditLog:
    """Records actions, newest first. Entries are kept for a year at least."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def record(
        self,
        action: str,
        subject: str,
        *,
        actor: str,
        source: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> AuditEntry:
        """Add an entry: the actor did this to the subject."""
        now = self._clock.now()
        entry = AuditEntry(
            id=new_id(now),
            at=now,
            actor=_clip(actor, TEXT_MAX),
            source=_clip(source, TEXT_MAX),
            action=_clip(action, TEXT_MAX),
            subject=_clip(subject, SUBJECT_MAX),
            detail=json.dumps(detail or {}, default=str),
        )
        self._store.add_audit(entry)
        return entry

    def perform(
        self,
        action: str,
        subject: str,
        change: Callable[[], T],
        *,
        actor: str,
        source: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> T:
        """Add an entry, and then make the change: so no change is missing in the log.

        A change that fails gets a second entry with its error.
        """
        self.record(action, subject, actor=actor, source=source, detail=detail)
        try:
            return change()
        except TickworkError as error:
            failure = {"error": error.code}
            self.record(f"{action}.failed", subject, actor=actor, source=source, detail=failure)
            raise

    def list(
        self,
        *,
        subject: str | None = None,
        action: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> AuditEntries:
        """Return entries, newest first: of one subject, one action or all, those before this id."""
        return self._store.list_audit(subject=subject, action=action, before=before, limit=limit)


def subject_of(kind: str, names: Sequence[str], *, now: datetime) -> tuple[str, dict[str, Any]]:
    """The subject of an action, and more about it: one thing, or several as one bulk action."""
    if len(names) == 1:
        return f"{kind}/{names[0]}", {}
    return f"bulk/{new_id(now)}", {"total": len(names), f"{kind}s": [*names[:NAMES_MAX]]}


def _clip(text: str, length: int) -> str:
    # A database refuses these characters, and an entry must not be lost.
    clean = text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
    return clean[:length]


class IdempotentDispatcher:
    """Dispatches once for each idempotency key, also when requests arrive at the same time."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def dispatch(
        self, draft: Draft[..., Any], job: str, args: Mapping[str, Any], *, key: str, digest: str
    ) -> RunHandle[Any]:
        """Add a run, unless a request with this key has added one.

        The key is reserved together with the id of the run. A repeated request adds the run with
        the same id, which the store does only once: the process may die at any point between.

        Raises:
            KeyReused: The key belongs to a request with another digest.
            ArgumentError: The arguments do not fit the handler. The key stays free.
        """
        run: NewRun = plan_run(self._dispatcher, draft, (job,), args)
        services = self._dispatcher.services
        wanted = IdempotentRequest(key, digest, run.id, run.created_at + KEY_TIME)
        held = services.store.reserve_request(wanted, now=run.created_at)
        if held.digest != digest:
            raise KeyReused(key)
        [answer] = services.inserter.add([run._replace(id=held.run_id)], may_be_stored=True)
        is_new = answer.is_new and held.run_id == run.id
        is_replaced = answer.is_replaced
        return RunHandle(services.runs, answer.run_id, is_new=is_new, is_replaced=is_replaced)
