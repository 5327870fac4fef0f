"""Alerts by HTTP: a webhook with a signature, and Slack."""

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request

from tickwork._kernel.version import VERSION
from tickwork._masks.text import MASK
from tickwork.alerts.connection import build_opener, check_allow, check_host
from tickwork.alerts.contract import AlertMessage
from tickwork.errors import InvalidOption

TIMEOUT: Final = 10.0
TOLERANCE: Final = timedelta(minutes=15)
_SIGNATURE: Final = "X-Tickwork-Signature"
_TIMESTAMP: Final = "X-Tickwork-Timestamp"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Sends alerts as JSON to a URL, signed with a secret if there is one.

    Any answer from 200 to 299 accepts the alert; a redirect is an error. ``allow`` lists link-local
    addresses or networks that may be the target.
    """

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False, kw_only=True)
    timeout: float = field(default=TIMEOUT, kw_only=True)  # in seconds
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_url(self.url)
        check_allow(self.allow)

    @property
    def name(self) -> str:
        """The host, because the rest of a URL may be a secret."""
        return f"webhook {urlsplit(self.url).hostname}"

    def send(self, alert: AlertMessage) -> None:
        """Send one request."""
        body = json.dumps(alert.to_json()).encode()
        headers = {"X-Tickwork-Id": alert.id}
        if self.secret is not None:
            stamp = str(int(alert.at.timestamp()))
            headers |= {_TIMESTAMP: stamp, _SIGNATURE: _sign(self.secret, stamp, body)}
        request(self.url, body, headers=headers, timeout=self.timeout, allow=self.allow)


@dataclass(frozen=True, slots=True)
class Slack:
    """Sends alerts to an incoming webhook of Slack, or of a program that reads the same JSON."""

    url: str = field(repr=False)
    timeout: float = field(default=TIMEOUT, kw_only=True)
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_url(self.url)
        check_allow(self.allow)

    @property
    def name(self) -> str:
        """The host, because the rest of the URL is a secret."""
        return f"Slack {urlsplit(self.url).hostname}"

    def send(self, alert: AlertMessage) -> None:
        """Send one message."""
        sign = ":white_check_mark:" if alert.is_over else ":rotating_light:"
        body = json.dumps({"text": f"{sign} {alert.text}"}).encode()
        request(self.url, body, timeout=self.timeout, allow=self.allow)


def verify_signature(
    body: bytes, headers: Mapping[str, str], *, secret: str, now: datetime | None = None
) -> bool:
    """Check a request of :class:`Webhook`: for the program that receives it.

    With ``now``, a request whose alert is older than 15 minutes is refused, too.
    """
    header_by_name = {name.lower(): value for name, value in headers.items()}
    stamp = header_by_name.get(_TIMESTAMP.lower(), "")
    signature = header_by_name.get(_SIGNATURE.lower(), "")
    if not stamp.isdecimal():
        return False
    if now is not None and abs(now.timestamp() - int(stamp)) > TOLERANCE.total_seconds():
        return False
    return hmac.compare_digest(_sign(secret, stamp, body).encode(), signature.encode())


def check_url(url: str) -> str:
    """Check that this is a URL of HTTP.

    Raises:
        InvalidOption: It is not.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_valid = False
    if not is_valid:
        # The URL may be a secret: many services give one to each client.
        raise InvalidOption("url", MASK, "must begin with https:// or http://, and have a host")
    return url


def request(
    url: str,
    body: bytes | None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    allow: Sequence[str] = (),
) -> None:
    """Send one request; raise an exception unless the answer is a success.

    Redirects are not followed: another host would get the request with its signature.
    """
    sent = {"User-Agent": f"tickwork/{VERSION}", **(headers or {})}
    if body is not None:
        sent["Content-Type"] = "application/json"
    host = urlsplit(url).hostname or ""
    check_host(host, allow=allow)
    try:
        with build_opener(allow=allow).open(Request(url, body, sent), timeout=timeout) as answer:  # noqa: S310  # checked
            answer.read(1024)
    except HTTPError as error:
        error.close()
        is_redirect = 300 <= error.code < 400
        advice = ". Redirects are not followed: use the URL to which it leads" * is_redirect
        raise ConnectionError(f"{host} answered {error.code}{advice}") from None
    except URLError as error:
        if isinstance(error.reason, OSError):
            raise error.reason from None
        raise


def _sign(secret: str, stamp: str, body: bytes) -> str:
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, sha256).hexdigest()
    return f"sha256={digest}"
