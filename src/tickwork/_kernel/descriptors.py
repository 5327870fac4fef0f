"""Notices that code of this process has closed file descriptors that it does not own."""

import os
from contextlib import suppress

from tickwork._kernel.fork import reset_after_fork


class DescriptorGuard:
    """A pipe that only this object uses. Code that closes a range of descriptors closes it, too.

    A thread that waits for a descriptor does not notice that another thread closes it: it waits
    for ever, or for another file that gets the same number.
    """

    def __init__(self) -> None:
        self._descriptors = os.pipe()
        self._identities = [_identity_of(each) for each in self._descriptors]
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Close the copies: a process that a handler forked has no threads that wait."""
        self.close()

    def is_intact(self) -> bool:
        """Whether the descriptors still refer to the pipe."""
        try:
            return [_identity_of(each) for each in self._descriptors] == self._identities
        except OSError:
            return False

    def close(self) -> None:
        """Close the pipe, unless other code did that and the numbers refer to other files."""
        if self.is_intact():
            for each in self._descriptors:
                with suppress(OSError):
                    os.close(each)


def _identity_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
