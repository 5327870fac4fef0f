"""A schedule that is made at run time, as a value: which job, when, and how."""

from collections.abc import Iterable, Mapping
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
"""A rule of ``tickwork.schedules``, a cron expression, a symbol, or what ``to_text`` wrote."""


class ScheduleOptions(TypedDict, total=False):
    """What can be said about a schedule besides its job and when. None: as the job says."""

    args: Mapping[str, Any]
    queue: str | None
    priority: int | None
    expires: Length | None
    overlap: Overlap | str | None
    misfire: Misfire | str | None
    grace: Length | None
    jitter: Length | None
    until: When | None
    max_firings: int | None
    target: str | None
    tags: Iterable[str]


class ScheduleChanges(ScheduleOptions, total=False):
    """What can be said anew about a schedule that is there."""

    job: JobRef
    rule: Rule
    at: When
    timezone: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDefinition:
    """What ``app.schedules.create`` makes a schedule of.

    ``rule`` says how often. ``at`` alone is once; with a rule it is where that begins, and
    ``daily()`` from nine o'clock on is daily at nine. Without a name, one is derived from
    everything else, so that the same definition given twice is one schedule.

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
        InvalidOption: An option is outside its limits.
        InvalidSchedule: It says nothing about when.
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
    until: When | None = None
    max_firings: int | None = None
    target: str | None = None
    tags: Iterable[str] = ()

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in checked(given).items():
            object.__setattr__(self, name, value)
        if self.rule is None and self.at is None:
            raise InvalidSchedule(
                "A schedule says when: this one has neither a rule nor an instant.",
                fix="Give it rule='0 9 * * *', or at=... for once.",
            )
        if self.rule is None and self.max_firings is not None:
            raise InvalidOption("max_firings", self.max_firings, "must not be given without a rule")

    @property
    def starts_at(self) -> datetime | None:
        """The instant that was named, in UTC."""
        return None if self.at is None else as_instant(self.at)

    @property
    def ends_at(self) -> datetime | None:
        """The last instant at which it may fire, in UTC."""
        return None if self.until is None else as_instant(self.until)


OPTIONS: Final = frozenset(ScheduleChanges.__annotations__)
_WORDS: Final = ("queue", "priority", "expires", "overlap", "jitter")
_INSTANTS: Final = ("at", "until")


def check_options(given: Iterable[str], *, known: Iterable[str] = OPTIONS) -> None:
    """See that there are such options.

    Raises:
        InvalidOption: There is no option of that name; the close one is suggested.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            raise UnknownOption("A schedule", name, known=names)


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, each checked and in the form in which it is kept.

    Raises:
        InvalidOption: One is outside its limits.
        NaiveDatetime: An instant has no time zone.
    """
    kept = dict(given)
    said = {name: value for name, value in given.items() if value is not None}
    for name in _WORDS:
        if name in said:
            # The words of the builder check what they are given.
            kept[name] = getattr(getattr(OptionCollector(), name)(said[name]).options, name)
    for name in _INSTANTS:
        if name in said:
            kept[name] = as_instant(said[name], option=name)
    if "misfire" in said:
        kept["misfire"] = OptionCollector().misfire(said["misfire"]).options.misfire
    if "grace" in said:
        kept["grace"] = as_duration(said["grace"])
    if "max_firings" in said:
        check_firings(said["max_firings"])
    if "timezone" in said:
        kept["timezone"] = Zone.named(said["timezone"]).name
    for name, empty in (("name", ""), ("tenant", ""), ("target", None)):
        if given.get(name, empty) != empty:
            check_name(name, given[name])
    if "tags" in given:
        kept["tags"] = _tags(given["tags"])
    if "args" in given:
        kept["args"] = _args(given["args"])
    return kept


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
