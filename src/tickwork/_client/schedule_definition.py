"""The definition of a schedule that is created at run time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict

from tickwork._client.job_lookup import JobRef
from tickwork._define.options import Length, OptionCollector
from tickwork._domain.job import Misfire, Overlap
from tickwork._domain.names import check_name
from tickwork._domain.schedules.bounds import check_firings
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.zones import Zone
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption, InvalidSchedule, UnknownOption

Rule: TypeAlias = Schedule | str
"""A rule of ``tickwork.schedules``, a cron expression, a symbol, a pattern or a chain as text, or
what ``to_text`` wrote."""


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule besides its job and rule. None: the option of the job."""

    args: Mapping[str, Any]
    queue: str | None
    priority: int | None
    expires: Length | None
    overlap: Overlap | str | None
    misfire: Misfire | str | None
    grace: Length | None
    jitter: Length | None
    expect_within: Length | None
    until: When | None
    max_firings: int | None
    target: str | None
    tags: Iterable[str]


class ScheduleChanges(ScheduleOptions, total=False):
    """The options that ``update`` can change."""

    job: JobRef
    rule: Rule
    at: When
    timezone: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDefinition:
    """A schedule for ``app.schedules.create``.

    ``at`` without a ``rule`` fires once. With a rule it is the start: ``daily()`` from nine
    o'clock on fires daily at nine. A schedule without a name gets one that is derived from
    its options, so that creating it twice makes one schedule.

    >>> from tickwork import schedules
    >>> ScheduleDefinition(
    ...     job="export_report",
    ...     target="report-42",
    ...     args={"format": "pdf"},
    ...     at="2026-03-01T09:00:00+01:00",
    ...     rule=schedules.daily(),
    ... ).at.isoformat()
    '2026-03-01T08:00:00+00:00'

    Raises:
        InvalidOption: An option is invalid.
        InvalidSchedule: There is neither a rule nor an instant.
        NaiveDatetime: An instant has no time zone.
    """

    job: JobRef
    rule: Rule | None = None
    at: When | None = None
    name: str = ""
    tenant: str = ""
    timezone: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    expires: Length | None = None
    overlap: Overlap | str | None = None
    misfire: Misfire | str | None = None
    grace: Length | None = None
    jitter: Length | None = None
    expect_within: Length | None = None
    until: When | None = None
    max_firings: int | None = None
    target: str | None = None
    tags: Iterable[str] = ()

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in convert_options(given).items():
            object.__setattr__(self, name, value)
        if self.rule is None and self.at is None:
            raise InvalidSchedule(
                "A schedule needs a rule or an instant.",
                fix="Pass rule='0 9 * * *', or at=... to run it once.",
            )
        if self.rule is None and self.max_firings is not None:
            raise InvalidOption("max_firings", self.max_firings, "must not be given without a rule")

    @property
    def starts_at(self) -> datetime | None:
        """``at`` in UTC."""
        return None if self.at is None else as_instant(self.at)

    @property
    def ends_at(self) -> datetime | None:
        """``until`` in UTC."""
        return None if self.until is None else as_instant(self.until)


OPTIONS: Final = frozenset(ScheduleChanges.__annotations__)


def check_options(given: Iterable[str], *, known: Iterable[str] = OPTIONS) -> None:
    """Check that these options exist.

    Raises:
        UnknownOption: One does not; the error suggests a close name.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            raise UnknownOption("A schedule", name, known=names)


def convert_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check options and convert them to the types that are stored.

    Raises:
        InvalidOption: An option is invalid.
        NaiveDatetime: An instant has no time zone.
    """
    converted = dict(given)
    for name, value in given.items():
        if name in _CONVERTERS and value is not None:
            converted[name] = _CONVERTERS[name](name, value)
    for name, unset in (("name", ""), ("tenant", ""), ("target", None)):
        if given.get(name, unset) != unset:
            check_name(name, given[name])
    if "tags" in given:
        converted["tags"] = _tags(given["tags"])
    if "args" in given:
        converted["args"] = _args(given["args"])
    return converted


def _by_builder(name: str, value: Any) -> Any:
    return getattr(getattr(OptionCollector(), name)(value).options, name)


def _instant(name: str, value: Any) -> datetime:
    return as_instant(value, option=name)


def _count(_: str, value: Any) -> int:
    check_firings(value)
    return int(value)


_BY_BUILDER: Final = (
    "queue", "priority", "expires", "overlap", "misfire", "jitter", "expect_within",
)  # fmt: skip
_CONVERTERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(_BY_BUILDER, _by_builder),
    **dict.fromkeys(("at", "until"), _instant),
    "grace": lambda _, value: as_duration(value),
    "max_firings": _count,
    "timezone": lambda _, value: Zone.named(value).name,
}


def _tags(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable):
        raise InvalidOption("tags", given, "must be a list of strings")
    return tuple(given)


def _args(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidOption(
            "args", given, "must map names to values", fix='Write args={"to": "ann"}.'
        )
    return dict(given)
