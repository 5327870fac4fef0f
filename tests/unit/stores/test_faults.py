"""A row that cannot be used is logged once, however often it is read."""

import pytest

from tickwork._stores._sql import faults
from tickwork._stores._sql.faults import report_fault


@pytest.fixture(autouse=True)
def reported(monkeypatch):
    found: set[tuple[str, str, str]] = set()
    monkeypatch.setattr(faults, "_reported", found)
    return found


def test_the_same_fact_is_logged_once(caplog):
    for _ in range(3):
        report_fault("tickwork_run", "a", "it is broken")

    assert caplog.messages == ["A row of tickwork_run cannot be used ('a'): it is broken"]


def test_another_row_table_or_reason_is_another_fact(caplog):
    facts = [
        ("tickwork_run", "a", "it is broken"),
        ("tickwork_run", "b", "it is broken"),
        ("tickwork_job", "a", "it is broken"),
        ("tickwork_run", "a", "it is still broken"),
    ]
    for fact in facts * 2:
        report_fault(*fact)

    assert len(caplog.messages) == len(facts)


def test_their_number_is_limited(caplog, monkeypatch, reported):
    monkeypatch.setattr(faults, "_REPORTED_MAX", 2)
    for number in range(4):
        report_fault("tickwork_run", number, "it is broken")

    assert len(caplog.messages) == len(reported) == 2
