"""ETags of schedules: a change can require that the schedule has not changed."""

import re
from datetime import datetime, timedelta
from typing import Final

from tickwork._control.schedule_view import ScheduleView
from tickwork.dashboard.problems import ProblemError

_TAG: Final = re.compile('"[^"]*"')
_MICROSECOND: Final = timedelta(microseconds=1)


def etag_of(revision: int, created_at: datetime) -> str:
    """The ETag of a schedule. One that was removed and created again has another one."""
    age = (created_at - datetime.fromtimestamp(0, created_at.tzinfo)) // _MICROSECOND
    return f'"{revision}-{age:x}"'


def check_if_match(view: ScheduleView, condition: str) -> None:
    """Check the condition of a request.

    Raises:
        ProblemError: The schedule has another ETag.
    """
    current = etag_of(view.revision, view.created_at)
    if condition in {"", "*"} or current in _TAG.findall(condition):
        return
    raise ProblemError(
        412,
        f"The schedule {view.name} was changed meanwhile: this is revision {view.revision}.",
        code="revision",
        fix="Load it again, and repeat the change.",
        headers={"ETag": current},
    )
