"""Signed links: only a secret of the program makes one that is read."""

from datetime import UTC, datetime

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.runs.callback_links import TOKEN_MAX, CallbackLink, read_link, sign_link

SECRET, OTHER = "s" * 32, "t" * 32
LINK = CallbackLink(
    RunId("019b76da-a800-7000-8000-000000000001"),
    "approved ✓",
    datetime(2026, 1, 8, tzinfo=UTC),
    ("yes", "no, <later>"),
)


def test_it_is_read_as_it_was_signed():
    assert read_link(sign_link(LINK, SECRET), [SECRET]) == LINK


def test_an_old_secret_is_still_accepted():
    token = sign_link(LINK, SECRET)

    assert read_link(token, [OTHER, SECRET]) == LINK
    assert read_link(token, [OTHER]) is None
    assert read_link(token, []) is None


def test_a_change_of_any_letter_is_refused():
    token = sign_link(LINK, SECRET)
    others = [
        token[:place] + ("A" if letter != "A" else "B") + token[place + 1 :]
        for place, letter in enumerate(token)
    ]
    # The last letter has bits that are no part of the signature, but is compared as text.
    assert [read_link(other, [SECRET]) for other in others] == [None] * len(token)


def test_the_signature_belongs_to_the_whole_text():
    first = sign_link(LINK, SECRET)
    second = sign_link(LINK._replace(event="rejected"), SECRET)
    body, signature = first.rsplit(".", 1)[0], second.rsplit(".", 1)[1]

    assert read_link(f"{body}.{signature}", [SECRET]) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "1..",
        "1.e30.",
        "1.\x00.\x00",
        "1.ü.ü",
        "\ud800",
        "2" + sign_link(LINK, SECRET)[1:],
        sign_link(LINK, SECRET) + "=",
        sign_link(LINK, SECRET) + ".x",
        " " + sign_link(LINK, SECRET),
        "1." + "A" * TOKEN_MAX,
    ],
    ids=ascii,
)
def test_hostile_texts_are_refused(token):
    assert read_link(token, [SECRET]) is None
