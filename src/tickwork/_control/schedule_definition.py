"""The definition of a schedule that is created at run time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict

from tickwork._define.option_table import OF_SCHEDULES, PARSERS
from tickwork._define.options import Duration
from tickwork._dispatch.job_lookup import JobRef
from tickwork._domain.job import Misfire, Overlap
from tickwork._domain.names import check_name
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.zones import Zone
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption, InvalidSchedule, UnknownOption

RuleOrText: TypeAlias = Rule | str
"""A rule of ``tickwork.schedules``, a cron expression, a symbol, a pattern or a chain as text, or
what ``to_text`` wrote."""


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule besides its job and rule. None: the option of the job."""

    args: Mapping[str, Any]
    queue: str | None
    priority: int | None
    expires: Duration | None
    overlap: Overlap | str | None
    misfire: Misfire | str | None
    grace: Duration | None
    jitter: Duration | None
    expect_within: Duration | None
    until: When | None
    max_firings: int | None
    target: str | None
    tags: Iterable[str]


class ScheduleChanges(ScheduleOptions, total=False):
    """The options that ``update`` can change."""

    job: JobRef
    rule: RuleOrText
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
    rule: RuleOrText | None = None
    at: When | None = None
    name: str = ""
    tenant: str = ""
    timezone: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    expires: Duration | None = None
    overlap: Overlap | str | None = None
    misfire: Misfire | str | None = None
    grace: Duration | None = None
    jitter: Duration | None = None
    expect_within: Duration | None = None
    until: When | None = None
    max_firings: int | None = None
    target: str | None = None
    tags: Iterable[str] = ()

    def __post_init__(self) -> None:
        options = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in convert_options(options).items():
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


def check_options(option_names: Iterable[str], *, known: Iterable[str] = OPTIONS) -> None:
    """Check that these options exist.

    Raises:
        UnknownOption: One does not; the error suggests a close name.
    """
    names = sorted(known)
    for name in option_names:
        if name not in names:
            raise UnknownOption("A schedule", name, known=names)


def convert_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options and convert them to the types that are stored.

    Raises:
        InvalidOption: An option is invalid.
        NaiveDatetime: An instant has no time zone.
    """
    converted = dict(options)
    for name, value in options.items():
        if value is None and name in _UNSET:
            converted[name] = _UNSET[name]()
        elif value is not None and name in _CONVERTERS:
            converted[name] = _CONVERTERS[name](name, value)
    for name in ("name", "tenant"):
        if options.get(name, "") != "":
            check_name(name, options[name])
    return converted


_UNSET: Final[Mapping[str, Callable[[], Any]]] = {"args": dict, "tags": tuple}
"""What None means for options that cannot be unset."""

_CONVERTERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **{option.name: PARSERS[option.name] for option in OF_SCHEDULES},
    "at": PARSERS["at"],
    "timezone": lambda _, value: Zone.named(value).name,
}
