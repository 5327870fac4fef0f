"""What tests of programs that use tickwork need."""

from tickwork.testing.clock import ManualClock

__all__ = ["ManualClock"]
