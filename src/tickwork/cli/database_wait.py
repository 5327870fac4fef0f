"""Waits for a database server that does not answer when a worker starts."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from tickwork._dialects import is_embedded
from tickwork._kernel.loggers import get_logger
from tickwork._stores.contract import RunFilter
from tickwork._worker.wakeup import Backoff
from tickwork.errors import AccessDenied, StoreUnavailable

FIRST: Final = 0.5
LONGEST: Final = 10.0

_log: Final = get_logger("tickwork.worker")


def wait_for_database(
    app: Any,
    *,
    limit: timedelta | None,
    sleep: Callable[[float], object],
    is_stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Return True when the database answers, or False after a stop.

    Raises:
        StoreError: It does not answer within the limit, or waiting does not help: the password is
            wrong, the database or its tables do not exist, or a file cannot be opened.
    """
    backoff = Backoff(FIRST, LONGEST)
    deadline = None if limit is None else time.monotonic() + limit.total_seconds()
    is_waiting = False
    while not is_stopped():
        try:
            app.runs.page(RunFilter(), limit=1)
        except StoreUnavailable as error:
            left = None if deadline is None else deadline - time.monotonic()
            if not _may_return(error) or (left is not None and left <= 0):
                raise
            if not is_waiting:
                _log.warning("Waiting for the database: %s %s", error.what, error.why)
            is_waiting = True
            sleep(backoff.seconds() if left is None else min(backoff.seconds(), left))
        else:
            if is_waiting:
                _log.info("The database answers.")
            return True
    return False


def _may_return(error: StoreUnavailable) -> bool:
    return not (is_embedded(error.url) or error.is_permanent or isinstance(error, AccessDenied))
