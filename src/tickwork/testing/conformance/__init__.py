"""Test suites that every store and every engine must pass. They need pytest."""
