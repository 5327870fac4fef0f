"""Checks the names of jobs, queues, schedules, tenants and tags."""

from typing import Final

from tickwork.errors import InvalidOption

NAME_MAX: Final = 200
"""The longest name, in characters. Two names must fit into one index of every database."""


def check_name(option: str, name: object, *, forbidden: str = "") -> str:
    """Return the name if it is valid.

    >>> check_name("queue", "emails")
    'emails'

    Raises:
        InvalidOption: It is not a string, is empty or too long, or has characters that are
            not printable or that are forbidden here.
    """
    if not isinstance(name, str):
        raise InvalidOption(option, name, "must be a string")
    if not name or name != name.strip():
        raise InvalidOption(option, name, "must not be empty or have white space around it")
    if len(name) > NAME_MAX:
        raise InvalidOption(option, name, f"must have at most {NAME_MAX} characters")
    if not name.isprintable():
        raise InvalidOption(option, name, "must have printable characters only")
    for character in forbidden:
        if character in name:
            raise InvalidOption(option, name, f"must not contain {character!r}")
    return name
