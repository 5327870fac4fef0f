"""Hears that this process has added work."""

from threading import Event


class MemoryListener:
    """A flag that is raised when runs were added."""

    def __init__(self) -> None:
        self._has_changed = Event()

    def call(self) -> None:
        """Something was added."""
        self._has_changed.set()

    def wait(self, seconds: float) -> bool:
        is_heard = self._has_changed.wait(seconds)
        self._has_changed.clear()
        return is_heard

    def close(self) -> None:
        """There is nothing to let go of."""
