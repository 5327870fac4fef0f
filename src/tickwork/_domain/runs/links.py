"""What other rows depend on an unfinished run: the bits of its column ``links``.

A run that no other row depends on has 0, and its end needs no further statement.
"""

from typing import Final

CALLED: Final = 1
"""Another run has called it, and waits for its end: it may have rows in ``tickwork_edge``."""

WAITS: Final = 4
"""It waits for an event, or has waited for one: it may have a row in ``tickwork_wait``."""

CALLS: Final = 16
"""It has called other runs, and waits or has waited for them."""

HAS_STEPS: Final = 32
"""It repeats a failed run, and has got the steps of that one."""

SUSPENDED: Final = 8
"""It was suspended: it has steps, and its next attempt continues it."""
