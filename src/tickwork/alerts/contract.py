"""An alert, and what a target must be able to do."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedRunAlert:
    """A schedule did not complete in time (``is_over`` is False), or does again.

    ``id`` is the same for every delivery of an alert: a target can drop a second one.
    """

    id: str
    is_over: bool
    schedule: str
    tenant: str
    job: str
    due_at: datetime  # the firing that was missed first
    at: datetime
    reason: str

    @property
    def title(self) -> str:
        """One line without details."""
        name = f"{self.tenant}/{self.schedule}" if self.tenant else self.schedule
        return f"{name} {'is well again' if self.is_over else 'did not complete in time'}"

    @property
    def text(self) -> str:
        """The alert in plain English."""
        due = f"The firing of {self.due_at:%Y-%m-%d %H:%M:%S} UTC"
        what = f"{due} was missed first." if self.is_over else f"{due} is late."
        return f"{self.title}. {what} {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """The alert as plain data, with its text."""
        facts = asdict(self)
        facts |= {"due_at": self.due_at.isoformat(), "at": self.at.isoformat()}
        return {**facts, "text": self.text}


class AlertTarget(Protocol):
    """A receiver of alerts."""

    @property
    def name(self) -> str:
        """A name for log messages, without secrets."""
        ...

    def send(self, alert: MissedRunAlert) -> None:
        """Deliver an alert. If this raises an exception, it is tried again later."""
        ...
