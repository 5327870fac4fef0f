"""Opens the store that a URL of SQLite names: a file, or the memory of this process."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tickwork._dialects import scheme_of
from tickwork._kernel.durations import parse_duration
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import InvalidStoreUrl


def open_url(url: str, **options: Any) -> SqliteStore:
    """Open a store; the URL may have options of it.

    Raises:
        InvalidStoreUrl: The URL names no file.
    """
    options = {**_options(url), **options}
    if url.partition("?")[0] == "sqlite://" or scheme_of(url) == "memory":
        from tickwork._stores.sqlite.memory import MemoryStore  # noqa: PLC0415  # loaded on demand

        return MemoryStore(**options)
    parts = urlsplit(url)
    if parts.netloc or "://" not in url:
        raise InvalidStoreUrl(url, "a path needs three slashes, as in sqlite:///jobs.db.")
    if "\0" in unquote(parts.path):
        raise InvalidStoreUrl(url, "a path has no null characters.")
    return SqliteStore(unquote(parts.path[1:]), **options)


def _options(url: str) -> dict[str, Any]:
    """The options in the URL, converted to their types."""
    options: dict[str, Any] = {}
    for name, text in parse_qsl(urlsplit(url).query):
        if name not in _CONVERTERS:
            raise InvalidStoreUrl(url, f"there is no option {name!r}.")
        try:
            options[name] = _CONVERTERS[name](text)
        except ValueError as error:
            raise InvalidStoreUrl(url, f"{name} {error}") from None
    return options


def _as_wait(text: str) -> timedelta:
    try:
        length = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        length = parse_duration(text)
    if length < timedelta(0):
        raise ValueError(f"must not be negative, got {text}.")
    return length


_CONVERTERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "synchronous": str,
    "busy_timeout": _as_wait,
    "prefix": str,
}
"""The options that a URL can have."""
