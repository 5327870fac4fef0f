"""Masks the values of secret arguments in texts that are logged, or stored to be shown."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from traceback import format_exception
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "***"

LENGTH_MIN: Final = 4
"""Shorter values are not masked in texts: the mask would hide half of the text."""

LINE_MIN: Final = 12
"""A single line of a longer value, such as a key, is masked if it has this many characters."""

NESTING_MAX: Final = 8


class SecretMask:
    """Masks values, and the values inside them: in upper and lower case, plain, quoted or escaped.

    >>> SecretMask(["s3cret/1", {"pin": 12345}])("GET /?token=S3CRET%2F1&pin=12345")
    'GET /?token=***&pin=***'
    """

    def __init__(self, values: Iterable[object]) -> None:
        texts = {text for value in values for text in _texts(value, NESTING_MAX)}
        forms = {form for text in texts for form in _forms(text) if len(form) >= LENGTH_MIN}
        longest_first = sorted(forms, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(pattern, re.IGNORECASE) if pattern else None

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def mask_args(given: Mapping[str, Any], secrets: frozenset[str]) -> dict[str, Any]:
    return {name: MASK if name in secrets else value for name, value in given.items()}


def mask_exception(error: BaseException, mask: Callable[[str], str]) -> BaseException:
    """Return the exception, or a masked copy if its text, or that of a cause, has a secret."""
    text = "".join(format_exception(error))
    masked = mask(text)
    return error if masked == text else make_masked_copy(error, masked)


def make_masked_copy(error: BaseException, traceback: str) -> BaseException:
    """Return an exception with the same class name and traceback, and the masked message."""
    kind = type(error)
    message = traceback.rstrip().rpartition("\n")[2].removeprefix(f"{kind.__module__}.")
    message = message.removeprefix(kind.__qualname__).removeprefix(": ")
    named = type(kind.__name__, (Exception,), {"__module__": kind.__module__})
    made: BaseException = named(message)
    return made.with_traceback(error.__traceback__)


def _texts(value: Any, levels: int) -> Iterator[str]:
    if value is None or isinstance(value, bool) or not levels:
        return
    if isinstance(value, str):
        yield value
        yield from (line for line in value.splitlines() if len(line) >= LINE_MIN)
    elif isinstance(value, bytes | bytearray):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part, levels - 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _texts(part, levels - 1)
    else:
        yield str(value)
        yield from _texts(getattr(value, "__dict__", None), levels - 1)


def _forms(text: str) -> set[str]:
    text = text.strip()
    quoted = {quote(text, safe="", errors="replace"), quote(text, errors="replace")}
    escaped = {repr(text)[1:-1], json.dumps(text)[1:-1]}
    return {text, quote_plus(text, errors="replace"), *quoted, *escaped}
