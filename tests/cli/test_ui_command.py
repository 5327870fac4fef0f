"""``tickwork ui``: it prints a link, and accepts nothing without a token."""

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import httpx
import pytest

PROGRAM = """
from tickwork import Tickwork
app = Tickwork("sqlite:///{folder}/jobs.db")
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "shop.py").write_text(PROGRAM.format(folder=tmp_path), encoding="utf-8")
    started: list[Any] = []

    def run(*args, **environment):
        import os

        process = subprocess.Popen(
            [sys.executable, "-m", "tickwork", "-a", "shop:app", "ui", "--port", "0", *args],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def address_of(process):
    """The address that the command prints, maybe after lines of the log."""
    return link_of(process).partition("login")[0]


def link_of(process):
    for line in process.stdout:
        found = re.search(r"http://\S+", line)
        if found is not None:
            return found[0]
    raise AssertionError("it has ended")


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def ask(url, head):
    """The status line of the answer to a raw request."""
    port = urllib.parse.urlsplit(url).port
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode("latin-1"))
        return int(connection.makefile("rb").readline().split()[1])


def test_it_prints_a_link_and_accepts_nothing_without_its_token(start):
    process = start()
    link = link_of(process)
    url, _, token = link.partition("login?token=")

    assert "It works until the dashboard stops" in process.stdout.readline()
    assert len(token) >= 32
    assert get(f"{url}api/v1/queues") == 401
    # As a plain nginx sends it: from this machine, with its own Host, without a header.
    assert ask(url, "GET /api/v1/queues HTTP/1.0\r\nHost: 127.0.0.1:8737") == 401
    assert get(f"{url}api/v1/queues", Authorization=f"Bearer {token}") == 200
    with httpx.Client(headers={"Accept": "text/html"}, follow_redirects=True) as browser:
        assert str(browser.get(link).url) == url
    process.send_signal(signal.SIGINT)
    process.wait(15)


def test_two_starts_print_two_links(start):
    first, second = (link_of(start()).partition("token=")[2] for _ in range(2))

    assert first != second


def test_no_token_opens_it_to_this_machine_and_names_the_danger(start):
    process = start("--no-token")
    url = address_of(process)

    assert "everyone who reaches this port through a proxy" in process.stdout.readline()
    assert get(url) == 200
    assert get(url, **{"X-Forwarded-For": "10.0.0.7"}) == 403
    good = "Host: 127.0.0.1"
    assert ask(url, f"GET / HTTP/1.1\r\n{good}") == 200
    for head in (
        "GET / HTTP/1.1\r\nHost: [::1]evil",
        f"GET / HTTP/1.1\r\n{good}\r\nHost: evil.example",
        f"GET / HTTP/1.1\r\nHost: evil.example\r\n{good}",
        "GET / HTTP/1.1\r\nHost:",
        "GET / HTTP/1.1",
        "GET / HTTP/1.0",
        f"GET http://evil.example/ HTTP/1.1\r\n{good}",
        "GET http://127.0.0.1/ HTTP/1.1\r\nHost: evil.example",
        f"GET //evil.example/ HTTP/1.1\r\n{good}",
    ):
        assert ask(url, head) in {400, 403, 404}, head


@pytest.mark.parametrize(
    ("arguments", "environment", "reason"),
    [
        (["--host", "0.0.0.0"], {}, "while no token is configured"),
        (["--host", "192.0.2.1"], {}, "while no token is configured"),
        ([], {"TICKWORK_UI_TOKEN": "0123456789abcdef"}, "excludes configured tokens"),
        (["--trusted-proxy", "127.0.0.1"], {}, "excludes trusted proxies"),
        (["--trusted-proxy", "*"], {}, "must be an address or a network"),
    ],
)
def test_no_token_is_refused_where_it_is_dangerous(start, arguments, environment, reason):
    process = start("--no-token", *arguments, **environment)

    assert process.wait(20) != 0
    assert reason in " ".join(process.stdout.read().split())


def test_an_empty_token_file_is_refused(start, tmp_path):
    (tmp_path / "tokens").write_text("# nothing\n", encoding="utf-8")
    process = start("--token-file", "tokens")

    assert process.wait(20) != 0
    assert "must have at least one token" in process.stdout.read()


def test_a_token_is_needed_when_there_is_one(start):
    process = start(TICKWORK_UI_TOKEN="0123456789abcdef")
    url = address_of(process)

    assert get(f"{url}api/v1/queues") == 401
    assert get(f"{url}api/v1/queues", Authorization="Bearer 0123456789abcdef") == 200


def test_it_does_not_start_open_to_everyone(start):
    process = start("--host", "0.0.0.0")

    assert process.wait(20) != 0
    assert "TICKWORK_UI_TOKEN" in process.stdout.read()
