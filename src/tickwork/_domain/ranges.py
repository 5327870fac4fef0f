"""The values that options with a number or a length of time can have."""

from datetime import timedelta
from typing import Any, Final, NamedTuple

from tickwork._kernel.durations import format_duration
from tickwork.errors import InvalidOption

MICROSECOND: Final = timedelta(microseconds=1)


class Range(NamedTuple):
    """From ``low`` to ``high``, both included. Without ``high`` there is no upper bound.

    >>> Range(timedelta(seconds=1), timedelta(days=1)).text
    'between 1s and 1d'
    >>> Range(1).text
    'at least 1'
    >>> Range(MICROSECOND).text
    'longer than 0s'
    """

    low: Any
    high: Any = None
    fix: str = ""

    @property
    def text(self) -> str:
        if self.high is not None:
            return f"between {_show(self.low)} and {_show(self.high)}"
        return "longer than 0s" if self.low == MICROSECOND else f"at least {_show(self.low)}"

    def check(self, option: str, value: Any) -> Any:
        """Return the value.

        Raises:
            InvalidOption: The range does not contain it.
        """
        if value < self.low or (self.high is not None and value > self.high):
            raise InvalidOption(option, value, f"must be {self.text}", fix=self.fix)
        return value


def _show(bound: Any) -> str:
    return format_duration(bound) if isinstance(bound, timedelta) else f"{bound:,}"
