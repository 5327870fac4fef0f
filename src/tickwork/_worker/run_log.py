"""Log records about one run, with the attributes ``run_id``, ``job`` and ``attempt``."""

import logging
from typing import Final

from tickwork._define.secret_mask import MASK, make_masked_copy
from tickwork._domain.run import Claim
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.plain_text import escape_lines
from tickwork.engines.log_records import add_run_fields

_log: Final = get_logger("tickwork.worker")


def log_run(
    level: int,
    claim: Claim,
    text: str,
    *args: object,
    error: BaseException | None = None,
    traceback: str = "",
    log: logging.Logger = _log,
) -> None:
    """Log ``job: text``, and the exception with its traceback, if there is one.

    ``traceback`` is the text that is stored with the run: secrets are masked in it. If there were
    any, a logging handler such as that of Sentry must not get the original exception.
    """
    if not log.isEnabledFor(level):
        return
    if error is not None and MASK in traceback:
        error = make_masked_copy(error, traceback)
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    file, line, function, _ = log.findCaller(stacklevel=2)
    args = (claim.job, *args)
    # Not with `extra`: that raises where a record factory of the host uses one of the names.
    record = log.makeRecord(log.name, level, file, line, f"%s: {text}", args, exc_info, function)
    record.exc_text = escape_lines(traceback) or None
    add_run_fields(record, claim)
    log.handle(record)
