"""Secrets in texts, in every form in which programs print them."""

import base64
import html
import json
import pprint
import textwrap
import time
import traceback
from collections.abc import Callable
from functools import partial
from urllib.parse import quote, quote_plus

import pytest

from tickwork._masks.text import TextMask

SECRETS = {
    "plain": "t0ken-1234567",
    "symbols": "p@ss/w0rd+&=%41<x>",
    "quotes": """it's "q\\uoted" \\ here""",
    "quotes and unicode": """it's "q\\uöted" \\ hère""",
    "apostrophe": "it's-Ünique-1",
    "unicode": "pÄss wörd € 🔑 1",
    "escape-like": r"C:\new\x41\u0041%20&lt;",
    "lines": "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----",
    "short": "pin4",
}


def encode_in_between(encode: Callable[[bytes], bytes], offset: int, text: str) -> str:
    return encode(b"user:"[:offset] + text.encode() + b"/etc").decode()


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper": str.upper,
    "lower": str.lower,
    "repr": repr,
    "repr with both quotes": lambda text: repr(f"""'"{text}"""),
    "ascii": ascii,
    "unicode escape": lambda text: text.encode("unicode_escape").decode(),
    "bytes": lambda text: repr(text.encode()),
    "json": json.dumps,
    "json in unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "json with slashes": lambda text: json.dumps(text).replace("/", r"\/"),
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "key of json": lambda text: json.dumps({text: 1}),
    "repr of json": lambda text: repr(json.dumps({"key": text})),
    "quoted": quote,
    "quoted all": lambda text: quote(text, safe=""),
    "quoted for a form": quote_plus,
    "quoted in lower case": lambda text: quote(text, safe="").lower(),
    "quoted twice": lambda text: quote(quote(text, safe="")),
    "html": html.escape,
    "html of repr": lambda text: html.escape(repr(text)),
    "xml": lambda text: html.escape(text).encode("ascii", "xmlcharrefreplace").decode(),
    "hex": lambda text: text.encode().hex(),
    "sql": lambda text: text.replace("'", "''"),
    "csv": lambda text: text.replace('"', '""'),
    **{
        f"{name} {offset}": partial(encode_in_between, encode, offset)
        for name, encode in (
            ("base64", base64.b64encode),
            ("base64 for URLs", base64.urlsafe_b64encode),
            ("base64 in lines", base64.encodebytes),
        )
        for offset in range(4)
    },
    "base64 in a URL": lambda text: quote(base64.b64encode(text.encode()), safe=""),
    "wrapped": lambda text: textwrap.fill(f"before the {text} after", 9, initial_indent="  "),
    "pprint": lambda text: pprint.pformat({"key": f"before {text} after"}, width=12),
    "pprint of bytes": lambda text: pprint.pformat(text.encode(), width=9),
    "json in lines": lambda text: json.dumps({"a": {"b": [text]}}, indent=4),
    "an exception": lambda text: format_chain(ValueError(text)),
    "a chain": lambda text: format_chain(KeyError("other"), ValueError(text)),
    "a group": lambda text: format_chain(ExceptionGroup("all", [ValueError(text)])),
}


def format_chain(error: Exception, cause: Exception | None = None) -> str:
    error.__cause__ = cause
    return "".join(traceback.format_exception(error))


def remains_of(secret: str, masked: str) -> list[str]:
    """Which words of a secret are left in a text."""
    words = [secret, *secret.split(), *base64.b64encode(secret.encode()).decode().split("=")]
    return [word for word in words if len(word) >= 5 and word.lower() in masked.lower()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_each_form_is_masked(secret, form):
    printed = FORMS[form](secret)
    masked = TextMask([secret])(printed)

    assert "***" in masked, printed
    assert remains_of(secret, masked) == []
    # What is left is what stands around: the mask hides no more than the secret.
    assert len(masked) <= len(FORMS[form]("~" * 3)) + 8 * masked.count("***") or "\n" in printed


def test_the_rest_of_the_text_stays():
    text = "POST https://shop/?token=T0KEN%2F1&page=2\n  {'token': 't0ken/1', 'n': 1}\n"

    assert TextMask(["t0ken/1"])(text) == (
        "POST https://shop/?token=***&page=2\n  {'token': '***', 'n': 1}\n"
    )


def test_base64_of_other_bytes_stays():
    text = base64.b64encode(b"user:other-password").decode()

    assert TextMask(["t0ken/1234"])(text) == text


def test_positions_are_right_where_lower_case_is_longer():
    assert TextMask(["t0ken/1"])("İİİİ T0KEN/1 end") == "İİİİ *** end"


def test_the_longest_of_several_is_replaced_as_one():
    assert TextMask(["hunter", "hunter22", "22ab"])("hunter22ab, hunter") == "***, ***"


def test_what_is_shorter_than_four_characters_stays():
    assert TextMask(["abc", "  a ", ""])("abc a") == "abc a"


@pytest.mark.parametrize("secret", ["1 + + + + + + + x", "\\ \\ \\ \\ \\ \\ x", "\\n" * 20 + "x"])
def test_no_secret_makes_a_text_slow(secret):
    """A pattern with choices would need exponential time for these."""
    began = time.process_time()
    TextMask([secret])(secret[:-1] * 50 + "+ " * 5_000 + "\\" * 5_000)

    assert time.process_time() - began < 1


def test_a_log_line_of_64_kib_with_ten_secrets_is_masked_in_milliseconds():
    """3 ms on a small machine. The limit only catches another order of growth."""
    mask = TextMask(f"token-{number}/ö'" * 3 for number in range(10))
    line = "word in a log line, " * 3_277
    mask(line)
    began = time.process_time()
    mask(line)

    assert time.process_time() - began < 0.1
