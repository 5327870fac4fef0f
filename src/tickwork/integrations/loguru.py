"""The current run for loguru: a patcher."""

from typing import Any

from tickwork._handlers.context import current_run

__all__ = ["add_run"]


def add_run(record: Any) -> None:
    """Add ``run_id``, ``job`` and ``attempt`` to the ``extra`` of a line.

    A value that the line has already is kept. Outside of attempts they are ``-``, because a format
    such as ``{extra[run_id]}`` fails without them.
    """
    run = current_run()
    for name in ("run_id", "job", "attempt"):
        record["extra"].setdefault(name, getattr(run, name, "-"))
