"""Authenticates the user of each request, and refuses cross-site request forgery (CSRF)."""

import inspect
import time
from typing import Final

from starlette.requests import HTTPConnection

from tickwork._kernel.clock import SystemClock
from tickwork.dashboard.access import (
    AccessToken,
    Caller,
    Identify,
    LinkToken,
    LoginLimit,
    Role,
    Tokens,
    TokenTable,
    User,
)
from tickwork.dashboard.ended_sessions import EndedSessions
from tickwork.dashboard.host_header import authority_of, is_loopback, is_own_origin
from tickwork.dashboard.problems import ProblemError

COOKIE: Final = "tickwork_session"
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

_CLOCK: Final = SystemClock()


class Authenticator:
    """Authenticates requests by access token, session cookie, or host application."""

    def __init__(
        self,
        tokens: Tokens,
        identify: Identify | None,
        ended: EndedSessions,
        *,
        secret: str = "",
        login_url: str = "",
    ) -> None:
        self._find_tokens = tokens if callable(tokens) else tuple(tokens).__iter__
        self._given: tuple[AccessToken, ...] = ()
        self._table = TokenTable((), secret)
        self._secret = secret
        self._identify = identify
        self._ended = ended
        self.login_url = login_url
        self._limit = LoginLimit()

    @property
    def tokens(self) -> TokenTable:
        """The table of the tokens that are valid now."""
        given = tuple(self._find_tokens())
        if given != self._given:
            self._given, self._table = given, TokenTable(given, self._secret)
        return self._table

    async def authenticate(self, request: HTTPConnection) -> Caller:
        """Find the user of a request.

        Raises:
            ProblemError: The request has no user, its token is wrong, or its address has to wait.
        """
        address = address_of(request)
        header = request.headers.get("authorization", "")
        scheme, _, secret = header.partition(" ")
        if scheme.lower() == "bearer":
            return Caller(self.log_in(request, secret.strip()).user, address, "bearer")
        cookie = request.cookies.get(cookie_name(request), "")
        session = self.tokens.read_session(cookie, now=_seconds()) if cookie else None
        if session is not None and not await self._ended.has(session):
            return Caller(session.user, address, "session", session)
        if self._identify is not None:
            try:
                found = self._identify(request)
                user = await found if inspect.isawaitable(found) else found
            except PermissionError as error:
                raise ProblemError(403, str(error), code="role") from error
            if user is not None:
                is_open = self._identify is identify_loopback
                return Caller(user, address, "loopback" if is_open else "host")
        raise ProblemError(
            401,
            "The request has no token.",
            code="no-token",
            fix="Send the header: Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def log_in(self, request: HTTPConnection, secret: str, *, is_link: bool = False) -> AccessToken:
        """The token with this secret; a link may have the token of a :class:`LinkToken` only.

        Wrong tokens are counted for each sender.

        Raises:
            ProblemError: The token is wrong.
        """
        found = self.tokens.find(secret)
        if found is not None and (isinstance(found, LinkToken) or not is_link):
            return found
        address = address_of(request)
        left = self._limit.add_failure(address, now=time.monotonic())
        if not left:
            raise ProblemError(
                401,
                "The link is not valid any more." if is_link else "The token is not known.",
                code="wrong-token",
                headers={"WWW-Authenticate": "Bearer"},
            )
        raise ProblemError(
            429,
            "There were too many wrong tokens from this address.",
            code="login-limit",
            headers={"Retry-After": str(int(left) + 1)},
        )

    def start_session(self, token: AccessToken) -> str:
        """The value of the cookie of a new session."""
        return self.tokens.make_session(token, now=_seconds())

    async def end_session(self, caller: Caller) -> None:
        """Refuse the cookie of the caller from now on, also a copy of it."""
        if caller.session is not None:
            await self._ended.add(caller.session, caller)

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
        if not self.tokens.is_csrf_token(token, caller):
            raise ProblemError(
                403, "The form is too old, or from another site.", code="csrf", fix="Reload it."
            )


def check_same_origin(request: HTTPConnection) -> None:
    """Refuse a request that a page of another site sends.

    Raises:
        ProblemError: The request comes from another site.
    """
    # Every browser sends one of them with a POST. The first does not depend on the host name,
    # which a proxy may have changed, but browsers send it to HTTPS and to this machine only.
    site, origin = (request.headers.get(name) for name in ("sec-fetch-site", "origin"))
    is_own = (
        site in {"same-origin", "none"}
        if site is not None
        else origin is None or is_own_origin(origin, request)
    )
    if not is_own:
        raise ProblemError(
            403,
            "The request comes from another site.",
            code="csrf",
            fix="If it does not: a proxy must pass on the Host header of the request.",
        )


def cookie_name(request: HTTPConnection) -> str:
    """The name of the session cookie: browsers send a cookie to all ports of a host."""
    host = authority_of(request)
    return COOKIE if host is None or host.port is None else f"{COOKIE}_{host.port}"


def address_of(request: HTTPConnection) -> str:
    """The address of the client; empty if the server does not know it."""
    return "" if request.client is None else request.client.host


def identify_loopback(request: HTTPConnection) -> User:
    """Make every client on this machine an administrator.

    Raises:
        ProblemError: The client, or the host name in the URL, is not of this machine.
    """
    # The Host header counts, too: a page of another site may give its own name the address
    # 127.0.0.1 (DNS rebinding).
    host = authority_of(request)
    is_proxied = any(name in request.headers for name in _FORWARDED)
    is_local = host is not None and is_loopback(host.host) and is_loopback(address_of(request))
    if is_proxied or not is_local:
        raise ProblemError(
            403,
            "This dashboard was started with --no-token: it answers only its own machine.",
            code="local-only",
            fix="Start it without --no-token, and use the link that it prints.",
        )
    return User(name="local", role=Role.ADMIN)


def _seconds() -> float:
    # Other processes read the expiry of a session.
    return _CLOCK.now().timestamp()
