"""Everything that an application can be told, read once."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tickwork._define.handlers import is_path
from tickwork._domain.schedules.zones import Zone
from tickwork._kernel.codec import SIZE_MAX
from tickwork._kernel.durations import as_duration
from tickwork.errors import InvalidOption, mask_url

if TYPE_CHECKING:
    # Whoever has no file need not load what reads one.
    from tickwork._define.toml_document import Document

URL_DEFAULT: Final = "sqlite:///tickwork.db"
PAYLOAD_LIMIT: Final = 16 * 1024 * 1024
RETIRE_AFTER: Final = timedelta(days=7)
TABLE: Final = "tickwork"
"""The table of a configuration file that holds settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an application was told: arguments beat environment beats file beats defaults."""

    url: str = URL_DEFAULT
    timezone: str = "UTC"
    is_installing: bool = False  # create or upgrade the tables on first use
    handler_paths: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    payload_max: int = SIZE_MAX
    retire_after: timedelta = RETIRE_AFTER
    config: str = ""  # the file that was read, if one was
    said: frozenset[str] = field(default=frozenset(), compare=False)  # by arguments, environment
    sources: Mapping[str, str] = field(  # where each value came from; the others are defaults
        default_factory=dict, compare=False
    )


def read_settings(
    given: Mapping[str, Any],
    *,
    package: str,
    file: Mapping[str, Any] = MappingProxyType({}),
    config: str = "",
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Arguments first, then the environment, then the file, then defaults.

    SQLite installs itself: it is one file, and nobody else's. Servers are asked only if told.
    ``package`` is the one whose handlers rows may name, if nobody says otherwise.

    Raises:
        InvalidOption: Something that was said cannot be.
    """
    said = {name: taken(name, value) for name, value in given.items() if _is_said(value)}
    sources = {**dict.fromkeys(file, config or "a file"), **dict.fromkeys(said, "the program")}
    for name, variable in VARIABLES.items():
        if name not in said and environ.get(variable):
            said[name] = _parsed(name, variable, environ[variable])
            sources[name] = variable
    found = {**file, **said}
    found.setdefault("handler_paths", (package,))
    url = found.get("url", URL_DEFAULT)
    is_embedded = url.partition(":")[0] in {"sqlite", "memory"}
    is_installing = found.pop("install", is_embedded)
    return Settings(
        **found,
        is_installing=is_installing,
        config=config,
        said=frozenset(said),
        sources=MappingProxyType(sources),
    )


def taken(name: str, value: Any) -> Any:
    """One setting as it is kept.

    Raises:
        InvalidOption: It cannot be that.
    """
    return _TAKEN[name](name, value)


def settings_in(document: "Document") -> dict[str, Any]:
    """The settings in a file; what is wrong is noted in the document."""
    table = document.table((TABLE,), document.content.get(TABLE, {}))
    document.check_keys((TABLE,), table, (*_TAKEN, "app"))
    found = {}
    for name, value in table.items():
        with document.reporting((TABLE, name)):
            if name in _TAKEN:
                found[name] = taken(name, value)
            elif name == "app":
                app_in(document)
    return found


def app_in(document: "Document") -> str | None:
    """The application that a file names for the command line: ``module:attribute``.

    Raises:
        InvalidOption: It is no such path.
    """
    table = document.content.get(TABLE, {})
    path = table.get("app") if isinstance(table, dict) else None
    if path is not None and not (isinstance(path, str) and is_path(path)):
        raise InvalidOption(
            "app", path, "must be an import path", fix="Write 'package.module:app'."
        )
    return path


def note_late_settings(document: "Document", settings: Settings) -> None:
    """Note what a file says about an application that was made without it.

    Ignored in silence, a time zone would move every schedule.
    """
    for name, value in settings_in(document).items():
        kept = getattr(settings, "is_installing" if name == "install" else name)
        if kept != value and name not in settings.said:
            document.report(
                (TABLE, name),
                f"{name} comes too late: the app has {_hidden(kept)} already. "
                f"Make it with Tickwork(config={document.source!r}).",
            )


# ---------------------------------------------------------------- one by one


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidOption(name, value, "must be a string")
    return value


def _zone(name: str, value: object) -> str:
    zone = _text(name, value)
    Zone.named(zone)
    return zone


def _texts(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    given = tuple(value) if is_list else (None,)
    if not all(isinstance(each, str) and each for each in given):
        raise InvalidOption(name, value, "must be a list of strings")
    return given


def _yes_or_no(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(name, value, "must be true or false")
    return value


def _size(name: str, value: Any) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= PAYLOAD_LIMIT:
        raise InvalidOption(name, value, f"must be between 1 and {PAYLOAD_LIMIT:,} bytes")
    return int(value)


def _length(name: str, value: Any) -> timedelta:
    length = as_duration(value)
    if length <= timedelta(0):
        raise InvalidOption(name, value, "must be longer than 0s")
    return length


_TAKEN: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "url": _text,
    "timezone": _zone,
    "install": _yes_or_no,
    "handler_paths": _texts,
    "redact": _texts,
    "payload_max": _size,
    "retire_after": _length,
}

VARIABLES: Final = {name: f"TICKWORK_{name.upper()}" for name in _TAKEN}
"""The environment variable of each setting: ``TICKWORK_URL`` and so on."""

_YES: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _parsed(name: str, variable: str, text: str) -> Any:
    """A setting from the text of an environment variable."""
    value: Any = text
    match _TAKEN[name]:
        case take if take is _texts:
            value = [part.strip() for part in text.split(",") if part.strip()]
        case take if take is _yes_or_no:
            value = _YES.get(text.strip().lower(), text)
        case take if take is _size:
            value = int(text) if text.strip().isdecimal() else text
    try:
        return taken(name, value)
    except InvalidOption as error:
        raise InvalidOption(variable, text, error.rule, fix=error.fix) from None


def _is_said(value: object) -> bool:
    return value is not None and value != ""  # an empty URL is as none


def _hidden(value: object) -> str:
    return mask_url(value) if isinstance(value, str) else repr(value)
