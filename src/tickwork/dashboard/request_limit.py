"""How many requests of the API one user may make: a client in a loop must not slow down others."""

from collections import OrderedDict
from typing import Final, NamedTuple

USERS_MAX: Final = 10_000
BURST_SECONDS: Final = 10.0
"""A user who was quiet may make the requests of so many seconds at once."""


class _Allowance(NamedTuple):
    requests: float  # that the user may make now
    at: float


class RequestLimit:
    """Counts the requests of each user in this process: so many per minute; 0 is no limit."""

    def __init__(self, per_minute: int) -> None:
        self._per_second = per_minute / 60
        self._burst = max(self._per_second * BURST_SECONDS, 1)
        self._by_user: OrderedDict[str, _Allowance] = OrderedDict()

    def take(self, user: str, *, now: float) -> float:
        """Count a request. Returns how many seconds the user has to wait; 0 if not at all."""
        if not self._per_second:
            return 0.0
        last = self._by_user.get(user, _Allowance(self._burst, now))
        left = min(last.requests + (now - last.at) * self._per_second, self._burst)
        is_allowed = left >= 1
        self._by_user[user] = _Allowance(left - is_allowed, now)
        self._by_user.move_to_end(user)
        while len(self._by_user) > USERS_MAX:
            self._by_user.popitem(last=False)
        return 0.0 if is_allowed else (1 - left) / self._per_second
