"""The parameters of requests: one declaration reads them, and documents them in OpenAPI."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

from tickwork._config.rule_text import store_form
from tickwork._domain.names import NAME_MAX
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.run_search import parse_argument
from tickwork._kernel.durations import DURATION_PATTERN, parse_duration
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import TickworkError

TEXT_MAX: Final = 1_000
BODY_MAX: Final = 4 * 2**20
INTEGER_MAX: Final = 2**31 - 1
KEY_MAX: Final = 200
KEY_HEADER: Final = "Idempotency-Key"
ID_PATTERN: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# Half of a surrogate pair is refused, too: not every dialect of patterns can express that.
TEXT_PATTERN: Final = "^[^\\x00-\\x1f\\x7f]*$"
ARGUMENT_PATTERN: Final = (
    "^[^.=\\x00-\\x1f\\x7f]+(\\.[^.=\\x00-\\x1f\\x7f]+)*=[^\\x00-\\x1f\\x7f]*$"
)
ETAGS_PATTERN: Final = '^([*]|"[!#-~]*"(, *"[!#-~]*")*)$'
_ETAGS: Final = re.compile(ETAGS_PATTERN)
_ID: Final = re.compile(ID_PATTERN)
_KEY: Final = re.compile("[!-~]+")
_BAD_TEXT: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True, eq=False)  # by identity: annotations must be hashable
class FieldKind:
    """The JSON schema of a value, and the function that reads it from JSON or from a URL."""

    schema: Mapping[str, Any]
    parse: Callable[[Any, bool], Any]  # the value, and whether it is text of a URL


class Place(NamedTuple):
    """Where a request has a value: path, query, header or body. A header has its own name."""

    name: str
    header: str = ""


PATH: Final = Place("path")
ALERT_CURSOR_PATTERN: Final = "^[0-9]{1,16}[|][0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
QUERY: Final = Place("query")
BODY: Final = Place("body")


class InputField(NamedTuple):
    """One parameter of a request."""

    name: str
    kind: FieldKind
    description: str
    is_required: bool = False
    place: Place = QUERY
    parameter: str = ""  # of the function, where a header has another name


def _parse_text(value: Any, _: bool) -> str:  # noqa: FBT001  # see FieldKind
    if not isinstance(value, str) or len(value) > TEXT_MAX or _BAD_TEXT.search(value):
        raise ValueError(f"a text of at most {TEXT_MAX:,} characters without control characters")
    return value


def _parse_name(value: Any, is_text: bool) -> str:  # noqa: FBT001
    text = _parse_text(value, is_text)
    if not text:
        raise ValueError("a text that is not empty")
    return text


def _parse_key(value: Any, _: bool) -> str:  # noqa: FBT001
    if not isinstance(value, str) or not _KEY.fullmatch(value) or len(value) > KEY_MAX:
        raise ValueError(f"1 to {KEY_MAX} visible ASCII characters")
    return value


def _parse_id(value: Any, _: bool) -> str:  # noqa: FBT001
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError("an id such as 019b76da-a800-7000-8000-000000000001")
    return value


def _integer(least: int, most: int) -> FieldKind:
    def parse(value: Any, is_text: bool) -> int:  # noqa: FBT001
        if is_text and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}", value):
            value = int(value)
        if isinstance(value, float) and value.is_integer():  # 1.0 is an integer in JSON Schema
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"an integer between {least:,} and {most:,}")
        return value

    return FieldKind({"type": "integer", "minimum": least, "maximum": most}, parse)


def _parse_boolean(value: Any, is_text: bool) -> bool:  # noqa: FBT001
    if is_text:
        value = {"true": True, "false": False}.get(value)
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004  # all of these are problems of a value
    return value


def _parse_instant(value: Any, _: bool) -> datetime:  # noqa: FBT001
    rule = "a time with an offset, such as 2026-03-01T09:00:00+00:00"
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(rule) from None
    if found.tzinfo is None:
        raise ValueError(rule)
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise ValueError(rule) from None


def _parse_duration(value: Any, _: bool) -> timedelta:  # noqa: FBT001
    rule = "a duration such as 90s, 5m or 2h"
    if not isinstance(value, str) or len(value) > 100:
        raise ValueError(rule)
    try:
        return parse_duration(value)
    except TickworkError:
        raise ValueError(rule) from None


def _parse_status(value: Any, _: bool) -> RunStatus:  # noqa: FBT001
    try:
        return RunStatus(value)
    except ValueError:
        raise ValueError(f"one of {', '.join(RunStatus)}") from None


def _parse_argument(value: Any, is_text: bool) -> str:  # noqa: FBT001
    text = _parse_text(value, is_text)
    try:
        parse_argument(text)
    except TickworkError:
        raise ValueError("a name and a value, such as customer=42") from None
    return text


def _parse_etags(value: Any, _: bool) -> str:  # noqa: FBT001
    if not isinstance(value, str) or len(value) > KEY_MAX or not _ETAGS.fullmatch(value):
        raise ValueError('an ETag, such as "1-19b76da"')
    return value


def _parse_cursor(value: Any, is_text: bool) -> str:  # noqa: FBT001
    text = _parse_text(value, is_text)
    if "|" not in text:
        raise ValueError("the cursor of a page")
    return text


def _parse_alert_cursor(value: Any, _: bool) -> str:  # noqa: FBT001
    if not isinstance(value, str) or not re.fullmatch(ALERT_CURSOR_PATTERN, value):
        raise ValueError("the cursor of a page")
    return value


def _parse_object(value: Any, _: bool) -> dict[str, Any]:  # noqa: FBT001
    if not isinstance(value, dict):
        raise ValueError("a JSON object")  # noqa: TRY004
    for name in value:
        _parse_text(name, False)
    return value


def _parse_rule(value: Any, is_text: bool) -> str:  # noqa: FBT001
    if not isinstance(value, dict):
        return _parse_name(value, is_text)
    try:
        return store_form(value)
    except RecursionError:
        raise ValueError("a rule that is nested less deeply") from None


def _list_of(kind: FieldKind, most: int) -> FieldKind:
    def parse(value: Any, is_text: bool) -> list[Any]:  # noqa: FBT001
        if not isinstance(value, list) or len(value) > most:
            raise ValueError(f"a list of at most {most} values")
        return [kind.parse(each, is_text) for each in value]

    return FieldKind({"type": "array", "items": kind.schema, "maxItems": most}, parse)


def choice_of(values: Iterable[str]) -> FieldKind:
    """One of a few texts."""
    known = [str(value) for value in values]

    def parse(value: Any, _: bool) -> str:  # noqa: FBT001
        if value not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return str(value)

    return FieldKind({"type": "string", "enum": known}, parse)


def names_of(values: Sequence[str]) -> FieldKind:
    """A list of some of these texts."""
    return _list_of(choice_of(values), len(values))


TEXT: Final = FieldKind(
    {"type": "string", "maxLength": TEXT_MAX, "pattern": TEXT_PATTERN}, _parse_text
)
NAME: Final = FieldKind({**TEXT.schema, "minLength": 1}, _parse_name)
SHORT_NAME: Final = FieldKind({**NAME.schema, "maxLength": NAME_MAX}, _parse_name)
RUN_ID: Final = FieldKind({"type": "string", "pattern": ID_PATTERN}, _parse_id)
BOOLEAN: Final = FieldKind({"type": "boolean"}, _parse_boolean)
INSTANT: Final = FieldKind({"type": "string", "format": "date-time"}, _parse_instant)
DURATION: Final = FieldKind(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": 100,
        "pattern": DURATION_PATTERN,
        "examples": ["90s", "5m", "2h"],
    },
    _parse_duration,
)
STATUS: Final = FieldKind({"type": "string", "enum": list(RunStatus)}, _parse_status)
STATUSES: Final = _list_of(STATUS, 20)
TAGS: Final = _list_of(NAME, 50)
ARGUMENTS: Final = _list_of(
    FieldKind({**TEXT.schema, "pattern": ARGUMENT_PATTERN}, _parse_argument), 10
)
OBJECT: Final = FieldKind({"type": "object"}, _parse_object)
RULE: Final = FieldKind({"anyOf": [NAME.schema, {"type": "object"}]}, _parse_rule)
LIMIT: Final = _integer(1, 500)
PRIORITY: Final = _integer(-32_767, 32_767)
SLOTS: Final = _integer(0, 1_000_000)
COUNT: Final = _integer(1, 100)
DAYS: Final = _integer(1, 31)
HISTORY: Final = _integer(1, 366)
FIRINGS: Final = _integer(1, 1_000_000)
REVISION: Final = _integer(1, INTEGER_MAX)
CURSOR: Final = FieldKind({**TEXT.schema, "pattern": "^[^|\\x00-\\x1f\\x7f]*[|]"}, _parse_cursor)
ALERT_CURSOR: Final = FieldKind(
    {"type": "string", "pattern": ALERT_CURSOR_PATTERN}, _parse_alert_cursor
)
KEY: Final = FieldKind(
    {"type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": "^[!-~]+$"}, _parse_key
)

# The types of parameters. An annotation may add another description, or another place.
Text: TypeAlias = Annotated[str, TEXT]
Name: TypeAlias = Annotated[str, NAME]
Instant: TypeAlias = Annotated[datetime, INSTANT]
Duration: TypeAlias = Annotated[timedelta, DURATION]
Named: TypeAlias = Annotated[Name, "The name."]
NamedShort: TypeAlias = Annotated[str, SHORT_NAME, "The name."]
Tenant: TypeAlias = Annotated[Text, "The tenant.", QUERY]
Key: TypeAlias = Annotated[
    str,
    KEY,
    "A request that is repeated with its key within a day does nothing.",
    Place("header", KEY_HEADER),
]


ETAGS: Final = FieldKind(
    {"type": "string", "maxLength": KEY_MAX, "pattern": ETAGS_PATTERN}, _parse_etags
)
IfMatch: TypeAlias = Annotated[
    str,
    ETAGS,
    "Change it only if its ETag is one of these.",
    Place("header", "If-Match"),
]


def fields_of(declared: type, place: Place = QUERY) -> tuple[InputField, ...]:
    """The optional fields that a TypedDict declares."""
    hints = get_type_hints(declared, include_extras=True)
    return tuple(read_annotation(name, hint, place=place) for name, hint in hints.items())


def read_annotation(name: str, hint: Any, *, place: Place, is_required: bool = False) -> InputField:
    """The field that an annotation declares: of several descriptions or places, the last one."""
    kind, description = None, ""
    for each in _metadata_of(hint):
        if isinstance(each, FieldKind):
            kind = each
        elif isinstance(each, Place):
            place = each
        else:
            description = each
    assert kind is not None, name
    assert description, name
    return InputField(place.header or name, kind, description, is_required, place, name)


def _metadata_of(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Annotated:
        yield from _metadata_of(hint.__origin__)
        yield from hint.__metadata__
    else:
        for each in get_args(hint):  # of a union
            yield from _metadata_of(each)


def read_query(
    fields: Sequence[InputField], items: Iterable[tuple[str, str]], *, is_form: bool = True
) -> dict[str, Any]:
    """Read the parameters of a URL. In those of a form, an empty value counts as missing."""
    values: dict[str, Any] = {}
    known = {field.name: field for field in fields}
    for name, value in items:
        if name not in known:
            raise ProblemError(
                422,
                f"There is no parameter {name[:TEXT_MAX]!r}.",
                field=name[:TEXT_MAX],
                fix=f"The parameters are: {', '.join(known) or 'none'}.",
            )
        if is_form and value == "":
            continue
        if known[name].kind.schema.get("type") == "array":
            values.setdefault(name, []).append(value)
        elif name in values:
            raise ProblemError(422, f"{name} must be given once.", field=name)
        else:
            values[name] = value
    return _parse_all(fields, values, is_text=True)


def read_body(fields: Sequence[InputField], body: bytes) -> dict[str, Any]:
    """Read a JSON object. Without a body, all fields are missing."""
    given: Any = parse_json(body) if body.strip() else {}
    if not isinstance(given, dict):
        raise ProblemError(422, "The body must be a JSON object.")
    known = {field.name for field in fields}
    for name in given:
        if name not in known:
            raise ProblemError(
                422,
                f"There is no field {name[:TEXT_MAX]!r}.",
                field=name[:TEXT_MAX].encode(errors="backslashreplace").decode(),
                fix=f"The fields are: {', '.join(sorted(known)) or 'none'}.",
            )
    return _parse_all(fields, given, is_text=False)


def parse_json(body: bytes) -> Any:
    """Read the JSON of a body, without NaN and Infinity, which are no JSON."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ProblemError(400, "The body is not valid JSON.") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


def _parse_all(
    fields: Sequence[InputField], values: Mapping[str, Any], *, is_text: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        if field.name not in values:
            if field.is_required:
                raise ProblemError(422, f"{field.name} must be given.", field=field.name)
            continue
        try:
            found[field.name] = field.kind.parse(values[field.name], is_text)
        except ValueError as error:
            raise ProblemError(422, f"{field.name} must be {error}.", field=field.name) from None
    return found
