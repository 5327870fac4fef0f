"""Values of secret arguments, in every form in which a text may contain them."""

import json
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

import pytest

from tickwork._define.secret_mask import SecretMask

SECRET = "p@ss Wörd/1"


@dataclass
class Card:
    number: str
    pin: int


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        SECRET.upper(),
        SECRET.lower(),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        repr(SECRET),
        json.dumps(SECRET),
    ],
)
def test_each_form_is_masked(text):
    masked = SecretMask([SECRET])(f"before {text} after")

    assert masked.replace("'", "").replace('"', "") == "before *** after"


@pytest.mark.parametrize(
    "value",
    [
        {"card": {"number": "4111-1111"}},
        ["4111-1111"],
        ("other", {"4111-1111"}),
        b"4111-1111",
        Card("4111-1111", 12345),
    ],
)
def test_parts_of_a_value_are_masked(value):
    assert SecretMask([value])("card 4111-1111 was declined") == "card *** was declined"


def test_each_long_line_of_a_key_is_masked():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----"

    assert SecretMask([key])("at MIIEvQIBADANBgkq") == "at ***"


def test_numbers_are_masked():
    assert SecretMask([41111111])("card 41111111") == "card ***"


def test_short_values_are_left():
    """The mask would hide half of the text."""
    assert SecretMask(["abc", None, True, 7, ""])("abc True None 7") == "abc True None 7"


def test_the_longest_of_several_is_replaced_first():
    assert SecretMask(["hunter", "hunter22"])("hunter22, hunter") == "***, ***"
