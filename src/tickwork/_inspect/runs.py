"""Runs as people may see them: arguments by name, with secrets masked."""

import re
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from tickwork._define.secret_mask import mask_args
from tickwork._domain.explain import Cause
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.run import Run
from tickwork._domain.status import Phase, RunStatus
from tickwork._kernel.codec import decode
from tickwork.errors import AmbiguousRun, PayloadEncrypted, PayloadUnreadable, RunNotFound
from tickwork.stores.contract import Attempt, LogLine, Store

CANDIDATES_MAX: Final = 5
ID_LENGTH: Final = 36
ENCRYPTED: Final = "<encrypted>"
"""Shown for payloads whose key this program does not have."""
_ID: Final = re.compile(r"[0-9a-f][0-9a-f-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its arguments by name; secrets are masked. Times are UTC."""

    id: RunId
    job: str
    status: RunStatus
    phase: Phase | None  # where an unfinished run waits
    queue: str
    priority: int
    tenant: str
    created_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int  # attempts so far
    attempts_max: int
    crashes: int
    worker: WorkerId | None
    lease_until: datetime | None
    schedule: str | None
    nominal_at: datetime | None  # the instant of its schedule that it runs for
    instants: int  # more than 1 if consecutive skipped instants are stored as one run
    args: dict[str, Any]
    result: Any
    reason: str  # why it ended as it did, or the last error
    progress: Any
    blocked_on: str | None  # the limit that is full
    external_id: str | None  # under which a remote engine knows it
    retry_of: RunId | None  # the run that it repeats
    target: str | None
    tags: tuple[str, ...]
    expires_at: datetime | None
    cancel_requested_at: datetime | None


# Each field of a view has the name of the field of the run that it shows.
_DECODED: Final = ("args", "result", "progress")
_COPIED: Final = [field.name for field in fields(RunView) if field.name not in _DECODED]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """A run with its attempts, its log, and the reasons why it has not finished."""

    run: RunView
    attempts: list[Attempt]
    log: list[LogLine]
    causes: list[Cause]  # empty if it has finished


def view_run(run: Run, *, secrets: frozenset[str]) -> RunView:
    return RunView(
        **{name: getattr(run, name) for name in _COPIED},
        args=read_args(run.args, secrets=secrets),
        result=None if run.result is None else _decode(run.result),
        progress=None if run.progress is None else _decode(run.progress),
    )


def read_args(text: str, *, secrets: frozenset[str]) -> dict[str, Any]:
    """Decode arguments for people."""
    args = _decode(text)
    return mask_args(args, secrets) if isinstance(args, dict) else {"?": args}


def find_run_id(store: Store, prefix: str) -> RunId:
    """Find the only run whose id begins with ``prefix``.

    Raises:
        RunNotFound: No run has such an id.
        AmbiguousRun: Several runs have one.
    """
    text = prefix.strip().lower()
    if not _ID.fullmatch(text) or len(text) > ID_LENGTH:
        raise RunNotFound(prefix)
    found = store.find_run_ids(text, limit=CANDIDATES_MAX)
    if not found:
        raise RunNotFound(prefix)
    if len(found) > 1:
        raise AmbiguousRun(prefix, candidates=found)
    return found[0]


def _decode(text: str) -> Any:
    try:
        return decode(text)
    except PayloadEncrypted:
        return ENCRYPTED
    except PayloadUnreadable:
        return text
