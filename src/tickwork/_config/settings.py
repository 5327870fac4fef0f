"""The settings of an application, read once from arguments, environment and file."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tickwork._dialects import is_embedded
from tickwork._domain.names import check_name
from tickwork._domain.schedules.zones import Zone
from tickwork._handlers.handlers import is_path
from tickwork._kernel.durations import as_duration
from tickwork._masks.text import MASK
from tickwork._masks.url import mask_url
from tickwork._payload.codec import SIZE_MAX
from tickwork.errors import InvalidOption

if TYPE_CHECKING:
    from tickwork._config.toml_document import Document

URL_DEFAULT: Final = "sqlite:///tickwork.db"
PAYLOAD_LIMIT: Final = 16 * 1024 * 1024
"""The largest value of ``payload_max``, in bytes."""

VERSION_MAX: Final = 100
RETIRE_AFTER: Final = timedelta(days=7)
SECRET_MIN: Final = 32
"""The shortest secret that signs links, in characters."""

CONFIG_FILE: Final = "tickwork.toml"
TABLE: Final = "tickwork"
"""The table of a configuration file that holds settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an application. Arguments override the environment, the file and defaults."""

    url: str = URL_DEFAULT
    name: str = ""  # of the program; empty: that of the module that creates the application
    timezone: str = "UTC"
    should_install: bool = False  # create or upgrade the tables on first use
    handler_paths: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    payload_max: int = SIZE_MAX
    retire_after: timedelta = RETIRE_AFTER
    version: str = ""  # of the application, as workers report it
    dashboard_url: str = ""  # where browsers reach the dashboard, for links
    callback_secret: tuple[str, ...] = ()  # signs links; the first one signs, all are accepted
    config: str = ""  # the file that was read, if any
    # The names that were set by arguments or environment, and the source of each value that
    # is not a default.
    explicit: frozenset[str] = field(default=frozenset(), compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        shown = {
            each.name: mask_setting(each.name, getattr(self, each.name)) for each in fields(self)
        }
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def mask_setting(name: str, value: Any) -> Any:
    """The value as it may be shown."""
    if name == "url":
        return mask_url(value)
    return MASK if name == "callback_secret" and value else value


def read_document(path: str | PathLike[str]) -> "Document":
    """Read a configuration file."""
    from tickwork._config.toml_document import Document  # noqa: PLC0415  # only with a file

    return Document.read(path)


def read_settings(
    arguments: Mapping[str, Any],
    *,
    package: str,
    file: Mapping[str, Any] = MappingProxyType({}),
    config: str = "",
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Read settings from arguments, then the environment, then the file, then defaults.

    ``install`` is on by default for SQLite and memory, and off for database
    servers. ``package`` is the default of ``handler_paths``.
    """
    # An empty text counts as not given.
    explicit = {
        name: convert_setting(name, value)
        for name, value in arguments.items()
        if value is not None and value != ""
    }
    sources = {**dict.fromkeys(file, config or "a file"), **dict.fromkeys(explicit, "the program")}
    for name, variable in VARIABLES.items():
        if name not in explicit and environ.get(variable):
            explicit[name] = _read_variable(name, variable, environ[variable])
            sources[name] = variable
    values = {**file, **explicit}
    values.setdefault("handler_paths", (package,))
    url = values.get("url", URL_DEFAULT)
    should_install = values.pop("install", is_embedded(url))
    return Settings(
        **values,
        should_install=should_install,
        config=config,
        explicit=frozenset(explicit),
        sources=MappingProxyType(sources),
    )


def convert_setting(name: str, value: Any) -> Any:
    """Check one setting and convert it to its type."""
    return _CONVERTERS[name](name, value)


def settings_in(document: "Document") -> dict[str, Any]:
    """Read the settings in a file. Problems are reported to the document."""
    table = document.table((TABLE,), document.content.get(TABLE, {}))
    document.check_keys((TABLE,), table, (*_CONVERTERS, "app"))
    values = {}
    for name, value in table.items():
        with document.reporting((TABLE, name)):
            if name in _CONVERTERS:
                values[name] = convert_setting(name, value)
            elif name == "app":
                app_in(document)
    return values


def app_in(document: "Document") -> str | None:
    """Return the path of the application that a file names for the command line."""
    table = document.content.get(TABLE, {})
    path = table.get("app") if isinstance(table, dict) else None
    if path is not None and not (isinstance(path, str) and is_path(path)):
        raise InvalidOption(
            "app", path, "must be an import path", fix="Write 'package.module:app'."
        )
    return path


def report_late_settings(document: "Document", settings: Settings) -> None:
    """Report settings of a file that was read after the application was created with others.

    If they were ignored silently, schedules could fire in another time zone than the file says.
    """
    for name, value in settings_in(document).items():
        current = getattr(settings, "should_install" if name == "install" else name)
        if current != value and name not in settings.explicit:
            document.report(
                (TABLE, name),
                f"{name} cannot be changed: the app was created with {_show(name, current)}. "
                f"Create it with Tickwork(config={document.source!r}).",
            )


# ---------------------------------------------------------------- conversion


def _string(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidOption(name, value, "must be a string that is not empty")
    return value


def _zone(name: str, value: object) -> str:
    zone = _string(name, value)
    Zone.named(zone)
    return zone


def _strings(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    parts = tuple(value) if is_list else (None,)
    if not all(isinstance(each, str) and each for each in parts):
        raise InvalidOption(name, value, "must be a list of strings that are not empty")
    return parts


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(name, value, "must be true or false")
    return value


def _version(name: str, value: object) -> str:
    text = _string(name, value)
    if len(text) > VERSION_MAX or not text.isprintable() or " " in text:
        raise InvalidOption(
            name, value, f"must have at most {VERSION_MAX} visible characters and no spaces"
        )
    return text


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


def _web_url(name: str, value: object) -> str:
    text = _string(name, value)
    try:
        parts = urlsplit(text)
        is_fitting = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_fitting = False
    if not is_fitting or parts.query or parts.fragment or parts.username is not None:
        raise InvalidOption(
            name,
            mask_url(text),
            "must be the URL of the dashboard, without a user, a query and a fragment",
            fix="Write it as 'https://jobs.example.com/ops'.",
        )
    return text.rstrip("/")


def _secrets(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    parts = tuple(value) if is_list else (value,)
    if not parts or not all(isinstance(each, str) and len(each) >= SECRET_MIN for each in parts):
        raise InvalidOption(
            name,
            MASK,
            f"must be a text of at least {SECRET_MIN} characters, or a list of such texts",
            fix="Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return parts


_CONVERTERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "url": _string,
    "name": check_name,
    "timezone": _zone,
    "install": _boolean,
    "handler_paths": _strings,
    "redact": _strings,
    "payload_max": _size,
    "retire_after": _length,
    "version": _version,
    "dashboard_url": _web_url,
    "callback_secret": _secrets,
}

VARIABLES: Final = {name: f"TICKWORK_{name.upper()}" for name in _CONVERTERS}
"""The environment variable of each setting: ``TICKWORK_URL`` and so on."""

_BOOLEANS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _read_variable(name: str, variable: str, text: str) -> Any:
    value: Any = text
    match _CONVERTERS[name]:
        case convert if convert is _strings or convert is _secrets:
            value = [part.strip() for part in text.split(",") if part.strip()]
        case convert if convert is _boolean:
            value = _BOOLEANS.get(text.strip().lower(), text)
        case convert if convert is _size:
            value = int(text) if text.strip().isdecimal() else text
    try:
        return convert_setting(name, value)
    except InvalidOption as error:
        shown = mask_setting(name, text)
        raise InvalidOption(variable, shown, error.rule, fix=error.fix) from None


def _show(name: str, value: object) -> str:
    if name == "callback_secret":
        return str(mask_setting(name, value))
    return mask_url(value) if isinstance(value, str) else repr(value)
