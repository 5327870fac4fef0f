"""Resets objects in forked child processes: threads are gone there, and locks may be held."""

import os
import sys
import weakref
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock
from typing import Final, NoReturn, Protocol, TypeVar

from tickwork._kernel.loggers import get_logger

_log: Final = get_logger("tickwork.fork")


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Forget threads and create new locks. Called in the child, before anything else."""
        ...


class PausedByFork(ForkAware, Protocol):
    """An object that no thread may use while the process forks."""

    def before_fork(self) -> None:
        """Wait until no thread uses it, and keep others from using it."""
        ...

    def after_fork_in_parent(self) -> None:
        """Let other threads use it again."""
        ...


class InheritedFile(Protocol):
    def fileno(self) -> int: ...


T = TypeVar("T")

_aware: Final["weakref.WeakSet[ForkAware]"] = weakref.WeakSet()
_paused: Final["weakref.WeakSet[PausedByFork]"] = weakref.WeakSet()
_files: Final["weakref.WeakSet[InheritedFile]"] = weakref.WeakSet()
_left_to_parent: Final[list[InheritedFile]] = []
"""Files of the parent process. They stay referenced, so that they are never closed here."""

_pausing: Final[list[PausedByFork]] = []
_forking: Final = Lock()
"""Held by the thread that forks: two threads would take each other's locks, and wait for ever."""


def reset_after_fork(item: ForkAware) -> None:
    """Call ``after_fork`` of this object in every forked child."""
    _aware.add(item)


def pause_for_fork(item: PausedByFork) -> None:
    """Call the methods of this object before and after every fork."""
    _paused.add(item)


def leave_to_parent(file: InheritedFile) -> None:
    """Do not keep this file open in forked children.

    Its descriptor refers to nothing there: whatever code of the child still writes to it, or
    closes it, does not reach the connection of the parent.
    """
    _files.add(file)


class ForkCount:
    """How many forks lie between the first process of a program and this one."""

    value = 0


def exit_if_forked(since: int, *, is_failed: bool) -> None:
    """End this process if it was forked since :class:`ForkCount` had this value."""
    if ForkCount.value != since:
        exit_forked(is_failed=is_failed)


def exit_forked(*, is_failed: bool = False) -> NoReturn:
    """End a forked process whose code returns to that of its parent."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(1 if is_failed else 0)


def _before_fork() -> None:
    _forking.acquire()
    for item in list(_paused):
        try:
            item.before_fork()
        except Exception:  # noqa: BLE001  # the fork goes on
            _log.exception("A %s could not be paused for a fork.", type(item).__name__)
        else:
            _pausing.append(item)


def _after_fork_in_parent() -> None:
    try:
        for item in _take_all(_pausing):
            item.after_fork_in_parent()
    finally:
        _forking.release()


def _after_fork_in_child() -> None:
    ForkCount.value += 1
    _forking.release()  # this thread, the only one here, took it before the fork
    for item in [*_take_all(_pausing), *_aware]:
        item.after_fork()
    _detach(_take_all(_files))


def _detach(files: Iterable[InheritedFile]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for file in files:
        _left_to_parent.append(file)
        with suppress(OSError, ValueError):  # it is closed
            if (number := file.fileno()) >= 0:
                os.dup2(null, number, inheritable=False)
    os.close(null)


def _take_all(items: "list[T] | weakref.WeakSet[T]") -> list[T]:
    taken = list(items)
    items.clear()
    return taken


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
