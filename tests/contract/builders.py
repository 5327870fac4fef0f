"""The values of the conformance suite, for the other tests of stores."""

from tickwork_conformance.builders import *  # noqa: F403
