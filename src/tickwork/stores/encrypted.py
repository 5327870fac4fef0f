"""A store that encrypts payloads, so that the database never has them in plain text.

Arguments of runs and schedules, results, checkpoints and progress are encrypted. Values that the
database compares, or that people search for, are not: names, tags, keys of limits, errors, logs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tickwork._domain.handover import Handover
from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.run import Claim, NewRun, Run
from tickwork._domain.tick import TickPlan
from tickwork._domain.transitions import Transition
from tickwork._kernel.cipher import Cipher
from tickwork.stores.contract import (
    AsyncRuns,
    ClaimRequest,
    Enqueued,
    KeysOf,
    NewSchedule,
    Planner,
    ReapDecision,
    RunFilter,
    RunPage,
    RunRecord,
    RunSummary,
    Store,
    SummaryPage,
)


class _PayloadCipher:
    """Encrypts and decrypts the values that have payloads."""

    def __init__(self, cipher: Cipher) -> None:
        self._encrypt_text = cipher.encrypt
        self._decrypt_text = cipher.decrypt

    def encrypt(self, text: str | None) -> str | None:
        return None if text is None else self._encrypt_text(text)

    def encrypt_run(self, run: NewRun) -> NewRun:
        return run._replace(args=self._encrypt_text(run.args))

    def encrypt_spec(self, spec: ScheduleSpec) -> ScheduleSpec:
        return replace(spec, args=self._encrypt_text(spec.args))

    def encrypt_row(self, row: ScheduleRow) -> ScheduleRow:
        return replace(row, spec=self.encrypt_spec(row.spec))

    def encrypt_step(self, step: Transition) -> Transition:
        return step._replace(
            result=self.encrypt(step.result),
            if_rolled_back=None
            if step.if_rolled_back is None
            else self.encrypt_step(step.if_rolled_back),
            follow_ups=tuple(map(self.encrypt_run, step.follow_ups)),
        )

    def encrypt_plan(self, plan: TickPlan) -> TickPlan:
        skips = [each._replace(schedule=self.encrypt_row(each.schedule)) for each in plan.skips]
        return plan._replace(runs=list(map(self.encrypt_run, plan.runs)), skips=skips)

    def decrypt(self, text: str | None) -> str | None:
        return None if text is None else self._decrypt_text(text)

    def decrypt_run(self, run: Run) -> Run:
        return replace(
            run,
            args=self._decrypt_text(run.args),
            result=self.decrypt(run.result),
            progress=self.decrypt(run.progress),
            checkpoint=self.decrypt(run.checkpoint),
        )

    def decrypt_summary(self, run: RunSummary) -> RunSummary:
        return run._replace(args=self._decrypt_text(run.args))

    def decrypt_claim(self, claim: Claim) -> Claim:
        return claim._replace(
            args=self._decrypt_text(claim.args), checkpoint=self.decrypt(claim.checkpoint)
        )

    def decrypt_row(self, row: ScheduleRow) -> ScheduleRow:
        return replace(row, spec=replace(row.spec, args=self._decrypt_text(row.spec.args)))


class EncryptedStore:
    """Encrypts what goes to a store, and decrypts what comes from it."""

    def __init__(self, store: Store, cipher: Cipher) -> None:
        self._store = store
        self._cipher = cipher
        self._payloads = _PayloadCipher(cipher)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def using(self, connection: object) -> "EncryptedStore":
        return EncryptedStore(self._store.using(connection), self._cipher)

    def using_async(self, connection: object) -> "EncryptedAsyncRuns":
        return EncryptedAsyncRuns(self._store.using_async(connection), self._payloads)

    # ------------------------------------------------------------ runs

    def enqueue(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[Enqueued]:
        return self._store.enqueue(
            list(map(self._payloads.encrypt_run, runs)), may_be_stored=may_be_stored
        )

    def claim(
        self,
        wanted: ClaimRequest,
        *,
        worker: WorkerId,
        tag: str,
        now: datetime,
        lease: timedelta,
        lease_by_job: Mapping[str, timedelta] | None = None,
    ) -> list[Claim]:
        found = self._store.claim(
            wanted, worker=worker, tag=tag, now=now, lease=lease, lease_by_job=lease_by_job
        )
        return list(map(self._payloads.decrypt_claim, found))

    def claim_run(
        self, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
    ) -> Claim | None:
        found = self._store.claim_run(run_id, worker=worker, tag=tag, now=now, lease=lease)
        return None if found is None else self._payloads.decrypt_claim(found)

    def accept(
        self,
        handovers: Sequence[Handover],
        *,
        worker: WorkerId,
        tag: str,
        until: datetime,
        started_at: datetime | None,
    ) -> list[Claim]:
        found = self._store.accept(
            handovers, worker=worker, tag=tag, until=until, started_at=started_at
        )
        return list(map(self._payloads.decrypt_claim, found))

    def find_claims(self, *, worker: WorkerId, tag: str) -> list[Claim]:
        return list(
            map(self._payloads.decrypt_claim, self._store.find_claims(worker=worker, tag=tag))
        )

    def record(self, steps: Sequence[Transition], *, may_be_stored: bool = False) -> list[RunId]:
        return self._store.record(
            list(map(self._payloads.encrypt_step, steps)), may_be_stored=may_be_stored
        )

    def reap(self, *, now: datetime, limit: int, decide: ReapDecision) -> list[Transition]:
        steps = self._store.reap(now=now, limit=limit, decide=decide)
        return [step._replace(claim=self._payloads.decrypt_claim(step.claim)) for step in steps]

    def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        return self._store.complete(claim, now=now, result=self._payloads.encrypt(result))

    def save_progress(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        encrypt = self._payloads.encrypt
        return self._store.save_progress(
            claim, progress=encrypt(progress), checkpoint=encrypt(checkpoint)
        )

    # ------------------------------------------------------------ schedules

    def add_schedules(self, new: Sequence[NewSchedule], *, now: datetime) -> list[ScheduleRow]:
        encrypted = [each._replace(spec=self._payloads.encrypt_spec(each.spec)) for each in new]
        return list(map(self._payloads.decrypt_row, self._store.add_schedules(encrypted, now=now)))

    def add_schedule(
        self,
        schedule_id: ScheduleId,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow:
        encrypted = self._payloads.encrypt_spec(spec)
        row = self._store.add_schedule(schedule_id, encrypted, now=now, next_due_at=next_due_at)
        return self._payloads.decrypt_row(row)

    def change_schedule(
        self,
        row: ScheduleRow,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow | None:
        encrypted = self._payloads.encrypt_spec(spec)
        changed = self._store.change_schedule(row, encrypted, now=now, next_due_at=next_due_at)
        return None if changed is None else self._payloads.decrypt_row(changed)

    def get_schedule(self, tenant: str, name: str) -> ScheduleRow | None:
        found = self._store.get_schedule(tenant, name)
        return None if found is None else self._payloads.decrypt_row(found)

    def get_schedules(self, names: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        return list(map(self._payloads.decrypt_row, self._store.get_schedules(names)))

    def list_schedules(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 1000
    ) -> list[ScheduleRow]:
        found = self._store.list_schedules(tenant=tenant, after=after, limit=limit)
        return list(map(self._payloads.decrypt_row, found))

    def list_expected_schedules(self, *, limit: int) -> list[ScheduleRow]:
        found = self._store.list_expected_schedules(limit=limit)
        return list(map(self._payloads.decrypt_row, found))

    def fire(
        self,
        *,
        now: datetime,
        limit: int,
        jobs: Collection[str] | None,
        keys_of: KeysOf,
        plan: Planner,
        seen_after: datetime | None = None,
    ) -> TickPlan:
        payloads = self._payloads

        def keys_of_decrypted(rows: Sequence[ScheduleRow]) -> Collection[str]:
            return keys_of(list(map(payloads.decrypt_row, rows)))

        def plan_encrypted(rows: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            return payloads.encrypt_plan(plan(list(map(payloads.decrypt_row, rows)), taken))

        return self._store.fire(
            now=now,
            limit=limit,
            jobs=jobs,
            keys_of=keys_of_decrypted,
            plan=plan_encrypted,
            seen_after=seen_after,
        )

    # ------------------------------------------------------------ reads

    def get_run(self, run_id: RunId) -> Run | None:
        found = self._store.get_run(run_id)
        return None if found is None else self._payloads.decrypt_run(found)

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        return list(map(self._payloads.decrypt_run, self._store.get_runs(run_ids)))

    def list_runs(self, where: RunFilter, **options: Any) -> RunPage:
        page = self._store.list_runs(where, **options)
        return page._replace(runs=list(map(self._payloads.decrypt_run, page.runs)))

    def list_summaries(self, where: RunFilter, **options: Any) -> SummaryPage:
        page = self._store.list_summaries(where, **options)
        return page._replace(runs=list(map(self._payloads.decrypt_summary, page.runs)))

    def due_runs(self, wanted: ClaimRequest, *, now: datetime) -> list[Run]:
        return list(map(self._payloads.decrypt_run, self._store.due_runs(wanted, now=now)))

    def run_record(self, run_id: RunId) -> RunRecord | None:
        found = self._store.run_record(run_id)
        return None if found is None else found._replace(run=self._payloads.decrypt_run(found.run))


class EncryptedAsyncRuns:
    """The same for an async connection of the caller."""

    def __init__(self, runs: AsyncRuns, payloads: _PayloadCipher) -> None:
        self._runs = runs
        self._payloads = payloads

    async def enqueue(
        self, runs: Sequence[NewRun], *, may_be_stored: bool = False
    ) -> list[Enqueued]:
        encrypted = list(map(self._payloads.encrypt_run, runs))
        return await self._runs.enqueue(encrypted, may_be_stored=may_be_stored)

    async def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        return await self._runs.complete(claim, now=now, result=self._payloads.encrypt(result))
