"""The audit of dependencies does not report success for what it could not ask about."""

import json

import pytest

from architecture.audit import VARIABLE, Answer, read_answer

GOOD = {"name": "one", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "two", "skip_reason": "Dependency not found on PyPI"}
BAD = {
    "name": "three",
    "version": "3.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1"], "description": "…"}],
}


@pytest.fixture(autouse=True)
def not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def answer_of(*packages: object) -> Answer:
    answer = read_answer(json.dumps({"dependencies": packages, "fixes": []}))
    assert answer is not None
    return answer


def test_nothing_is_known():
    answer = answer_of(GOOD, GOOD)

    assert (answer.code, answer.render()) == (0, "2 packages audited: no known vulnerabilities.")


def test_a_vulnerability_is_an_error():
    answer = answer_of(GOOD, BAD)

    assert answer.code == 1
    assert "three 3.0: PYSEC-1, fixed in 3.1" in answer.render()


def test_a_package_without_an_answer_is_named(monkeypatch):
    answer = answer_of(GOOD, UNKNOWN)

    assert "1 of 2 packages were NOT audited" in answer.render()
    assert "two" in answer.render()
    assert "no known" not in answer.render()
    assert answer.code == 0
    monkeypatch.setenv(VARIABLE, "1")
    assert answer.code == 1


@pytest.mark.parametrize("output", ["", "no JSON", "{}"])
def test_no_answer(output):
    assert read_answer(output) is None
