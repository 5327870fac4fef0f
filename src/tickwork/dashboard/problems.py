"""Errors as RFC 9457 problems: ``application/problem+json``."""

from collections.abc import Mapping
from typing import Any, Final

from tickwork.errors import (
    AlreadyClaimed,
    AmbiguousRun,
    ArgumentError,
    DefinitionError,
    DuplicateDefinition,
    InvalidTransition,
    JobNotFound,
    KeyReused,
    OutcomeUnknown,
    PayloadError,
    ReadTimeout,
    RunError,
    RunNotFound,
    ScheduleNotFound,
    StoreError,
    TickworkError,
    WorkerNotFound,
)

TITLES: Final[Mapping[int, str]] = {
    400: "The request is malformed.",
    401: "A token is needed.",
    403: "The request is not allowed.",
    404: "There is no such thing.",
    405: "The method is not allowed.",
    409: "The state does not allow this.",
    410: "It is not valid any more.",
    412: "It was changed meanwhile.",
    413: "The request is too large.",
    415: "The content type must be application/json.",
    422: "A value is not valid.",
    429: "There were too many requests.",
    500: "The server failed.",
    503: "There is no answer now.",
}


RUNS_NAMED_MAX: Final = 10


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str = "",
        field: str = "",
        fix: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.field = field
        self.fix = fix
        self.headers = dict(headers or {})

    def as_dict(self) -> dict[str, Any]:
        """The body of the response."""
        found = {
            "type": "about:blank",
            "title": TITLES[self.status],
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "field": self.field,
            "fix": self.fix,
        }
        return {name: value for name, value in found.items() if value != ""}


def problem_of(error: TickworkError) -> ProblemError:
    """The problem that an error of tickwork means."""
    if isinstance(error, ReadTimeout):
        detail = f"The database took longer than {error.limit.total_seconds():g} s. {error.why}"
        retry = {"Retry-After": "10"}
        return ProblemError(503, detail, code=error.code, fix=error.fix, headers=retry)
    if isinstance(error, OutcomeUnknown):
        detail = "The database did not confirm the change. It may be stored or not."
        if error.run_ids:
            detail += f" Runs: {', '.join(error.run_ids[:RUNS_NAMED_MAX])}."
        fix = "Check before you repeat it. With the same Idempotency-Key, a repeat is safe."
        return ProblemError(503, detail, code=error.code, fix=fix)
    status = _status_of(error)
    detail = error.what if not error.why or status == 503 else f"{error.what} {error.why}"
    if status == 503:
        # The text may name hosts and users of the database.
        detail = "The database does not answer, or its tables do not fit. The log has the details."
    return ProblemError(status, detail, code=error.code, fix="" if status == 503 else error.fix)


def _status_of(error: TickworkError) -> int:
    match error:
        case RunNotFound() | JobNotFound() | ScheduleNotFound() | WorkerNotFound():
            return 404
        case DuplicateDefinition():
            return 409
        case AlreadyClaimed() | InvalidTransition() | AmbiguousRun() | KeyReused() | RunError():
            return 409
        case ArgumentError() | PayloadError() | DefinitionError():
            return 422
        case StoreError():
            return 503
        case _:
            return 409
