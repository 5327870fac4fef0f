"""Access control: users, roles, tokens, sessions, CSRF tokens, and the limit of failed logins."""

import hmac
import ipaddress
import json
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

from tickwork.errors import InvalidOption

SECRET_MIN: Final = 16
SESSION_SECONDS: Final = 12 * 3600
FAILURES_MAX: Final = 10
"""Wrong tokens from one address within a minute. Then the address has to wait."""

FAILURES_SECONDS: Final = 60.0
ADDRESSES_MAX: Final = 10_000
NAME_MAX: Final = 100
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


class Caller(NamedTuple):
    """The user who sent a request, the client's address, and how the user was authenticated."""

    user: User
    address: str
    method: str = ""  # bearer, session, host or loopback


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


Identify: TypeAlias = Callable[[Any], "User | Awaitable[User | None] | None"]
"""Finds the user of a request in the host application."""


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
    """Finds the user of a token, and signs sessions and CSRF tokens."""

    def __init__(self, tokens: Sequence[AccessToken], secret: str = "") -> None:
        by_digest = {_digest(token.secret): token for token in tokens}
        if len(by_digest) < len(tokens):
            counts = f"{len(by_digest)} secrets of {len(tokens)} tokens"
            raise InvalidOption("tokens", counts, "must have different secrets")
        self._tokens = by_digest
        # Derived from the tokens, so that every process accepts the sessions of the others, and
        # a change of the tokens ends all sessions. Without tokens there is nothing to share.
        secrets = "\0".join([secret, *sorted(token.secret for token in tokens)])
        is_known = bool(tokens or secret)
        self._key = _digest(f"session\0{secrets}") if is_known else os.urandom(32)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def find(self, secret: str) -> User | None:
        """The user of a token. The time of the comparison does not depend on the secret."""
        given, found = _digest(secret), None
        for digest, token in self._tokens.items():
            if hmac.compare_digest(given, digest):
                found = token
        return None if found is None else found.user

    def make_session(self, user: User, *, now: float) -> str:
        """Sign a session: the value of the cookie."""
        facts = [user.name, int(user.role), int(now) + SESSION_SECONDS]
        body = urlsafe_b64encode(json.dumps(facts).encode()).decode().rstrip("=")
        return f"{body}.{self._sign('session', body)}"

    def read_session(self, cookie: str, *, now: float) -> User | None:
        """The user of a session that is signed and has not expired."""
        body, dot, signature = cookie.partition(".")
        if not dot or not hmac.compare_digest(
            signature.encode(errors="replace"), self._sign("session", body).encode()
        ):
            return None
        name, role, until = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return User(name=name, role=Role(role)) if until > now else None

    def csrf_token_of(self, user: User) -> str:
        """The CSRF token that forms of this user contain."""
        return self._sign("csrf", user.name)

    def is_csrf_token(self, given: str, user: User) -> bool:
        """Whether this is the CSRF token of this user."""
        token = self.csrf_token_of(user)
        return hmac.compare_digest(given.encode(errors="replace"), token.encode())

    def _sign(self, purpose: str, text: str) -> str:
        message = f"{purpose}\0{text}".encode(errors="surrogatepass")
        return blake2b(message, key=self._key, digest_size=24).hexdigest()


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=32).digest()


class LoginLimit:
    """Counts wrong tokens by address."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def seconds_left(self, address: str, *, now: float) -> float:
        """How long the address has to wait; 0 if it may try."""
        times = self._failures.get(address)
        if times is None or len(times) < FAILURES_MAX:
            return 0.0
        return max(times[0] + FAILURES_SECONDS - now, 0.0)

    def add_failure(self, address: str, *, now: float) -> None:
        """Note a wrong token."""
        times = self._failures.setdefault(address, deque(maxlen=FAILURES_MAX))
        times.append(now)
        self._failures.move_to_end(address)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)


def is_loopback(address: str) -> bool:
    """Whether this is an address, or a host name, of this machine."""
    host = address.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
