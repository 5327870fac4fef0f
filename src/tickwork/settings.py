"""Everything that an application can be told, read once."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tickwork._domain.schedules.zones import Zone
from tickwork._kernel.codec import SIZE_MAX
from tickwork._kernel.durations import as_duration
from tickwork.errors import InvalidOption

URL_DEFAULT: Final = "sqlite:///tickwork.db"
URL_VARIABLE: Final = "TICKWORK_URL"
PAYLOAD_LIMIT: Final = 16 * 1024 * 1024
RETIRE_AFTER: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an application was told: by its arguments, else by the environment, else defaults."""

    url: str
    timezone: str = "UTC"
    is_installing: bool = False  # create or upgrade the tables on first use
    handler_paths: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    payload_max: int = SIZE_MAX
    retire_after: timedelta = RETIRE_AFTER

    def __post_init__(self) -> None:
        Zone.named(self.timezone)
        if not 1 <= self.payload_max <= PAYLOAD_LIMIT:
            raise InvalidOption(
                "payload_max", self.payload_max, f"it lies between 1 and {PAYLOAD_LIMIT:,} bytes."
            )
        if self.retire_after <= timedelta(0):
            raise InvalidOption("retire_after", self.retire_after, "it is longer than nothing.")


def read_settings(
    *,
    url: str | None,
    timezone: str,
    install: bool | None,
    handler_paths: Iterable[str],
    redact: Iterable[str],
    payload_max: int,
    retire_after: timedelta | float | str,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Arguments first, then the environment, then defaults.

    SQLite installs itself: it is one file, and nobody else's. Servers are asked only if told.
    """
    found = url or environ.get(URL_VARIABLE) or URL_DEFAULT
    is_embedded = found.partition(":")[0] in {"sqlite", "memory"}
    return Settings(
        url=found,
        timezone=timezone,
        is_installing=is_embedded if install is None else install,
        handler_paths=tuple(handler_paths),
        redact=tuple(redact),
        payload_max=payload_max,
        retire_after=as_duration(retire_after),
    )
