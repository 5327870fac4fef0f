"""The conformance suite, on each store of conftest.py."""

from tickwork_conformance.stores import *  # noqa: F403
