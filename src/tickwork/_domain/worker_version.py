"""The versions that a worker reports: of tickwork, of the application, of time zones."""

from typing import Final, NamedTuple

_APPLICATION: Final = " app/"
_ZONES: Final = " tz/"


class WorkerVersion(NamedTuple):
    """The versions of a worker.

    >>> WorkerVersion("0.1.0", "2026.11", "2026b").text
    '0.1.0 app/2026.11 tz/2026b'
    >>> WorkerVersion.parse("0.1.0 tz/2026b")
    WorkerVersion(program='0.1.0', application='', zones='2026b')
    """

    program: str
    application: str = ""  # empty if the application has none
    zones: str = ""  # the release of the time zone data; empty if unknown

    @property
    def text(self) -> str:
        """All of them, as the row of a worker has them."""
        application = f"{_APPLICATION}{self.application}" if self.application else ""
        return f"{self.program}{application}{_ZONES + self.zones if self.zones else ''}"

    @classmethod
    def parse(cls, text: str) -> "WorkerVersion":
        """Read the text of a worker, of whatever version it is."""
        rest, _, zones = text.partition(_ZONES)
        program, _, application = rest.partition(_APPLICATION)
        return cls(program, application, zones)
