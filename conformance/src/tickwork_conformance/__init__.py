"""Test suites that every store and every engine of tickwork must pass."""

import pytest

# These are ordinary modules: without this, pytest shows no values of their assertions.
pytest.register_assert_rewrite(f"{__name__}.builders", f"{__name__}.engines", f"{__name__}.stores")
