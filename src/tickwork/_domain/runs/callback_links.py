"""Links that answer a wait of a run: a signed text, for which no row is needed.

A text has the run, the event, the answers that the page of the link offers and the time until which
it is valid. Who has the link can read that, and cannot change it.
"""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from tickwork._domain.identity import RunId

VERSION: Final = "1"
TOKEN_MAX: Final = 4_000
"""The longest signed text, in characters: programs of mail and proxies cut longer links."""

_PURPOSE: Final = b"tickwork callback\0"
"""Part of what is signed, so that a signature for something else is none for a link."""


class CallbackLink(NamedTuple):
    """What a link says."""

    run_id: RunId
    event: str
    until: datetime
    answers: tuple[str, ...] = ()  # which the page offers; empty: any data


def sign_link(link: CallbackLink, secret: str) -> str:
    """Make the signed text.

    >>> link = CallbackLink(RunId("7"), "approved", datetime(2026, 1, 1, tzinfo=UTC))
    >>> read_link(sign_link(link, "s" * 32), ["t" * 32, "s" * 32]) == link
    True
    """
    facts = [link.run_id, link.event, int(link.until.timestamp()), *link.answers]
    body = _to_text(json.dumps(facts, separators=(",", ":")).encode())
    return f"{VERSION}.{body}.{_sign(body, secret)}"


def read_link(token: str, secrets: Sequence[str]) -> CallbackLink | None:
    """Read a signed text; None if none of the secrets has signed it."""
    version, _, rest = token.partition(".")
    body, _, signature = rest.partition(".")
    if len(token) > TOKEN_MAX or not token.isascii() or version != VERSION:
        return None
    # Compare all of them: the time must not depend on which one fits.
    fits = [hmac.compare_digest(signature, _sign(body, secret)) for secret in secrets]
    if not any(fits):
        return None
    run_id, event, until, *answers = _read_facts(body)
    return CallbackLink(RunId(run_id), event, datetime.fromtimestamp(until, UTC), tuple(answers))


def _read_facts(body: str) -> Any:
    # It is signed, so it is what sign_link wrote.
    return json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def _sign(body: str, secret: str) -> str:
    signed = _PURPOSE + VERSION.encode() + b"\0" + body.encode()
    return _to_text(hmac.digest(secret.encode(), signed, sha256))


def _to_text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
