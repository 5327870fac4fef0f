"""The loggers of tickwork. Texts in their messages are escaped, so each message is one line."""

import logging

from tickwork._kernel.plain_text import escape_line
from tickwork.errors import TickworkError


class _EscapeArguments(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_escaped, record.args))
        return True


def _escaped(value: object) -> object:
    if isinstance(value, int | float):
        return value
    if isinstance(value, TickworkError):
        return escape_line(str(value).replace("\n", " "))  # its sentences are on lines of their own
    return escape_line(str(value))


_FILTER = _EscapeArguments()


def get_logger(name: str) -> logging.Logger:
    """Return a logger whose messages stay on one line, whatever texts are put into them.

    Only the text of a traceback has several lines.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)
    return logger
