"""The current run for structlog: a processor.

>>> add_run(None, "info", {"event": "started"})
{'event': 'started'}
"""

from collections.abc import MutableMapping
from typing import Any

from tickwork._handlers.context import current_run

__all__ = ["add_run"]


def add_run(
    logger: object,  # noqa: ARG001  # the parameters of a processor
    method: str,  # noqa: ARG001
    event_dict: MutableMapping[str, Any],
) -> MutableMapping[str, Any]:
    """Add ``run_id``, ``job`` and ``attempt`` to a line that is logged during an attempt.

    A value that the line has already is kept.
    """
    run = current_run()
    if run is not None:
        for name in ("run_id", "job", "attempt"):
            event_dict.setdefault(name, getattr(run, name))
    return event_dict
