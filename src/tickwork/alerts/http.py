"""Alerts by HTTP: a webhook with a signature, and Slack."""

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tickwork._kernel.version import VERSION
from tickwork.alerts.contract import MissedRunAlert
from tickwork.errors import InvalidOption

TIMEOUT: Final = 10.0
TOLERANCE: Final = timedelta(minutes=15)
_SIGNATURE: Final = "X-Tickwork-Signature"
_TIMESTAMP: Final = "X-Tickwork-Timestamp"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Sends alerts as JSON to a URL, signed with a secret if there is one.

    Any answer from 200 to 299 accepts the alert.
    """

    url: str
    secret: str | None = field(default=None, repr=False, kw_only=True)
    timeout: float = field(default=TIMEOUT, kw_only=True)  # in seconds

    def __post_init__(self) -> None:
        check_url(self.url)

    @property
    def name(self) -> str:
        """The host, because the rest of a URL may be a secret."""
        return f"webhook {urlsplit(self.url).hostname}"

    def send(self, alert: MissedRunAlert) -> None:
        """Send one request."""
        body = json.dumps(alert.to_json()).encode()
        headers = {"X-Tickwork-Id": alert.id}
        if self.secret is not None:
            stamp = str(int(alert.at.timestamp()))
            headers |= {_TIMESTAMP: stamp, _SIGNATURE: _sign(self.secret, stamp, body)}
        request(self.url, body, headers=headers, timeout=self.timeout)


@dataclass(frozen=True, slots=True)
class Slack:
    """Sends alerts to an incoming webhook of Slack, or of a program that reads the same JSON."""

    url: str = field(repr=False)
    timeout: float = field(default=TIMEOUT, kw_only=True)

    def __post_init__(self) -> None:
        check_url(self.url)

    @property
    def name(self) -> str:
        """The host, because the rest of the URL is a secret."""
        return f"Slack {urlsplit(self.url).hostname}"

    def send(self, alert: MissedRunAlert) -> None:
        """Send one message."""
        sign = ":white_check_mark:" if alert.is_over else ":rotating_light:"
        body = json.dumps({"text": f"{sign} {alert.text}"}).encode()
        request(self.url, body, timeout=self.timeout)


def verify_signature(
    body: bytes, headers: Mapping[str, str], *, secret: str, now: datetime | None = None
) -> bool:
    """Check a request of :class:`Webhook`: for the program that receives it.

    With ``now``, a request whose alert is older than 15 minutes is refused, too.
    """
    given = {name.lower(): value for name, value in headers.items()}
    stamp = given.get(_TIMESTAMP.lower(), "")
    signature = given.get(_SIGNATURE.lower(), "")
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
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidOption("url", url, "must begin with https:// or http://")
    return url


def request(
    url: str,
    body: bytes | None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> None:
    """Send one request; raise an exception unless the answer is a success."""
    sent = {"User-Agent": f"tickwork/{VERSION}", **(headers or {})}
    if body is not None:
        sent["Content-Type"] = "application/json"
    try:
        with urlopen(Request(url, body, sent), timeout=timeout) as answer:  # noqa: S310  # checked
            answer.read(1024)
    except HTTPError as error:
        error.close()
        raise ConnectionError(f"{urlsplit(url).hostname} answered {error.code}") from None


def _sign(secret: str, stamp: str, body: bytes) -> str:
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, sha256).hexdigest()
    return f"sha256={digest}"
