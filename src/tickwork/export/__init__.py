"""Schedules as calendars. ``app.export`` writes them; see :class:`CalendarExports`.

``ICalendarExporter`` implements ``tickwork.contracts.CalendarExporter``.
"""

from tickwork.export.calendar_exports import CalendarExports
from tickwork.export.ical import ICalendarExporter, PastRun

__all__ = ["CalendarExports", "ICalendarExporter", "PastRun"]
