"""The values of the conformance suite, for the other tests of stores."""

from tickwork.testing.conformance.builders import *  # noqa: F403
