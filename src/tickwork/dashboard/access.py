"""Access control: users, roles, tokens, sessions, CSRF tokens, and the limit of failed logins."""

import hmac
import ipaddress
import logging
import os
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self, TypeAlias

from tickwork.errors import InvalidOption

SECRET_MIN: Final = 16
SESSION_SECONDS: Final = 12 * 3600
FAILURES_MAX: Final = 10
"""Wrong tokens from one sender within a minute. Then its wrong tokens have to wait."""

FAILURES_SECONDS: Final = 60.0
IPV6_PREFIX: Final = 64
"""A client with IPv6 has all addresses of such a network."""

ADDRESSES_MAX: Final = 10_000
NAME_MAX: Final = 100
_log: Final = logging.getLogger("tickwork.dashboard")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]+")


class Role(IntEnum):
    """What a user may do. Each role includes the ones before it."""

    READER = 1  # read everything but secrets
    OPERATOR = 2  # also dispatch, retry, cancel, pause, resume, run schedules
    ADMIN = 3  # also edit schedules, change limits and delete runs


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user of the dashboard. The name appears in the audit log."""

    name: str
    role: Role = Role.READER

    def may(self, role: Role) -> bool:
        """Whether the user has this role, or one that includes it."""
        return self.role >= role


class Session(NamedTuple):
    """A user who signed in with a token: what the cookie of a browser stands for."""

    id: str
    user: User
    until: int
    """When it expires, in seconds since 1970."""

    csrf_token: str


class Caller(NamedTuple):
    """The user who sent a request, the client's address, and how the user was authenticated."""

    user: User
    address: str
    method: str = ""  # bearer, session, host or loopback
    session: Session | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AccessToken:
    """A secret that gives its holder a name and a role."""

    name: str
    secret: str
    role: Role = Role.READER

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_MAX:
            raise InvalidOption("name", self.name, "must be a line of text that is not empty")
        if len(self.secret) < SECRET_MIN:
            raise InvalidOption(
                f"the token of {self.name!r}",
                len(self.secret),
                f"must have at least {SECRET_MIN} characters",
                fix='Make one: python -c "import secrets; print(secrets.token_urlsafe())"',
            )

    def __repr__(self) -> str:
        return f"<AccessToken {self.name!r} {self.role.name.lower()}>"

    @property
    def user(self) -> User:
        """The user to whom the token belongs."""
        return User(name=self.name, role=self.role)


class LinkToken(AccessToken):
    """A token that is made when a server starts. It ends with the process, so a link may have it.

    Links with other tokens are refused: links are stored in histories and in logs of proxies.
    """

    __slots__ = ()

    @classmethod
    def make(cls) -> Self:
        """A new token of an administrator."""
        return cls(name="local", secret=secrets.token_urlsafe(24), role=Role.ADMIN)


Identify: TypeAlias = Callable[[Any], "User | Awaitable[User | None] | None"]
"""Finds the user of a request in the host application."""

Tokens: TypeAlias = Iterable[AccessToken] | Callable[[], Iterable[AccessToken]]
"""The tokens, or a function that returns those that are valid now."""


def parse_tokens(text: str) -> list[AccessToken]:
    """Read tokens from a file: a name, a role and a secret in each line.

    Raises:
        InvalidOption: A line has another form.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.split()
        if len(words) != 3 or words[1].upper() not in Role.__members__:
            raise InvalidOption(
                f"line {number} of the token file",
                f"{len(words)} words",
                "must be a name, a role (reader, operator or admin) and a secret",
            )
        found.append(AccessToken(name=words[0], secret=words[2], role=Role[words[1].upper()]))
    return found


class TokenTable:
    """Finds the user of a token, and signs sessions and CSRF tokens.

    Each token has a key of its own, made of everything that it grants. So every process with the
    same token accepts its sessions, and a token with another role, name or secret, or none at
    all, ends them. Changes of other tokens do not.
    """

    def __init__(self, tokens: Sequence[AccessToken], secret: str = "") -> None:
        self._tokens = {_digest(token.secret): token for token in tokens}
        if len(self._tokens) < len(tokens):
            counts = f"{len(self._tokens)} secrets of {len(tokens)} tokens"
            raise InvalidOption("tokens", counts, "must have different secrets")
        self._users_by_key = {_key_of(token, secret): token.user for token in tokens}
        # For users without a session. Without tokens and secret there is nothing to share.
        shared = "\0".join([secret, *sorted(token.secret for token in tokens)])
        self._key = _digest(f"forms\0{shared}") if tokens or secret else os.urandom(32)
        self._secret = secret

    def __bool__(self) -> bool:
        return bool(self._tokens)

    @property
    def has_link(self) -> bool:
        """Whether the server printed a link that signs in."""
        return any(isinstance(token, LinkToken) for token in self._tokens.values())

    def find(self, secret: str) -> AccessToken | None:
        """The token with this secret. The time of the comparison does not depend on it."""
        given, found = _digest(secret), None
        for digest, token in self._tokens.items():
            if hmac.compare_digest(given, digest):
                found = token
        return found

    def make_session(self, token: AccessToken, *, now: float) -> str:
        """Sign a session: the value of the cookie."""
        body = f"{secrets.token_urlsafe(12)}.{int(now) + SESSION_SECONDS}"
        return f"{body}.{_sign(_key_of(token, self._secret), 'session', body)}"

    def read_session(self, cookie: str, *, now: float) -> Session | None:
        """The session of a cookie that one of the tokens has signed, and that has not expired."""
        body, _, signature = cookie.rpartition(".")
        given = signature.encode(errors="replace")
        for key, user in self._users_by_key.items():
            if hmac.compare_digest(given, _sign(key, "session", body).encode()):
                session_id, _, until = body.partition(".")
                csrf_token = _sign(key, "csrf", session_id)
                session = Session(session_id, user, int(until), csrf_token)
                return session if session.until > now else None
        return None

    def csrf_token_of(self, caller: Caller) -> str:
        """The CSRF token that forms of this caller contain."""
        if caller.session is not None:
            return caller.session.csrf_token
        return _sign(self._key, "csrf", caller.user.name)

    def is_csrf_token(self, given: str, caller: Caller) -> bool:
        """Whether this is the CSRF token of this caller."""
        token = self.csrf_token_of(caller)
        return hmac.compare_digest(given.encode(errors="replace"), token.encode())


def _key_of(token: AccessToken, secret: str) -> bytes:
    return _digest(f"session\0{secret}\0{token.name}\0{token.role.name}\0{token.secret}")


def _sign(key: bytes, purpose: str, text: str) -> str:
    message = f"{purpose}\0{text}".encode(errors="surrogatepass")
    return blake2b(message, key=key, digest_size=24).hexdigest()


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=32).digest()


class LoginLimit:
    """Counts wrong tokens by sender: an IPv4 address, or the network of an IPv6 address.

    It never refuses a token that is right, because many people can share an address.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def add_failure(self, address: str, *, now: float) -> float:
        """Count a wrong token. Returns how long its sender has to wait; 0 if not at all."""
        sender = _sender_of(address)
        times = self._failures.setdefault(sender, deque(maxlen=FAILURES_MAX))
        self._failures.move_to_end(sender)
        if len(times) == FAILURES_MAX and times[0] + FAILURES_SECONDS > now:
            return times[0] + FAILURES_SECONDS - now
        times.append(now)
        if len(times) == FAILURES_MAX and times[0] + FAILURES_SECONDS > now:
            _log.warning("%d wrong tokens within a minute from %r.", FAILURES_MAX, sender)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return 0.0


def _sender_of(address: str) -> str:
    try:
        network = ipaddress.IPv6Network((address, IPV6_PREFIX), strict=False)
    except ValueError:
        return address
    return str(network)
