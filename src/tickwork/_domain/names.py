"""What may be the name of a job, a queue, a schedule, a tenant or a tag."""

from typing import Final

from tickwork.errors import InvalidOption

NAME_MAX: Final = 200
"""Characters in a name: two of them must fit one index of every database."""


def check_name(option: str, name: object, *, forbidden: str = "") -> str:
    """Return the name, or say what is wrong with it.

    >>> check_name("queue", "emails")
    'emails'

    Raises:
        InvalidOption: It is no string, empty, too long, or has characters that a table
            or a terminal would not show as they are.
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
