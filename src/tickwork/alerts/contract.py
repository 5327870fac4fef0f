"""An alert, and what a target must be able to do."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol

from tickwork._domain.watch import FailureRule


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage(ABC):
    """Something needs attention (``is_over`` is False), or does not any more.

    ``id`` is the same for every delivery of an alert: a target can drop a second one.
    """

    kind: ClassVar[str]

    id: str
    is_over: bool
    tenant: str
    job: str
    at: datetime
    reason: str

    @property
    @abstractmethod
    def title(self) -> str:
        """One line without details."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The alert in plain English."""

    def to_json(self) -> dict[str, Any]:
        """The alert as plain data, with its kind and its text."""
        payload = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
        }
        return {"kind": self.kind, **payload, "text": self.text}

    def _full_name(self, name: str) -> str:
        return f"{self.tenant}/{name}" if self.tenant else name


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedRunAlert(AlertMessage):
    """A schedule did not complete in time, or does again."""

    kind: ClassVar[str] = "missed_run"

    schedule: str
    due_at: datetime  # the firing that was missed first

    @property
    def title(self) -> str:
        """One line without details."""
        state = "is well again" if self.is_over else "did not complete in time"
        return f"{self._full_name(self.schedule)} {state}"

    @property
    def text(self) -> str:
        """The alert in plain English."""
        due = f"The firing of {self.due_at:%Y-%m-%d %H:%M:%S} UTC"
        what = f"{due} was missed first." if self.is_over else f"{due} is late."
        return f"{self.title}. {what} {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingJobAlert(AlertMessage):
    """A job fails repeatedly, or does not any more."""

    kind: ClassVar[str] = "failing_job"

    failing_at: datetime  # when the incident began

    @property
    def title(self) -> str:
        """One line without details."""
        state = "is well again" if self.is_over else "fails repeatedly"
        return f"{self._full_name(self.job)} {state}"

    @property
    def text(self) -> str:
        """The alert in plain English."""
        return f"{self.title}. {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureWatch:
    """When a job needs an alert, and the hooks that are called then."""

    rule: FailureRule
    hooks: tuple[Callable[..., Any], ...] = ()


class AlertTarget(Protocol):
    """A receiver of alerts."""

    @property
    def name(self) -> str:
        """A name for log messages, without secrets."""
        ...

    def send(self, alert: AlertMessage) -> None:
        """Deliver an alert. If this raises an exception, it is tried again later."""
        ...
