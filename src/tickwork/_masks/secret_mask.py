"""Masks the values of secret arguments, where arguments are shown and in texts about them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from traceback import format_exception
from typing import Any, Final

from tickwork._masks.text import MASK, TextMask

LINE_MIN: Final = 12
"""A single line of a longer value, such as a key, is masked if it has this many characters."""

NESTING_MAX: Final = 8


class SecretMask(TextMask):
    """Masks values, and the values inside them.

    >>> SecretMask(["s3cret/1", {"pin": 12345}])("GET /?token=S3CRET%2F1&pin=12345")
    'GET /?token=***&pin=***'
    """

    def __init__(self, values: Iterable[object]) -> None:
        super().__init__(text for value in values for text in _texts(value, NESTING_MAX))


def mask_values(value: Any, names: Collection[str], mask: Callable[[str], str]) -> Any:
    """Mask what has one of these names, at any depth, and mask all other texts.

    A name such as ``card.number`` is a path: ``number`` in ``card``. Keys are texts, too.

    >>> mask_values({"card": {"pin": 7}, "to": "ann"}, {"card.pin"}, str)
    {'card': {'pin': '***'}, 'to': 'ann'}
    """
    return _mask_values(value, _as_paths(names), (), mask)


def mask_args(args: Any, names: Collection[str], *, also: Any = None) -> Any:
    """Mask the arguments with these names, and their values in all other arguments.

    The values of the arguments ``also`` are masked, too, such as those before a change.
    """
    secrets = [*find_secrets(args, names), *find_secrets(also, names)]
    return mask_values(args, names, SecretMask(secrets))


def find_secrets(value: Any, names: Collection[str]) -> list[Any]:
    """The values that have one of these names, at any depth."""
    return list(_find_secrets(value, _as_paths(names), ()))


def contains_mask(value: Any, *, in_texts: bool = True) -> bool:
    """Whether a value, or a part of it, is a mask, or with ``in_texts`` a text that was masked."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(contains_mask(part, in_texts=in_texts) for part in value)
    return isinstance(value, str) and (MASK in value if in_texts else value == MASK)


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


_Path = tuple[str, ...]


def _as_paths(names: Collection[str]) -> set[_Path]:
    return {tuple(name.split(".")) for name in names}


def _is_secret(path: _Path, secrets: Collection[_Path]) -> bool:
    return any(path[-len(secret) :] == secret for secret in secrets)


def _mask_values(
    value: Any, secrets: Collection[_Path], path: _Path, mask: Callable[[str], str]
) -> Any:
    if _is_secret(path, secrets):
        return MASK
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {
            mask(key) if isinstance(key, str) else key: _mask_values(
                part, secrets, (*path, str(key)), mask
            )
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        parts = [_mask_values(part, secrets, path, mask) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def _find_secrets(value: Any, secrets: Collection[_Path], path: _Path) -> Iterator[Any]:
    if _is_secret(path, secrets):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _find_secrets(part, secrets, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _find_secrets(part, secrets, path)


def _texts(value: Any, levels: int) -> Iterator[str]:
    if value is None or isinstance(value, bool) or not levels:
        return
    if isinstance(value, str):
        yield value
        yield from (line for line in value.splitlines() if len(line) >= LINE_MIN)
    elif isinstance(value, bytes | bytearray):
        yield value.decode("utf-8", "surrogateescape")
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part, levels - 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _texts(part, levels - 1)
    else:
        yield str(value)
        yield from _texts(getattr(value, "__dict__", None), levels - 1)
