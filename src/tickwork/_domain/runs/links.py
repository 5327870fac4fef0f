"""What other rows depend on an unfinished run: the bits of its column ``links``.

A run that no other row depends on has 0, and its end needs no further statement.
"""

from typing import Final

WAITS: Final = 4
"""It waits for an event, or has waited for one: it may have a row in ``tickwork_wait``."""

HAS_STEPS: Final = 32
"""It repeats a failed run, and has got the steps of that one."""

SUSPENDED: Final = 8
"""It was suspended: it has steps, and its next attempt continues it."""
