"""Notifies listeners of this process of new runs."""

from threading import Event


class MemoryListener:
    def __init__(self) -> None:
        self._has_changed = Event()

    def call(self) -> None:
        self._has_changed.set()

    def wait(self, seconds: float) -> bool:
        is_heard = self._has_changed.wait(seconds)
        self._has_changed.clear()
        return is_heard

    def close(self) -> None:
        pass
