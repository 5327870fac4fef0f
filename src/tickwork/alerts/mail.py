"""Alerts by e-mail."""

import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Final

from tickwork.alerts.connection import check_address, check_allow
from tickwork.alerts.contract import AlertMessage
from tickwork.errors import InvalidOption

_SECURITY: Final = ("starttls", "tls", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """Sends alerts by SMTP, with STARTTLS unless ``security`` is ``"tls"`` or ``"none"``.

    ``allow`` lists link-local addresses or networks that may be the server.
    """

    host: str
    sender: str
    to: str | Sequence[str]
    port: int = 587
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    security: str = "starttls"
    timeout: float = 10.0  # in seconds
    allow: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_allow(self.allow)
        if self.security not in _SECURITY:
            rule = f"must be one of {', '.join(_SECURITY)}"
            raise InvalidOption("security", self.security, rule)
        if self.password is not None and self.security == "none":
            raise InvalidOption(
                "security", "none", "must be 'starttls' or 'tls' for a password to be sent"
            )

    @property
    def name(self) -> str:
        """The server."""
        return f"e-mail {self.host}"

    def send(self, alert: AlertMessage) -> None:
        """Send one message."""
        message = EmailMessage()
        message["Subject"] = f"[tickwork] {alert.title}"
        message["From"] = self.sender
        message["To"] = self.to if isinstance(self.to, str) else ", ".join(self.to)
        message["Date"] = format_datetime(alert.at)
        message["Message-ID"] = make_msgid(alert.id.replace(":", "-"), domain="tickwork")
        message.set_content(f"{alert.text}\n\nJob: {alert.job}\n")
        context = ssl.create_default_context()
        server: smtplib.SMTP
        if self.security == "tls":
            server = smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=self.timeout)
        with server:
            check_address(self.host, server.sock.getpeername()[0], allow=self.allow)  # type: ignore[union-attr]
            if self.security == "starttls":
                server.starttls(context=context)
            if self.username is not None and self.password is not None:
                server.login(self.username, self.password)
            server.send_message(message)
