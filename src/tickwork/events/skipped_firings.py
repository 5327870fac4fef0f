"""Reports firings that made no run."""

from datetime import datetime
from typing import Final

from tickwork._domain.tick import MISSED, Skip
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.plain_text import count_of
from tickwork.events.bus import EventBus
from tickwork.events.classes import FiringsMissed, FiringsSkipped

_log: Final = get_logger("tickwork.worker")
_runs_log: Final = get_logger("tickwork.worker.runs")


def report_skip(bus: EventBus, skip: Skip, *, at: datetime) -> None:
    """Log it, and emit an event."""
    spec, is_missed = skip.schedule.spec, skip.reason == MISSED
    log = _log.warning if is_missed else _runs_log.info
    log(
        "%s: %s of the schedule %s, from %s to %s, made no run: %s.",
        spec.job,
        count_of(skip.instants, "firing"),
        spec.name,
        skip.first_at,
        skip.last_at,
        skip.reason,
    )
    if bus.has_subscribers:
        kind = FiringsMissed if is_missed else FiringsSkipped
        bus.emit(
            kind(
                at=at,
                schedule=spec.name,
                tenant=spec.tenant,
                job=spec.job,
                first_at=skip.first_at,
                last_at=skip.last_at,
                count=skip.instants,
                reason=skip.reason,
            )
        )
