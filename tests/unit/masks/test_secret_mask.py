"""Values of secret arguments, in every form in which a text may contain them."""

import json
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote, quote_plus

import pytest

from tickwork._masks.secret_mask import SecretMask, contains_mask, mask_args

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


class TestNames:
    """A name masks a part of an argument, at any depth."""

    ARGS: ClassVar = {
        "card": {"number": "4111-1111", "owner": "Ann"},
        "number": "7",
        "cards": [{"card": {"number": "4222-2222"}}],
        "text": "for 4111-1111",
    }

    def test_a_path(self):
        assert mask_args(self.ARGS, {"card.number"}) == {
            "card": {"number": "***", "owner": "Ann"},
            "number": "7",
            "cards": [{"card": {"number": "***"}}],
            "text": "for ***",
        }

    def test_a_name(self):
        shown = mask_args(self.ARGS, {"number"})

        assert shown["number"] == shown["card"]["number"] == "***"

    def test_a_secret_that_is_a_key_elsewhere(self):
        shown = mask_args({**self.ARGS, "seen": {"4111-1111": [{"x4111-1111": 1}]}}, {"number"})

        assert shown["seen"] == {"***": [{"x***": 1}]}

    def test_names_that_do_not_occur(self):
        assert mask_args(self.ARGS, {"owner.card", "card.number.x"}) == self.ARGS
        assert mask_args("4111", {"number"}) == "4111"

    @pytest.mark.parametrize("value", ["***", {"a": ["***"]}, [{"a": "Bearer ***"}]])
    def test_a_mask_is_found(self, value):
        assert contains_mask(value)
        assert not contains_mask({"a": [1, None, "**"]})
