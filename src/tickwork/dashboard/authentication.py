"""Authenticates the user of each request, and refuses cross-site request forgery (CSRF)."""

import inspect
import time
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from tickwork._kernel.clock import SystemClock
from tickwork.dashboard.access import (
    AccessToken,
    Caller,
    Identify,
    LoginLimit,
    Role,
    TokenTable,
    User,
    is_loopback,
)
from tickwork.dashboard.problems import ProblemError

COOKIE: Final = "tickwork_session"
LOCAL_ONLY: Final = (
    "No token is configured, so the dashboard answers only requests from its own machine."
)
LOCAL_FIX: Final = "Set TICKWORK_UI_TOKEN, pass tokens= or identify=, or connect through SSH."
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")

_CLOCK: Final = SystemClock()


class Authenticator:
    """Authenticates requests by access token, session cookie, host application or local address."""

    def __init__(
        self,
        tokens: tuple[AccessToken, ...],
        identify: Identify | None,
        *,
        secret: str = "",
        login_url: str = "",
    ) -> None:
        self.tokens = TokenTable(tokens, secret)
        self._identify = identify
        self.login_url = login_url
        self._limit = LoginLimit()

    @property
    def is_local_only(self) -> bool:
        """Whether only requests from this machine are answered."""
        return not self.tokens and self._identify is None

    async def authenticate(self, request: HTTPConnection) -> Caller:
        """Find the user of a request.

        Raises:
            ProblemError: The request has no user, its token is wrong, or its address has to wait.
        """
        if self.is_local_only:
            return _authenticate_local(request)
        address = address_of(request)
        header = request.headers.get("authorization", "")
        scheme, _, secret = header.partition(" ")
        if scheme.lower() == "bearer":
            return Caller(self.log_in(request, secret.strip()), address, "bearer")
        cookie = request.cookies.get(COOKIE, "")
        user = self.tokens.read_session(cookie, now=_seconds()) if cookie else None
        if user is not None:
            return Caller(user, address, "session")
        if self._identify is not None:
            try:
                found = self._identify(request)
                user = await found if inspect.isawaitable(found) else found
            except PermissionError as error:
                raise ProblemError(403, str(error), code="role") from error
            if user is not None:
                return Caller(user, address, "host")
        raise ProblemError(
            401,
            "The request has no token.",
            code="no-token",
            fix="Send the header: Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def log_in(self, request: HTTPConnection, secret: str) -> User:
        """The user of a token; wrong tokens are counted for each address.

        Raises:
            ProblemError: The token is wrong, or the address has to wait.
        """
        address, now = address_of(request), time.monotonic()
        left = self._limit.seconds_left(address, now=now)
        if left:
            raise ProblemError(
                429,
                "There were too many wrong tokens from this address.",
                code="login-limit",
                headers={"Retry-After": str(int(left) + 1)},
            )
        user = self.tokens.find(secret)
        if user is None:
            self._limit.add_failure(address, now=now)
            raise ProblemError(
                401,
                "The token is not known.",
                code="wrong-token",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return user

    def start_session(self, user: User) -> str:
        """The value of the cookie of a new session."""
        return self.tokens.make_session(user, now=_seconds())

    def check_csrf(self, request: HTTPConnection, caller: Caller, *, token: str) -> None:
        """Refuse a change that another site made the browser send.

        A browser never sends a bearer token on its own, so such requests need no CSRF token.

        Raises:
            ProblemError: The request comes from another site, or has no CSRF token.
        """
        if caller.method == "bearer":
            return
        check_same_origin(request)
        headers = request.headers
        is_browser = "origin" in headers or "sec-fetch-site" in headers
        if caller.method == "loopback" and not is_browser and not token:
            return  # curl on this machine
        self.check_csrf_token(caller, token)

    def check_csrf_token(self, caller: Caller, token: str) -> None:
        """Check that a form or a request has the CSRF token of the caller.

        Raises:
            ProblemError: The token is missing, or is not the one of the user.
        """
        if not self.tokens.is_csrf_token(token, caller.user):
            raise ProblemError(
                403, "The form is too old, or from another site.", code="csrf", fix="Reload it."
            )


def check_same_origin(request: HTTPConnection) -> None:
    """Refuse a request that a page of another site sends.

    Raises:
        ProblemError: The request comes from another site.
    """
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    if site not in {"same-origin", "none"} or (
        origin is not None and urlsplit(origin).netloc.lower() != host.lower()
    ):
        raise ProblemError(403, "The request comes from another site.", code="csrf")


def address_of(request: HTTPConnection) -> str:
    """The address of the client; empty if the server does not know it."""
    return "" if request.client is None else request.client.host


def _authenticate_local(request: HTTPConnection) -> Caller:
    # The Host header counts, too: a page of another site may give its own name the address
    # 127.0.0.1 (DNS rebinding). Behind a proxy on this machine, every client has such an address.
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    is_proxied = any(name in request.headers for name in _FORWARDED)
    address = address_of(request)
    if is_proxied or not (is_loopback(address) and is_loopback(host)):
        raise ProblemError(403, LOCAL_ONLY, code="local-only", fix=LOCAL_FIX)
    return Caller(User(name="local", role=Role.ADMIN), address, "loopback")


def _seconds() -> float:
    # Other processes read the expiry of a session.
    return _CLOCK.now().timestamp()
