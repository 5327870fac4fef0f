"""``app.export``: schedules and runs as a calendar."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from tickwork._define.options import Duration
from tickwork._domain.runs.run import Run
from tickwork._domain.schedules.bounds import Bounded
from tickwork._inspect.upcoming_firings import ActiveSchedule
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._stores.contract import ReadStore, RunFilter
from tickwork.contracts import CalendarEntry, CalendarExporter
from tickwork.errors import InvalidOption, InvalidSchedule, ScheduleNotFound
from tickwork.export.ical import LENGTH_DEFAULT, ICalendarExporter, PastRun
from tickwork.export.links import google_link, outlook_link

DAYS_DEFAULT: Final = 90
DAYS_MAX: Final = 3660
RUNS_MAX: Final = 5_000
_PAGE: Final = 500


class CalendarExports:
    """``app.export``: the schedules that will fire, as a calendar file or as links.

    Paused, retired and finished schedules are left out.
    """

    def __init__(
        self,
        *,
        store: ReadStore,
        clock: Clock,
        active: Callable[[], Sequence[ActiveSchedule]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._active = active

    def ical(
        self,
        *schedules: str,
        tenant: str | None = None,
        days: int = DAYS_DEFAULT,
        past: Duration | None = None,
        length: Duration = LENGTH_DEFAULT,
        name: str = "tickwork",
    ) -> str:
        """Return an iCalendar file with all schedules, or with these.

        Schedules become recurrence rules where those are exact. The firings of others are listed
        for ``days`` days. With ``past``, the runs of schedules since then are events, too, with
        their outcome. ``length`` is how long an event of a schedule is.

        Raises:
            ScheduleNotFound: One of these schedules does not exist, or does not fire.
            InvalidOption: ``days``, ``past`` or ``length`` is invalid.
        """
        exporter = ICalendarExporter(
            name=name,
            length=_check_length(length),
            runs=() if past is None else self._past_runs(as_duration(past), schedules, tenant),
        )
        return self.write(exporter, *schedules, tenant=tenant, days=days)

    def write(
        self,
        exporter: CalendarExporter,
        *schedules: str,
        tenant: str | None = None,
        days: int = DAYS_DEFAULT,
    ) -> str:
        """Return what an exporter of your own makes of the schedules, for this many days.

        Raises:
            ScheduleNotFound: One of these schedules does not exist, or does not fire.
            InvalidOption: ``days`` is invalid.
        """
        if not 1 <= days <= DAYS_MAX:
            raise InvalidOption("days", days, f"must be between 1 and {DAYS_MAX:,}")
        begin = self._clock.now()
        entries = self._entries(schedules, tenant)
        return exporter.export(entries, begin=begin, end=begin + timedelta(days=days))

    def google_link(self, schedule: str, *, tenant: str = "") -> str:
        """Return a link that adds the schedule to Google Calendar.

        The event repeats if one recurrence rule describes the schedule. Otherwise it is the next
        firing.

        Raises:
            ScheduleNotFound: It does not exist, or does not fire.
        """
        return self._link(google_link, schedule, tenant)

    def outlook_link(self, schedule: str, *, tenant: str = "") -> str:
        """Return a link that adds the next firing to Outlook: its links cannot repeat.

        Raises:
            ScheduleNotFound: It does not exist, or does not fire.
        """
        return self._link(outlook_link, schedule, tenant)

    def _link(self, make: Callable[..., str | None], schedule: str, tenant: str) -> str:
        [entry] = self._entries([schedule], tenant)
        link = make(entry, begin=self._clock.now(), length=LENGTH_DEFAULT)
        if link is None:
            raise InvalidSchedule(
                f"The schedule {schedule!r} has no firing left.", fix="Check its end."
            )
        return link

    def _entries(self, schedules: Iterable[str], tenant: str | None) -> list[CalendarEntry]:
        wanted = list(schedules)
        active = [each for each in self._active() if tenant in {None, each.spec.tenant}]
        names = {each.spec.name for each in active}
        for name in wanted:
            if name not in names:
                raise ScheduleNotFound(
                    name,
                    tenant=tenant or "",
                    known=sorted(names),
                    fix="It may be paused, retired or finished: tickwork status",
                )
        return [_entry(each) for each in active if not wanted or each.spec.name in wanted]

    def _past_runs(
        self, length: timedelta, schedules: Sequence[str], tenant: str | None
    ) -> list[PastRun]:
        """The newest runs of schedules since then."""
        where = RunFilter(tenant=tenant, since=self._clock.now() - length)
        runs: list[PastRun] = []
        cursor: str | None = None
        for _ in range(RUNS_MAX // _PAGE):
            page = self._store.list_runs(where, cursor=cursor, limit=_PAGE)
            runs += [
                _past_run(run)
                for run in page.runs
                if run.schedule is not None and (not schedules or run.schedule in schedules)
            ]
            cursor = page.cursor
            if cursor is None:
                break
        return runs


def _entry(schedule: ActiveSchedule) -> CalendarEntry:
    spec = schedule.spec
    rule = schedule.rule
    if schedule.next_due_at is not None:
        # Without firings of the past, or before the end of a pause.
        rule = Bounded(rule=rule, starting=schedule.next_due_at, until=spec.until)
    return CalendarEntry(
        id=f"{spec.tenant}/{spec.name}",
        name=spec.name,
        tenant=spec.tenant,
        job=spec.job,
        rule=rule,
        description=f"Fires {schedule.rule.describe()}.",
    )


def _past_run(run: Run) -> PastRun:
    times = f"Due {run.due_at:%Y-%m-%d %H:%M:%S} UTC, {run.attempt} of {run.attempts_max} attempts."
    return PastRun(
        id=run.id,
        name=run.schedule or run.job,
        outcome=run.status.value,
        started_at=run.started_at or run.due_at,
        ended_at=run.ended_at,
        text="\n".join(filter(None, (f"Run {run.id} of {run.job}", times, run.reason))),
    )


def _check_length(length: Duration) -> timedelta:
    duration = as_duration(length)
    if not timedelta(minutes=1) <= duration <= timedelta(days=1):
        raise InvalidOption("length", length, "must be between 1m and 24h")
    return duration
