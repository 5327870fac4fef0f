"""Runs as people may see them: arguments by name, with secrets masked."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from tickwork._define.registry import Registry
from tickwork._domain.explain import Cause
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._masks.secret_mask import SecretMask, find_secrets, mask_args, mask_values
from tickwork._masks.text import MASK
from tickwork._payload.codec import decode
from tickwork._stores.contract import Attempt, LogLine, RunRecord, Store
from tickwork.errors import AmbiguousRun, PayloadEncrypted, PayloadUnreadable, RunNotFound

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
_DECODED: Final = ("args", "result", "progress", "reason")
_COPIED: Final = [field.name for field in fields(RunView) if field.name not in _DECODED]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchedRunView:
    """A run that was dispatched or retried."""

    is_new: bool  # false: an earlier request, or a unique key, led to an existing run
    is_replaced: bool  # the existing run waited, and got the arguments of this dispatch
    run: RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step of a run. A value that is secret is masked."""

    name: str
    kind: StepKind
    state: StepState
    at: datetime  # when it was stored
    until: datetime | None  # of a sleep: when it ends
    value: Any  # what its function returned, or what it raised
    version: str  # of the application that stored it; empty if it has none
    run: RunId | None  # of a call: the run that was called


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRunView:
    """A run that another one has called."""

    id: RunId
    step: str  # the name of the call
    job: str  # empty if its row was deleted
    status: RunStatus | None  # null: its row was deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """A run with its attempts, its steps, its log, and the reasons why it has not finished."""

    run: RunView
    attempts: list[Attempt]
    steps: list[StepView]
    log: list[LogLine]
    causes: list[Cause]  # empty if it has finished
    retries: list[RunId]  # the runs that repeat it, the first one first
    children: list[SubRunView]  # the runs that it has called
    callers: list[RunId]  # the runs that have called it


class RunPresenter:
    """Decodes runs for people, and masks the secret arguments of their jobs."""

    def __init__(self, registry: Registry, redact: Collection[str]) -> None:
        self._registry = registry
        self._redact = frozenset(redact)

    def secrets_of(self, job: str) -> frozenset[str]:
        """The names of the arguments of a job that are never shown."""
        definition = self._registry.definitions().get(job)
        return self._redact if definition is None else definition.secrets | self._redact

    def read_args(self, job: str, text: str) -> dict[str, Any]:
        """Decode the arguments of a run or of a schedule."""
        args = _decode(text)
        return mask_args(args, self.secrets_of(job)) if isinstance(args, dict) else {"?": args}

    def view(self, run: Run) -> RunView:
        """Decode a run: arguments by name."""
        names, mask = self.secrets_of(run.job), self._mask_of(run)

        def show(text: str) -> Any:
            return mask_values(_decode(text), names, mask)

        shown = show(run.args)
        return RunView(
            **{name: getattr(run, name) for name in _COPIED},
            args=shown if isinstance(shown, dict) else {"?": shown},
            result=None if run.result is None else show(run.result),
            progress=None if run.progress is None else show(run.progress),
            reason=mask(run.reason),
        )

    def view_record(
        self,
        record: RunRecord,
        causes: Sequence[Cause],
        retries: list[RunId],
        *,
        now: datetime,
        children: Sequence[SubRunView] = (),
        callers: Sequence[RunId] = (),
    ) -> RunDetails:
        """A run with its attempts, steps and log. What an older version stored is masked, too."""
        mask = self._mask_of(record.run)
        attempts = [
            each._replace(error=mask(each.error), traceback=mask(each.traceback))
            for each in record.attempts
        ]
        names = self.secrets_of(record.run.job)

        def show(step: Step) -> Any:
            if step.value is None:
                return None
            if step.is_secret:
                return MASK
            value = mask_values(_decode(step.value), names, mask)
            is_failed = step.state is StepState.FAILED and isinstance(value, dict)
            if is_failed and step.kind is StepKind.CALL:
                return f"{value.get('status')}: {value.get('reason')}"
            if is_failed:
                return f"{value.get('kind')}: {value.get('reason')}"
            return value

        return RunDetails(
            run=self.view(record.run),
            attempts=attempts,
            steps=[
                StepView(
                    name=mask(step.name),
                    kind=step.kind,
                    state=StepState.DONE
                    if step.kind is StepKind.SLEEP and step.is_over(now)
                    else step.state,
                    at=step.at,
                    until=step.until,
                    value=show(step),
                    version=step.version,
                    run=step.ref,
                )
                for step in record.steps
            ],
            log=[line._replace(message=mask(line.message)) for line in record.log],
            causes=list(causes),
            retries=retries,
            children=list(children),
            callers=list(callers),
        )

    def _mask_of(self, run: Run) -> SecretMask:
        """The mask for texts about a run."""
        names = self.secrets_of(run.job)
        secrets = find_secrets(_decode(run.args), names)
        definition = self._registry.definitions().get(run.job)
        if definition is not None:  # a run need not have an argument with a default
            defaults = definition.parameters.defaults if names else {}
            secrets = [*secrets, *(defaults[name] for name in names & defaults.keys())]
        return SecretMask(secrets)


def find_run_id(store: Store, prefix: str) -> RunId:
    """Find the only run whose id begins with ``prefix``.

    Raises:
        RunNotFound: No run has such an id.
        AmbiguousRun: Several runs have one.
    """
    text = prefix.strip().lower()
    if not _ID.fullmatch(text) or len(text) > ID_LENGTH:
        raise RunNotFound(prefix)
    candidates = store.find_run_ids(text, limit=CANDIDATES_MAX)
    if not candidates:
        raise RunNotFound(prefix)
    if len(candidates) > 1:
        raise AmbiguousRun(prefix, candidates=candidates)
    return candidates[0]


def _decode(text: str) -> Any:
    try:
        return decode(text)
    except PayloadEncrypted:
        return ENCRYPTED
    except PayloadUnreadable:
        return text
