"""Keys of runs that a later dispatch replaces while they wait.

The options ``debounce`` and ``unique(on_conflict="replace")`` give a run such a key. It is an
overlap key that a claim frees: at most one run with it waits, and a claimed run is never changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from tickwork._domain.limits.limits import Unique, hash_unique
from tickwork.errors import InvalidOption

_WAITING: Final = "waiting:"
_DEBOUNCED: Final = ":debounce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Debounce:
    """One run for each quiet period.

    The run is due ``quiet`` after the last dispatch with the same key, and not later than ``max``
    after the first one. The key is the arguments named in ``by``, or all arguments.
    """

    quiet: timedelta
    max: timedelta | None = None
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.quiet <= timedelta(0):
            raise InvalidOption("debounce", self.quiet, "must be longer than 0s")
        if self.max is not None and self.max < self.quiet:
            raise InvalidOption(
                "max",
                self.max,
                "must not be shorter than the quiet period",
                fix='Write debounce("10s", max="2m").',
            )


class ReplaceRule(NamedTuple):
    """A run replaces the one that waits with its overlap key, if there is one.

    It is due ``max`` after the dispatch of the first of them at the latest.
    """

    max: timedelta | None = None


def debounce_key(debounce: Debounce, *, job: str, tenant: str, args: Mapping[str, Any]) -> str:
    """The overlap key of a debounced run. Tenants never share a key."""
    value = hash_unique(Unique(by=debounce.by), job=job, tenant=tenant, args=args)
    return f"{_WAITING}{job}:{value}{_DEBOUNCED}"


def replace_key(unique: Unique, *, job: str, tenant: str, args: Mapping[str, Any]) -> str:
    """The overlap key of a unique run that the next one replaces."""
    return f"{_WAITING}{job}:{hash_unique(unique, job=job, tenant=tenant, args=args)}"


def is_debounced(overlap_key: str) -> bool:
    """Whether this is the key of a debounced run that waits."""
    return overlap_key.startswith(_WAITING) and overlap_key.endswith(_DEBOUNCED)
