"""Masks the password in a URL, and in what a driver says about the URL.

The text is masked as it is, before a parser reads it. In a URL that is not well-formed, more is
hidden than the password: it may have any character, and a part of it may seem to be a host.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import unquote

from tickwork._dialects import DIALECT_BY_SCHEME, is_embedded
from tickwork._masks.text import LENGTH_MIN, MASK, TextMask

_HOST: Final = r"(?:\[[0-9a-z:.%]*\]|[^:@,/?\#\s\[\]]*)(?::\d*)?"
_WELL_FORMED: Final = re.compile(
    rf"""
    (?P<head>
        [a-z][a-z0-9+.-]*://
        (?:\[[0-9a-z:.%]*\]|(?:[^:@/?\#\s\[\]%]|%(?!3a)[0-9a-f]{{2}})*)  # a host or a user
    )
    (?::(?P<password>(?:[^@/?\#\s\[\]%]|%[0-9a-f]{{2}})*)(?=@))?
    (?:@{_HOST})?
    (?::\d*)?
    (?:,{_HOST})*
    (?:/(?![\s\S]*:[\s\S]*@)[^?\#@]*)?  # not a user in the wrong place
    (?:\?(?:[^@]*|\w+=[^&\#]*(?:&\w+=[^&\#]*)*))?
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""A URL in which only the password can be secret: delimiters are escaped, and ports are numbers."""

_EMBEDDED: Final = "|".join(scheme for scheme in DIALECT_BY_SCHEME if is_embedded(f"{scheme}:"))
_FILE: Final = re.compile(
    rf"(?:[a-z][a-z0-9+.-]*:///(?:/?[a-z]:)?|(?:{_EMBEDDED}):(?!.*@))(?:(?!%3a)[^:])*",
    re.IGNORECASE | re.DOTALL,
)
_OPTION: Final = re.compile(r"((?:pass|pwd|secret|token)\w*\s*=\s*)(.*)", re.IGNORECASE | re.DOTALL)
"""A password among the options of a URL or a DSN. It may contain any character, so it goes on
to the end."""

_URL_LIKE: Final = re.compile(rf"://|^[\w+.-]*:.*@|{_OPTION.pattern}", re.IGNORECASE | re.DOTALL)

_ADVICE: Final = (
    "write scheme://user:password@host:port/database, with a number as the port. In the user and "
    "the password, write %40 for @, %3A for :, %2F for /, %3F for ?, %23 for #, "
    "%5B and %5D for [ and ], %20 for a space, %25 for %."
)


class _MaskedUrl(NamedTuple):
    shown: str
    passwords: list[str]
    is_well_formed: bool


def mask_url(url: str) -> str:
    """Replace the password in a URL, for messages and logs.

    >>> mask_url("postgresql://app:s3cret@db.example.org/jobs")
    'postgresql://app:***@db.example.org/jobs'
    """
    return _mask(url).shown


def mask_quoted(text: str, words: Iterable[str]) -> str:
    """Mask URLs and DSNs among these words where a text, such as an error, repeats them.

    >>> mask_quoted("There is no 'mysql:u:s3cret@h'.", ["-a", "mysql:u:s3cret@h"])
    "There is no 'mysql:***@h'."
    """
    for word in filter(_URL_LIKE.search, words):
        for quoted in (word, repr(word)[1:-1]):
            text = text.replace(quoted, mask_url(word))
    return text


def is_well_formed(url: str) -> bool:
    """Whether a parser finds the password where it is, or the URL has no place for one."""
    return _find_password(url)[2]


def mask_reason(reason: str, url: str) -> str:
    """Remove the password of a URL from a text about it, such as the message of a driver.

    A driver that cannot parse the URL shows parts of it, so its text is replaced as a whole.
    """
    masked = _mask(url)
    if not masked.is_well_formed:
        return _ADVICE
    for password in filter(None, masked.passwords):
        if len(password) < LENGTH_MIN:
            reason = re.sub(rf"(?<!\w){re.escape(password)}(?!\w)", MASK, reason)
    return TextMask(masked.passwords)(reason)


def _mask(url: str) -> _MaskedUrl:
    begin, end, is_well_formed = _find_password(url)
    shown, passwords = url, []
    if begin < end:
        passwords.append(url[begin:end])
        shown = f"{url[:begin]}{MASK}{url[end:]}"
    option = _OPTION.search(shown)
    if option is not None:
        # Before the next option: a driver knows only that part as the password.
        passwords += [option[2], option[2].partition("&")[0]]
        shown = f"{shown[: option.start(2)]}{MASK}"
    passwords += [unquote(password) for password in passwords]
    return _MaskedUrl(shown, passwords, is_well_formed)


def _find_password(url: str) -> tuple[int, int, bool]:
    """Where the part to hide begins and ends, and whether the URL is well-formed."""
    match = _WELL_FORMED.fullmatch(url)
    if match is not None:
        return *match.span("password"), True
    if _FILE.fullmatch(url):
        return 0, 0, True
    authority = url.find("//") + 2 if "//" in url else 0
    end = url.rfind("@", authority)
    colon = url.find(":", authority)
    if colon < 0 and end < 0:
        return 0, 0, True  # it has no place for a password
    begin = authority if colon < 0 else colon + 1
    return (begin, end, False) if begin <= end else (begin, len(url), False)
