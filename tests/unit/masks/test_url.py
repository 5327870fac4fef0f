"""The password of a URL is hidden in all texts, whatever the URL looks like."""

import itertools
from urllib.parse import quote

import pytest

from tickwork._masks.url import is_well_formed, mask_reason, mask_url

PASSWORDS = (
    *("S3CR3T", "S3CR3T#9", "S3CR3T/9x", "S3CR3T?9x", "S3CR3T@9x", "S3C R3T", "S3C%R3T"),
    *("S3C\nR3T", "33/S3CR3T", "33@S3CR3T/x", "S3C:R3T", "S3C\"R3T'x", "S3C&R3T=x", "S3C\\R3Tx"),
    *("S3C[R3T]", "s\u00e9cr3t-9", "S3?a=CR3T"),
)
SCHEMES = (
    "postgresql",
    "POSTGRESQL",
    "mysql",
    "MySQL",
    "mariadb",
    "sqlite",
    "mysql+pymysql",
    "mysqll",
)
FORMS = (
    *("{s}://user:{p}@host/db", "{s}://user:{p}@host:5432/db?x=1", "{s}://:{p}@host/db"),
    *("{s}://user:{p}@host", "{s}://user:{p}@[::1]:5432/db", "{s}://user:{p}@a:1,b:2/db"),
    *("{s}:user:{p}@host", "{s}:/user:{p}@host/db", "{s}//user:{p}@host/db"),
    *("{s}:///user:{p}@host/db", "{s}://user:x{p}", "user:{p}@host/db", "{s}:user:x{p}"),
    *("{s}://user%3A{p}@host/db", "{s}://us er:{p}@[::1/db", "{s}://user:{p}@host:port/db"),
    *("{s}://user:{p}@/db?unix_socket=/x.sock", "{s}://user:{p}@%2Ftmp/db"),
    *("{s}://host/db?user=a&password={p}", "{s}://host/db?passwd={p}&x=1", "{s}://h/db?PWD={p}"),
    *("host=h password={p} dbname=db", "host=h password = '{p}' dbname=db", "password={p}"),
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_form_shows_it(scheme, form):
    for password in PASSWORDS:
        for written in (password, quote(password, safe="")):
            shown = mask_url(form.format(s=scheme, p=written))

            assert password not in shown
            assert written not in shown
            assert "***" in shown


class TestMaskUrl:
    """What is shown of a URL."""

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("sqlite:///jobs.db", "sqlite:///jobs.db"),
            ("postgresql://db:5432/jobs", "postgresql://db:5432/jobs"),
            ("postgresql://app:p%40ss@db:5432/jobs", "postgresql://app:***@db:5432/jobs"),
            ("mysql://app:p@ss:w/rd@db/jobs", "mysql://app:***@db/jobs"),
            ("redis://:s3cret@db/0", "redis://:***@db/0"),  # without a user
            (
                "postgresql://db/x?user=a&password=b&c=d",
                "postgresql://db/x?user=a&password=***",
            ),
            ("mysql://db/x?PASSWD=b", "mysql://db/x?PASSWD=***"),
            # A scheme that is mistyped, or missing.
            ("postgresql//app:s3cret@db/jobs", "postgresql//app:***@db/jobs"),
            ("postgresql:app:s3cret@db/jobs", "postgresql:***@db/jobs"),
            ("app:s3cret@db/jobs", "app:***@db/jobs"),
            # Characters that should have been escaped.
            ("postgresql://app:s3?cret@db/jobs", "postgresql://app:***@db/jobs"),
            ("postgresql://app:s3#cret@db/jobs", "postgresql://app:***@db/jobs"),
            ("postgresql://app:s3cret%40db/jobs", "postgresql://app:***"),
            ("postgresql://app:s3cret", "postgresql://app:***"),
            # What is no password stays.
            ("postgresql://[::1]:5432/jobs", "postgresql://[::1]:5432/jobs"),
            ("postgresql://a:1,b:2/jobs", "postgresql://a:1,b:2/jobs"),
            ("postgresql://app@db:5432/x?options=a@b", "postgresql://app@db:5432/x?options=a@b"),
            ("sqlite:///C:/jobs@home.db", "sqlite:///C:/jobs@home.db"),
            ("sqlite:jobs.db", "sqlite:jobs.db"),
            ("postgresql://[fe80::1%25eth0]:1/x", "postgresql://[fe80::1%25eth0]:1/x"),
        ],
    )
    def test_only_the_password_is_hidden(self, url, shown):
        assert mask_url(url) == shown


@pytest.mark.parametrize("reason", ["S3CR3T/1", "s3cr3t%2f1", "S3CR3T\\/1", "'S3CR3T/1'"])
def test_a_driver_that_repeats_it_is_masked(reason):
    url = "postgresql://user:S3CR3T%2F1@host/db"

    assert "3cr3t" not in mask_reason(f"bad value: {reason}", url).lower()
    assert "bad value: " in mask_reason(f"bad value: {reason}", url)


def test_a_short_password_is_masked_as_a_word():
    assert mask_reason("app may not use 'ab': ab", "mysql://u:ab@h/d") == (
        "app may not use '***': ***"
    )


@pytest.mark.parametrize("part", ["S3", "CR3T@host", "CR3T"])
def test_the_text_about_a_malformed_url_is_replaced(part):
    """A driver takes a part of the password for a host or a port, and shows it."""
    reason = mask_reason(f"cannot resolve {part}", "mysql://user:S3/CR3T@host/db")

    assert part not in reason
    assert "%2F for /" in reason


def test_well_formed_urls_are_known():
    good = [f"{s}://u:{quote(p, safe='')}@h/d" for s, p in itertools.product(SCHEMES, PASSWORDS)]

    assert all(map(is_well_formed, good))
    assert not is_well_formed("mysql:u:p@h/d")
