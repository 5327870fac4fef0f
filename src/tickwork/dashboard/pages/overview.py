"""The overview, alerts, queues, workers and the audit log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from tickwork._domain.health import Level
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._inspect.audit_entries import AuditEntryView, view_entries
from tickwork._inspect.statistics import JobStatistics
from tickwork._inspect.status import JobView
from tickwork._inspect.upcoming_firings import ActiveSchedule
from tickwork._stores.contract import RunFilter
from tickwork.dashboard import fields
from tickwork.dashboard.fields import InputField
from tickwork.dashboard.pages.renderer import PAGE_SIZE, PageRenderer
from tickwork.dashboard.presentation import draw_gantt, path_part
from tickwork.dashboard.problems import ProblemError

COUNTED_MAX: Final = 2_500
"""The most unfinished runs of each phase that a page counts: SQLite looks up each of them."""

SLOWER_SHARE: Final = 1.5
"""How many times slower than a week ago a job is, before the page says so."""

SHORTEST_SECONDS: Final = 0.001
"""Percentiles are estimated: shorter times are taken for this one."""

DEPLOYS_SHOWN: Final = 5
GANTT_RUNS_MAX: Final = 400
GANTT_LENGTHS: Final = ("15m", "1h", "6h", "24h")


class OverviewPages(PageRenderer):
    """The pages about the whole application."""

    async def overview(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            inspect = self.app.inspect
            status = inspect.status(cap=COUNTED_MAX)
            activity = inspect.activity(ready=status.runs[Phase.READY])
            alive = [worker for worker in status.workers if not worker.is_silent]
            failed = RunFilter(statuses=frozenset({RunStatus.FAILED_PERMANENT}))
            points = activity.minutes
            return {
                "status": status,
                "activity": activity,
                "alive": len(alive),
                "silent": len(status.workers) - len(alive),
                "slots": sum(worker.slots for worker in alive),
                "slots_used": sum(worker.running for worker in alive),
                "firings": _order_by_next_firing(inspect.active_schedules(), now=status.now)[:6],
                "checks": [
                    check
                    for check in self.context.checks()
                    if check.level is not Level.OK or check.name in {"connection", "schema"}
                ],
                "failures": inspect.list_runs(failed, limit=5).runs,
                "chart": json.dumps(
                    [
                        [int(each.at.timestamp()) for each in points],
                        [each.created for each in points],
                        [each.completed for each in points],
                        [each.failed for each in points],
                    ]
                ),
            }

        return await self.show(request, "overview", read, title="Overview")

    async def alerts(self, request: Request) -> Response:
        given = fields.read_query(
            (InputField("cursor", fields.ALERT_CURSOR, "Cursor."),),
            request.query_params.multi_items(),
        )
        cursor = given.get("cursor")

        def read() -> dict[str, Any]:
            current = self.alert_book.current()
            page = self.app.inspect.ended_alerts(cursor=cursor, limit=PAGE_SIZE)
            return {"alerts": current, "ended": page.ended, "cursor": cursor, "next": page.cursor}

        return await self.show(request, "alerts", read, title="Alerts")

    async def queues(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            inspect = self.app.inspect
            status = inspect.status(cap=COUNTED_MAX)
            ended = inspect.job_statistics([job.name for job in status.jobs])
            by_job = {each.name: each for each in ended}
            return {
                "queues": status.queues,
                "jobs": _list_jobs(status.jobs, by_job),
                "by_queue": {each.name: each for each in inspect.queue_statistics()},
                "by_job": by_job,
                "notes": {(each.kind.value, each.name): each.note for each in status.pauses},
                "limits": inspect.limits(),
            }

        return await self.show(request, "queues", read, title="Queues and limits")

    async def workers(self, request: Request) -> Response:
        length = request.query_params.get("length", GANTT_LENGTHS[0])
        if length not in GANTT_LENGTHS:
            raise ProblemError(422, f"length must be one of {', '.join(GANTT_LENGTHS)}.")

        def read() -> dict[str, Any]:
            inspect, now = self.app.inspect, self.app.clock.now()
            workers = inspect.workers()
            begin = now - fields.DURATION.parse(length, True)
            running = RunFilter(statuses=frozenset({RunStatus.RUNNING}))
            recent = inspect.list_newest(limit=GANTT_RUNS_MAX)
            held = inspect.list_runs(running, limit=GANTT_RUNS_MAX).runs
            return {
                "workers": workers,
                "gantt": draw_gantt([*held, *recent], workers, begin=begin, now=now),
                "held": {
                    each.id: [run for run in held if run.worker == each.id]
                    for each in workers
                    if each.is_silent
                },
                "length": length,
                "lengths": GANTT_LENGTHS,
            }

        return await self.show(request, "workers", read, title="Workers")

    async def audit(self, request: Request) -> Response:
        given = fields.read_query(
            (
                InputField("subject", fields.NAME, "Subject."),
                InputField("cursor", fields.RUN_ID, "Cursor."),
            ),
            request.query_params.multi_items(),
        )

        def read() -> dict[str, Any]:
            entries = view_entries(
                self.app.audit.list(
                    subject=given.get("subject"), before=given.get("cursor"), limit=PAGE_SIZE
                )
            )
            return {
                "entries": entries,
                "paths": {each.id: _path_of_subject(each) for each in entries},
                "subject": given.get("subject", ""),
                "cursor": entries[-1].id if len(entries) == PAGE_SIZE else None,
                "changes": None,
            }

        return await self.show(request, "audit", read, title="Audit log")

    async def changes(self, request: Request) -> Response:
        """What people and programs did since the newest deploy."""

        def read() -> dict[str, Any]:
            found = self.app.inspect.changes()
            return {
                "entries": found.entries,
                "paths": {each.id: _path_of_subject(each) for each in found.entries},
                "subject": "",
                "cursor": None,
                "changes": found,
                "deploys": self.app.inspect.deploys()[:DEPLOYS_SHOWN],
            }

        return await self.show(
            request, "audit", read, title="Since the last deploy", template="audit.html"
        )


def _path_of_subject(entry: AuditEntryView) -> str:
    """The page about the subject of an entry of the audit log; empty if it has none."""
    kind, _, name = entry.subject.partition("/")
    match kind:
        case "run" | "queue" | "job" if name:
            return f"/{kind}s/{path_part(name)}"
        case "schedule" if name:
            tenant = str(entry.detail.get("tenant", ""))
            tail = f"?{urlencode({'tenant': tenant})}" if tenant else ""
            return f"/schedules/{path_part(name)}{tail}"
        case "worker":
            return "/workers"
        case "limit":
            return "/queues"
        case "alert":
            return "/alerts"
        case _:
            return ""


def _order_by_next_firing(
    schedules: Sequence[ActiveSchedule], *, now: datetime
) -> list[tuple[ActiveSchedule, bool]]:
    """The schedules in order of their next firing; with each, whether it is overdue."""
    due = [(each.next_due_at, each) for each in schedules if each.next_due_at is not None]
    due.sort(key=lambda pair: (pair[0], pair[1].spec.tenant, pair[1].spec.name))
    return [(each, each.overdue is not None and at <= now) for at, each in due]


def _list_jobs(
    jobs: Sequence[JobView], statistics: Mapping[str, JobStatistics]
) -> list[tuple[JobView, int, float | None]]:
    """One row for each job: with the number of its tenants, and how much slower it became."""
    by_name: dict[str, list[JobView]] = {}
    for each in jobs:
        by_name.setdefault(each.name, []).append(each)
    found = [
        (
            replace(
                max(rows, key=lambda row: row.failures),
                last_run_at=max((row.last_run_at for row in rows if row.last_run_at), default=None),
            ),
            len({row.tenant for row in rows} - {""}),
            _slowdown(statistics.get(name)),
        )
        for name, rows in by_name.items()
    ]
    return sorted(found, key=lambda row: (-(row[2] or 0), row[0].name))


def _slowdown(ended: JobStatistics | None) -> float | None:
    """How many times slower than a week ago half of the runs are, if it is clear."""
    if ended is None or ended.runtime is None or ended.runtime_week_ago is None:
        return None
    share = ended.runtime.p50 / max(ended.runtime_week_ago.p50, SHORTEST_SECONDS)
    return share if share >= SLOWER_SHARE else None
