"""Finds secrets in texts, in each form in which programs print them."""

import json
import re
from binascii import b2a_base64
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus

MASK: Final = "***"

LENGTH_MIN: Final = 4
"""Shorter secrets are not masked in texts: the mask would hide half of the text."""

_NESTING: Final = 2
"""How often a secret may be encoded, such as JSON in JSON."""

_Span: TypeAlias = tuple[int, int]


class TextMask:
    r"""Masks secrets: plain, escaped or encoded, in upper and lower case, wrapped over lines.

    Its time grows with the length of the text and of the secrets: it searches plain strings.

    >>> TextMask(["s3cret/1", "pässword"])(r'GET /?token=S3CRET%2F1 {"key": "p\u00e4ssword"}')
    'GET /?token=*** {"key": "***"}'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        stripped = {secret.strip() for secret in secrets}
        self._secrets = [_Secret(secret) for secret in stripped if len(secret) >= LENGTH_MIN]
        self._has_spaces = any(secret.has_spaces for secret in self._secrets)

    def __call__(self, text: str) -> str:
        if not self._secrets or not text:
            return text
        spans = list(self._find(text))
        if _BREAK.search(text):
            for is_quoted in (False, True):
                lines = _JoinedLines(text, is_quoted=is_quoted, with_spaces=not self._has_spaces)
                secret_spans = self._find(lines.text, is_joined=True)
                spans += (lines.original(span) for span in secret_spans)
        return _replace(text, spans) if spans else text

    def _find(self, text: str, *, is_joined: bool = False) -> Iterator[_Span]:
        lowered = _lower(text)
        for secret in self._secrets:
            # Forms are made for a text that is likely to have one, and not for others.
            if not any(needle in lowered for needle in secret.needles):
                continue
            for form in secret.joined_forms if is_joined else secret.forms:
                yield from _occurrences(form, lowered)
            for form, is_partial in secret.base64_forms.items():
                for begin, end in _occurrences(form, text):
                    rest = _BASE64_REST.match(text, end)
                    yield max(begin - is_partial, 0), rest.end() if rest else end


class _Secret:
    """One secret, in all its forms.

    Each form contains one of the ``needles``, in upper or lower case: no encoding changes a run of
    letters and digits.
    """

    def __init__(self, text: str) -> None:
        raw = _encode(text)
        self._text = text
        self._hex = raw.hex()
        self._base64 = _base64_forms(raw)
        self.needles = {_longest_word(each) for each in (text, *self._base64, self._hex)}
        self.has_spaces = len(text.split()) > 1

    @cached_property
    def forms(self) -> set[str]:
        """All but base64, in lower case."""
        return {_lower(form) for form in (*_escaped_forms(self._text), self._hex)}

    @cached_property
    def joined_forms(self) -> set[str]:
        """The forms without spaces: a line may end at each of them."""
        joined = {"".join(form.split()) for form in self.forms}
        joined |= {
            _JoinedLines(form, is_quoted=is_quoted, with_spaces=False).text
            for form in self.forms
            for is_quoted in (False, True)
            if _BREAK.search(form)  # it may be a part of a name, as in C:\new
        }
        return {form for form in joined if len(form) >= LENGTH_MIN}

    @cached_property
    def base64_forms(self) -> dict[str, bool]:
        return {
            form: is_partial
            for text, is_partial in self._base64.items()
            for form in (text, text.replace("/", r"\/"), quote(text, safe=""))
        }


def _occurrences(form: str, text: str) -> Iterator[_Span]:
    begin = text.find(form)
    while begin >= 0:
        end = begin + len(form)
        yield begin, end
        begin = text.find(form, end)


def _lower(text: str) -> str:
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    # The lower case of a few letters has two characters. Positions must be those of the text.
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # the inverse of how bytes are decoded
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


_WORD: Final = re.compile(r"[0-9A-Za-z]+")


def _longest_word(text: str) -> str:
    return max(_WORD.findall(text), key=len, default="").lower()


# ---------------------------------------------------------------- escapes


def _escaped_forms(text: str) -> set[str]:
    forms = {text} if text.isascii() else {text, text.lower(), text.upper()}
    for _ in range(_NESTING):
        forms |= {escape(form) for form in forms for escape in _ESCAPES}
    return forms


def _html(text: str, *quotes: tuple[str, str]) -> str:
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), *quotes):
        text = text.replace(mark, entity)
    return text


_ESCAPES: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: repr(text)[1:-1],
    lambda text: repr(f'"{text}')[2:-1],  # with a " in the same text, each ' is escaped
    lambda text: ascii(text)[1:-1],
    lambda text: ascii(f'"{text}')[2:-1],
    lambda text: repr(_encode(text))[2:-1],
    lambda text: repr(b'"' + _encode(text))[3:-1],
    lambda text: text.encode("unicode_escape").decode(),
    lambda text: _encode(text).decode("latin-1").encode("unicode_escape").decode(),
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    lambda text: quote(_encode(text), safe=""),
    lambda text: quote(_encode(text)),
    lambda text: quote_plus(_encode(text)),
    lambda text: text.encode("ascii", "xmlcharrefreplace").decode(),
    _html,
    lambda text: _html(text, ("'", "&#x27;"), ('"', "&quot;")),
    lambda text: _html(text, ("'", "&#39;"), ('"', "&#34;")),
    lambda text: text.replace("\\", "\\\\"),  # in pieces of which each needs no other escapes
    lambda text: text.replace("'", "''"),  # SQL
    lambda text: text.replace('"', '""'),  # CSV
)


# ---------------------------------------------------------------- base64


_BASE64_REST: Final = re.compile(r"[0-9A-Za-z+/_-]?={0,2}")
"""The character after a form, of which a part may belong to the secret, and padding."""


def _base64_forms(raw: bytes) -> dict[str, bool]:
    """Base64 in which the bytes begin at the first, second or third byte of a group.

    The characters that depend on neighboring bytes are left out. The value tells whether there is
    one before the form.
    """
    forms = {}
    for offset in range(3):
        text = b2a_base64(bytes(offset) + raw, newline=False).decode()
        begin = (offset * 8 + 5) // 6
        core = text[begin : (offset + len(raw)) * 8 // 6]
        for form in (core, core.replace("+", "-").replace("/", "_")):
            forms[form] = offset > 0
    return forms


# ---------------------------------------------------------------- lines


_BREAK: Final = re.compile(r"(?:\\r|\r)?(?:\\n|\n)")
_LINE: Final = re.compile(r".+", re.DOTALL)
_WORDS: Final = re.compile(r"\S+")
_INDENT: Final = re.compile(r"[ \t|]*")
_QUOTED_INDENT: Final = re.compile(r"""[ \t|]*(?:b?["'])?""")


class _JoinedLines:
    """A text without its line breaks, and without what wrapping adds: indents, and bars.

    Quotes around each line are left out, too, if it ``is_quoted``.
    """

    def __init__(self, text: str, *, is_quoted: bool, with_spaces: bool) -> None:
        parts: list[str] = []
        self._starts: list[int] = []
        self._origins: list[int] = []
        part, length = _LINE if with_spaces else _WORDS, 0
        for begin, end in _line_spans(text, is_quoted=is_quoted):
            for match in part.finditer(text, begin, end):
                parts.append(match[0])
                self._starts.append(length)
                self._origins.append(match.start())
                length += len(match[0])
        self.text = "".join(parts)

    def original(self, span: _Span) -> _Span:
        return self._original(span[0]), self._original(span[1] - 1) + 1

    def _original(self, position: int) -> int:
        index = bisect_right(self._starts, position) - 1
        return self._origins[index] + position - self._starts[index]


def _line_spans(text: str, *, is_quoted: bool) -> Iterator[_Span]:
    begin = 0
    for line_break in _BREAK.finditer(text):
        end = len(text[begin : line_break.start()].rstrip(" \t")) + begin
        yield begin, end - (is_quoted and text[begin:end][-1:] in {"'", '"', "\\"})
        indent = (_QUOTED_INDENT if is_quoted else _INDENT).match(text, line_break.end())
        begin = indent.end() if indent else line_break.end()
    yield begin, len(text)


def _replace(text: str, spans: Iterable[_Span]) -> str:
    """Replace each span by one mask; spans that overlap or touch, by one for all of them."""
    parts: list[str] = []
    reached = -1
    for begin, end in sorted(spans):
        if begin > reached:
            parts += (text[max(reached, 0) : begin], MASK)
        reached = max(reached, end)
    return "".join((*parts, text[max(reached, 0) :]))
