"""The pages: each reads through ``app.inspect``, and renders one template."""

from tickwork.dashboard.pages.coming_firings import TimePage
from tickwork.dashboard.pages.overview import OverviewPages
from tickwork.dashboard.pages.queues import QueuePages
from tickwork.dashboard.pages.runs import RunPages
from tickwork.dashboard.pages.schedules import SchedulePages
from tickwork.dashboard.pages.waits import WaitPages


class Pages(OverviewPages, QueuePages, RunPages, SchedulePages, TimePage, WaitPages):
    """All pages, by the names of their methods."""
