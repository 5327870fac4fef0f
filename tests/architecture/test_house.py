"""The worker stays readable: few holders, short functions, and a reason beside each number."""

import ast
from pathlib import Path

import pytest

from benchmarks.house import (
    Tree,
    find_context_constructions,
    find_holders,
    find_longest_function,
    find_unexplained_numbers,
    read_concepts,
    read_trees,
)

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 80
HOLDERS_MAX = 3
CONCEPTS_MAX = 25


@pytest.fixture(scope="module")
def trees():
    return read_trees(ROOT / "src" / "tickwork")


def a_module(text, *, path="tickwork/_worker/services/pump.py"):
    tree = ast.parse(text)
    return [Tree(Path(path), text.splitlines(), list(ast.walk(tree)), tree.body)]


def test_a_function_fits_a_screen(trees):
    longest = find_longest_function(trees)

    assert longest.lines <= LINES_MAX, longest


def test_few_values_carry_the_services_of_a_worker(trees):
    assert len(find_holders(trees)) <= HOLDERS_MAX, find_holders(trees)


def test_one_function_makes_the_context_of_an_attempt(trees):
    assert find_context_constructions(trees) == ["attempt_context"]


def test_each_number_of_the_worker_and_the_engines_has_a_reason(trees):
    assert {"pump", "durations"} <= {tree.path.stem for tree in trees}  # both rooms are read
    assert find_unexplained_numbers(trees) == []


def test_a_contributor_of_the_worker_needs_few_concepts():
    concepts = read_concepts(ROOT / "ARCHITECTURE.md")

    assert 0 < len(concepts) <= CONCEPTS_MAX
    assert len(set(concepts)) == len(concepts)


@pytest.mark.parametrize(
    "text",
    [
        "WAIT: Final = 0.5",
        'WAIT: Final = 0.5\n"""Seconds of a wait."""',
        "def wait():\n    sleep(0.5)",
        "WAIT: Final = 1.0",
    ],
)
def test_a_number_without_a_reason_is_found(text):
    assert len(find_unexplained_numbers(a_module(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        'WAIT: Final = 0.5\n"""Shorter, and it would only wake the thread."""',
        'FIRST: Final = 0.1\nLAST: Final = 5.0\n"""Growing, because a fault may last."""',
        "sleep(0.5)  # the socket closes meanwhile",
        "name = text[:20]",
        "digest = blake2b(text, digest_size=8)",
    ],
)
def test_a_number_with_a_reason_is_accepted(text):
    assert find_unexplained_numbers(a_module(text)) == []
