"""Values for tests: say what matters to the case, the rest is filled in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tickwork._domain.identity import RunId, ScheduleId
from tickwork._domain.job import JobSpec, ScheduleRow, ScheduleSpec
from tickwork._domain.runs.run import Claim

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def a_claim(**options: Any) -> Claim:
    facts: dict[str, Any] = {
        "run_id": RunId("019cb0d2-0000-7000-8000-000000000001"),
        "job": "send_email",
        "tenant": "",
        "queue": "default",
        "args": "{}",
        "attempt": 1,
        "attempts_max": 1,
        "crashes": 0,
        "token": 1,
        "due_at": NOON - MINUTE,
        "lease_until": NOON + MINUTE,
    }
    return Claim(**facts | options)


def a_job(name: str = "send_email", **options: Any) -> JobSpec:
    return JobSpec(name=name, **options)


def a_schedule(
    *,
    number: int = 1,
    next_due_at: datetime | None = NOON,
    last_fired_at: datetime | None = None,
    paused_at: datetime | None = None,
    **options: Any,
) -> ScheduleRow:
    spec = ScheduleSpec(name=f"schedule-{number}", job="send_email", rule="a rule")
    return ScheduleRow(
        id=ScheduleId(f"019cb0d2-0000-7000-8000-{number:012x}"),
        spec=replace(spec, **options),
        created_at=NOON - timedelta(days=1),
        next_due_at=next_due_at,
        last_fired_at=last_fired_at,
        paused_at=paused_at,
    )
