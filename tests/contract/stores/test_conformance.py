"""The conformance suite, on each store of conftest.py."""

from tickwork.testing.conformance.stores import *  # noqa: F403
