"""The options of jobs, schedules and dispatches: one row for each.

Everything that lists options reads this table: builders, the decorator, configuration files,
``app.schedules``, the forms and endpoints of the dashboard, the command line and the page with the
reference. What type checkers read (methods, keywords, fields) is written out beside it, and a test
compares both. CONTRIBUTING.md has the steps to add an option.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, Flag, auto
from typing import Any, Final

from tickwork._domain.job import RANGES, Misfire, Overlap, check_priority, check_tags
from tickwork._domain.names import check_name
from tickwork._domain.ranges import Range
from tickwork._domain.schedules.bounds import check_firings
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import as_instant
from tickwork.errors import InvalidDuration, InvalidOption, suggest


class Scope(Flag):
    """What has an option."""

    JOB = auto()  # @app.job, the builder, [[jobs]]
    APPLICATION = auto()  # JobDefaults, [defaults]
    CODE_SCHEDULE = auto()  # one more schedule of a job: the builder, [[schedules]]
    SCHEDULE = auto()  # app.schedules, the API, the pages
    DISPATCH = auto()  # a draft, the API, tickwork dispatch


class Kind(Enum):
    """What a value is, in words for people."""

    TEXT = "text"
    INTEGER = "number"
    LENGTH = "length of time"
    INSTANT = "instant"
    CHOICE = "choice"
    NAMES = "names"
    ARGUMENTS = "arguments by name"
    FUNCTIONS = "functions"
    ERRORS = "exception types"
    SEVERAL = "several values"


class Default(Enum):
    """What a schedule has that is created without the option."""

    NONE = auto()
    COPIED = auto()  # the option of the job, copied when the schedule is created
    AT_FIRING = auto()  # the option of the job at each firing


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. ``parse`` converts and checks a value where it is set.

    An option without ``parse`` has several values: the method of the builder has its parameters.
    ``column`` is the field of a stored schedule. In forms an option has a ``label``, and a
    ``hint`` where it is empty. A listed option is in the list of schedules.
    """

    name: str
    scope: Scope
    kind: Kind
    help: str
    parse: Callable[[str, Any], Any] | None = None
    choices: tuple[str, ...] = ()
    default: Default = Default.NONE
    column: str = ""
    is_listed: bool = False
    label: str = ""
    hint: str = ""

    @property
    def range(self) -> Range | None:
        """The numbers or lengths of time that it may have."""
        return RANGES.get(self.name)

    @property
    def is_single(self) -> bool:
        """Whether it is set with one value that replaces the one before."""
        return self.kind not in {Kind.ARGUMENTS, Kind.NAMES}


# ---------------------------------------------------------------- parsers


def as_length(option: str, value: Any) -> timedelta:
    """Convert the value of an option that is a length of time.

    Raises:
        InvalidDuration: It is not a length of time.
        InvalidOption: It is too short or too long for this option.
    """
    try:
        length = as_duration(value)
    except InvalidDuration as error:
        raise InvalidDuration(error.text, error.reason, option=option) from None
    if option in RANGES:
        RANGES[option].check(option, length)
    return length


def as_integer(option: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOption(option, value, "must be an integer")
    if option in RANGES:
        RANGES[option].check(option, value)
    return value


def as_choice(option: str, value: Any, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = [member.value for member in kind]
        rule = f"must be one of {', '.join(known)}"
        raise InvalidOption(option, value, rule, fix=suggest(value, known)) from None


def _as_priority(_: str, value: Any) -> int:
    return check_priority(value)


def _as_queue(option: str, value: Any) -> str:
    return check_name(option, value, forbidden="=")


def _as_overlap(option: str, value: Any) -> Overlap:
    chosen: Overlap = as_choice(option, value, Overlap)
    return chosen


def _as_misfire(option: str, value: Any) -> Misfire:
    chosen: Misfire = as_choice(option, value, Misfire)
    return chosen


def _as_instant(option: str, value: Any) -> datetime:
    return as_instant(value, option=option)


def _as_firings(_: str, value: Any) -> int:
    check_firings(value)
    return int(value)


def _as_tags(option: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return check_tags((value,))
    if not isinstance(value, Iterable):
        raise InvalidOption(option, value, "must be a list of strings")
    return check_tags(tuple(value))


def _as_arguments(option: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidOption(
            option, value, "must map names to values", fix='Write args={"to": "ann"}.'
        )
    return dict(value)


# ---------------------------------------------------------------- the table

_ANY_JOB: Final = Scope.JOB | Scope.APPLICATION
_EVERYWHERE: Final = _ANY_JOB | Scope.CODE_SCHEDULE | Scope.SCHEDULE

OPTIONS: Final = (
    Option(
        name="args",
        scope=Scope.JOB | Scope.CODE_SCHEDULE | Scope.SCHEDULE | Scope.DISPATCH,
        kind=Kind.ARGUMENTS,
        parse=_as_arguments,
        column="args",
        help="The arguments of the handler, by name.",
    ),
    Option(
        name="queue",
        scope=_EVERYWHERE | Scope.DISPATCH,
        kind=Kind.TEXT,
        parse=_as_queue,
        default=Default.AT_FIRING,
        column="queue",
        is_listed=True,
        label="Queue",
        hint="the job's",
        help="The queue of the runs.",
    ),
    Option(
        name="priority",
        scope=_EVERYWHERE | Scope.DISPATCH,
        kind=Kind.INTEGER,
        parse=_as_priority,
        default=Default.AT_FIRING,
        column="priority",
        is_listed=True,
        label="Priority",
        hint="the job's",
        help="Priority: lower numbers run first.",
    ),
    Option(
        name="expires",
        scope=_EVERYWHERE | Scope.DISPATCH,
        kind=Kind.LENGTH,
        parse=as_length,
        default=Default.AT_FIRING,
        column="expires",
        label="Expires after",
        hint="never",
        help="Skip a run that starts later than this.",
    ),
    Option(
        name="overlap",
        scope=_EVERYWHERE,
        kind=Kind.CHOICE,
        parse=_as_overlap,
        choices=tuple(Overlap),
        default=Default.COPIED,
        column="overlap",
        is_listed=True,
        label="If the last run is unfinished",
        help="If the last run has not finished.",
    ),
    Option(
        name="misfire",
        scope=_EVERYWHERE,
        kind=Kind.CHOICE,
        parse=_as_misfire,
        choices=tuple(Misfire),
        default=Default.COPIED,
        column="misfire",
        is_listed=True,
        label="If no worker was running",
        help="If no worker ran at the time.",
    ),
    Option(
        name="grace",
        scope=Scope.SCHEDULE,
        kind=Kind.LENGTH,
        parse=as_length,
        default=Default.COPIED,
        column="grace",
        label="Grace",
        hint="60s",
        help="Later than this, a firing counts as missed.",
    ),
    Option(
        name="jitter",
        scope=_EVERYWHERE,
        kind=Kind.LENGTH,
        parse=as_length,
        default=Default.COPIED,
        column="jitter",
        label="Jitter",
        hint="2m",
        help="Delay each run by a random time up to this.",
    ),
    Option(
        name="expect_within",
        scope=_EVERYWHERE,
        kind=Kind.LENGTH,
        parse=as_length,
        default=Default.COPIED,
        column="expect_within",
        label="Alert if not completed within",
        hint="30m",
        help="Alert if a firing has not completed by then.",
    ),
    Option(
        name="until",
        scope=Scope.SCHEDULE,
        kind=Kind.INSTANT,
        parse=_as_instant,
        column="until",
        is_listed=True,
        label="Until",
        hint="2027-01-01T00:00+00:00",
        help="The last time at which it may fire.",
    ),
    Option(
        name="max_firings",
        scope=Scope.SCHEDULE,
        kind=Kind.INTEGER,
        parse=_as_firings,
        label="Firings at most",
        hint="no limit",
        help="How often it fires at most.",
    ),
    Option(
        name="target",
        scope=Scope.SCHEDULE | Scope.DISPATCH,
        kind=Kind.TEXT,
        parse=check_name,
        column="target",
        is_listed=True,
        label="Target",
        help="The object in your application that the runs are about.",
    ),
    Option(
        name="tags",
        scope=_EVERYWHERE | Scope.DISPATCH,
        kind=Kind.NAMES,
        parse=_as_tags,
        column="tags",
        is_listed=True,
        label="Tags, separated by commas",
        help="Tags of its runs.",
    ),
    Option(
        name="delay",
        scope=Scope.DISPATCH,
        kind=Kind.LENGTH,
        help="Run this long after the dispatch.",
    ),
    Option(
        name="at",
        scope=Scope.DISPATCH,
        kind=Kind.INSTANT,
        parse=_as_instant,
        help="Run at this time.",
    ),
    Option(
        name="tenant",
        scope=Scope.DISPATCH,
        kind=Kind.TEXT,
        help="The tenant of the run. Unique keys apply within one tenant.",
    ),
    Option(
        name="unique",
        scope=Scope.JOB | Scope.DISPATCH,
        kind=Kind.TEXT,
        help="Add no second run while one with the same key is unfinished.",
    ),
    Option(
        name="debounce",
        scope=Scope.JOB | Scope.DISPATCH,
        kind=Kind.LENGTH,
        help="Run once, this long after the last dispatch with the same key.",
    ),
    Option(
        name="attempts",
        scope=_ANY_JOB,
        kind=Kind.INTEGER,
        parse=as_integer,
        help="How often a run is tried, the first attempt included.",
    ),
    Option(
        name="delays",
        scope=_ANY_JOB,
        kind=Kind.SEVERAL,
        help="The delay after each failed attempt.",
    ),
    Option(
        name="retries",
        scope=_ANY_JOB,
        kind=Kind.SEVERAL,
        help="The number of attempts and the formula of the delays between them.",
    ),
    Option(
        name="retry_on",
        scope=_ANY_JOB,
        kind=Kind.ERRORS,
        help="Retry only after these exceptions.",
    ),
    Option(
        name="dont_retry_on",
        scope=_ANY_JOB,
        kind=Kind.ERRORS,
        help="Do not retry after these exceptions.",
    ),
    Option(
        name="timeout",
        scope=_ANY_JOB,
        kind=Kind.LENGTH,
        parse=as_length,
        help="How long one attempt may take.",
    ),
    Option(
        name="lease",
        scope=_ANY_JOB,
        kind=Kind.LENGTH,
        parse=as_length,
        help="How long a claim lasts without a heartbeat of its worker.",
    ),
    Option(
        name="crashes",
        scope=_ANY_JOB,
        kind=Kind.INTEGER,
        parse=as_integer,
        help="How often a run may crash its worker before it is failed_permanent.",
    ),
    Option(
        name="engine",
        scope=_ANY_JOB,
        kind=Kind.TEXT,
        help="Where attempts run.",
    ),
    Option(
        name="history",
        scope=_ANY_JOB,
        kind=Kind.LENGTH,
        parse=as_length,
        help="How long finished runs are kept.",
    ),
    Option(
        name="results",
        scope=_ANY_JOB,
        kind=Kind.LENGTH,
        parse=as_length,
        help="How long results are kept, if that is shorter than the history.",
    ),
    Option(
        name="keep",
        scope=_ANY_JOB,
        kind=Kind.CHOICE,
        help="Which finished runs are kept for longer than the history.",
    ),
    Option(
        name="concurrency",
        scope=Scope.JOB,
        kind=Kind.SEVERAL,
        help="How many run at a time, across all workers.",
    ),
    Option(
        name="rate",
        scope=Scope.JOB,
        kind=Kind.SEVERAL,
        help="How many start per unit of time, across all workers.",
    ),
    Option(
        name="aliases",
        scope=Scope.JOB,
        kind=Kind.NAMES,
        help="Former names of the job.",
    ),
    Option(
        name="on_missed",
        scope=Scope.JOB | Scope.CODE_SCHEDULE,
        kind=Kind.FUNCTIONS,
        help="Called when a firing did not complete within expect_within.",
    ),
    Option(
        name="when",
        scope=Scope.JOB,
        kind=Kind.FUNCTIONS,
        help="A run starts only if these return True.",
    ),
    Option(
        name="skip",
        scope=Scope.JOB,
        kind=Kind.FUNCTIONS,
        help="A run is skipped if one of these returns True.",
    ),
    Option(
        name="on_before",
        scope=Scope.JOB,
        kind=Kind.FUNCTIONS,
        help="Called before each attempt.",
    ),
    Option(
        name="on_success",
        scope=Scope.JOB,
        kind=Kind.FUNCTIONS,
        help="Called after an attempt that succeeded.",
    ),
    Option(
        name="on_error",
        scope=Scope.JOB,
        kind=Kind.FUNCTIONS,
        help="Called after an attempt that failed or timed out.",
    ),
    Option(
        name="on_after",
        scope=Scope.JOB,
        kind=Kind.FUNCTIONS,
        help="Called after every attempt.",
    ),
)


def options_of(scope: Scope) -> tuple[Option, ...]:
    """The options that something of this scope has, in the order of the table."""
    return tuple(option for option in OPTIONS if scope in option.scope)


def names_of(scope: Scope) -> tuple[str, ...]:
    return tuple(option.name for option in options_of(scope))


PARSERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    option.name: option.parse for option in OPTIONS if option.parse is not None
}
OF_SCHEDULES: Final = options_of(Scope.SCHEDULE)
POLICIES: Final = tuple(each.name for each in OF_SCHEDULES if each.default is Default.COPIED)
"""Options that are copied from the job when the schedule is created without them."""

FROM_THE_JOB: Final = tuple(each.name for each in OF_SCHEDULES if each.default is Default.AT_FIRING)
"""Options that each firing takes from the job, unless the schedule has its own."""

OWN: Final = tuple(
    each.name
    for each in OF_SCHEDULES
    if each.column and each.default is Default.NONE and each.kind is not Kind.ARGUMENTS
)
"""Options that a schedule does not take from its job."""

UNSETTABLE: Final = tuple(each.name for each in OF_SCHEDULES if each.is_single)
"""Options of a schedule that can get their default, or that of the job, again."""

OF_ONE_DISPATCH: Final = tuple(each.name for each in options_of(Scope.DISPATCH) if each.is_single)
"""Options of a dispatch that have one value: tags and arguments are added up."""
