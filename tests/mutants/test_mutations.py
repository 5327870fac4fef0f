"""What the mutator changes, and what it leaves alone."""

import ast
import time
from pathlib import Path, PurePosixPath
from textwrap import dedent

import pytest

from mutants.__main__ import (
    ACCEPTED,
    OUT_OF_TIME,
    Accepted,
    Mutant,
    Verdict,
    Workspace,
    select_mutants,
    summarize,
)
from mutants.mutations import PYTHON, SQL, Mutation, find_mutations
from mutants.selection import PACKAGE, TESTS_BY_ROOM, list_sources, stages_of

ROOT = Path(__file__).resolve().parents[2]
A_FILE = PurePosixPath("src/tickwork/_domain/runs/retry.py")


def mutants_of(text: str, suffix: str = PYTHON) -> list[str]:
    """The changed lines."""
    source = dedent(text).strip("\n").encode()
    return [each.describe(source)[1] for each in find_mutations(source, suffix)]


class TestPython:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a = b < c", ["a = b <= c"]),
            ("a = b is None", ["a = b is not None"]),
            ("a = b not  in c", ["a = b in c"]),
            ("a = (b) <= (c) < d", ["a = (b) < (c) < d", "a = (b) <= (c) <= d"]),
            ("a = b and c and d", ["a = b or c and d", "a = b and c or d"]),
            ("a = not b", ["a = b"]),
            ("a = b + 1", ["a = b - 1", "a = b + 2"]),
            ("a = b // 60", ["a = b * 60", "a = b // 61"]),
            ("a = True", ["a = False"]),
            ("a = 0.5", ["a = 2.0"]),
            ("a = b if c else d", ["a = b if not (c) else d"]),
            ("a = [b for b in c if b.d]", ["a = [b for b in c if not (b.d)]"]),
            ("a.b = c", ["pass"]),
            ("a[b] += 1", ["pass", "a[b] += 2"]),
            ("a.b()", ["pass"]),
            ("raise ValueError('a' + 1)", ["pass"]),
            ("while a:\n    break", ["continue"]),
            ("def a():\n    return b < c", ["return None", "return b <= c"]),
            ("def a(b=1): ...", ["def a(b=2): ..."]),
            ("é = 'ü'; a = b < c", ["é = 'ü'; a = b <= c"]),
        ],
    )
    def test_it_changes(self, text, expected):
        assert sorted(mutants_of(text)) == sorted(expected)

    @pytest.mark.parametrize(
        "text",
        [
            '"""A docstring with 1 < 2."""',
            "def a():\n    'Why 1 < 2.'",
            "a: dict[int, Literal[1]]",
            "__all__ = ['a', 1]",
            "_log.warning('%d', 1 + 2)",
            "self._log.warning('%d', 1)",
            "click.echo(1)",
            "assert a < b",
            "def a():\n    return None",
            "a = f'{b + 1}'",
            "a = 'b' + c",
            "a = cast(Mapping[str, int], b)",
            "a = Field(fix=1 < 2, help=3)",
            "@overload\ndef a(b=1): ...",
            "class A(Protocol):\n    b = 1",
            "if TYPE_CHECKING:\n    a = 1",
            "def __repr__(self):\n    return a < b",
        ],
    )
    def test_it_leaves_alone_what_changes_no_behaviour(self, text):
        assert mutants_of(text) == []

    def test_each_mutant_of_a_module_can_be_parsed(self):
        source = (ROOT / A_FILE).read_bytes()
        found = find_mutations(source, PYTHON)

        assert len(found) > 20
        for mutation in found:
            changed = mutation.apply(source)
            assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


class TestSql:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("WHERE a <= :b", ["WHERE a < :b"]),
            ("WHERE a = :b", ["WHERE a <> :b"]),
            ("SET a = :b", []),
            ("WHERE a IS NULL", ["WHERE a IS NOT NULL"]),
            ("SELECT min(a)", ["SELECT max(a)"]),
            ("ORDER BY id LIMIT :n", ["ORDER BY id DESC LIMIT :n"]),
            ("ORDER BY id DESC", ["ORDER BY id ASC"]),
            ("FOR UPDATE SKIP LOCKED", ["FOR UPDATE"]),
            ("SELECT a + 1", ["SELECT a - 1", "SELECT a + 2"]),
            ("SELECT ?1, a1, 'b 1', '{1}'", []),
            ("-- name: a_1 AND 2 < 3", []),
            ("WHERE a BETWEEN :b AND :c", []),
            ("WHERE NOT EXISTS (b)", ["WHERE EXISTS (b)"]),
        ],
    )
    def test_it_changes(self, text, expected):
        assert sorted(mutants_of(text, SQL)) == sorted(expected)

    def test_it_deletes_conditions(self):
        found = mutants_of("WHERE a\n  AND b IS NULL\n  AND c(d)\n", SQL)

        assert found.count("") == 2


class TestSelection:
    def test_the_same_seed_gives_the_same_mutants(self):
        first, total = select_mutants(ROOT, files="_domain", number=20, seed=7)
        again, _ = select_mutants(ROOT, files="_domain", number=20, seed=7)
        other, _ = select_mutants(ROOT, files="_domain", number=20, seed=8)

        assert first == again != other
        assert len(first) == 20 < total
        assert all("_domain" in mutant.source.parts for mutant in first)

    def test_each_file_has_tests_that_exist(self):
        sources = list_sources(ROOT)
        assert {PurePosixPath("src/tickwork/errors.py"), A_FILE} <= {*sources}
        assert {source.suffix for source in sources} == {PYTHON, SQL}

        for source in sources:
            stages = stages_of(source, ROOT)
            assert stages, source
            for stage in stages:
                assert all((ROOT / "tests" / path).exists() for path in stage.paths), stage

    def test_the_tests_of_a_module_come_first(self):
        first, *_, last = stages_of(A_FILE, ROOT)

        assert first.paths == ("unit/domain/runs/test_retry.py",)
        assert last.paths == ("application",)

    def test_tests_of_its_name_come_before_those_of_its_room(self):
        stages = stages_of(PACKAGE / "integrations" / "prometheus.py", ROOT)

        assert stages[0].paths == ("integrations/test_prometheus.py",)
        assert ("integrations",) in [stage.paths for stage in stages]

    @pytest.mark.parametrize("name", ["mysql", "postgres"])
    def test_sql_of_a_server_is_tested_on_it(self, name):
        source = PACKAGE / "_stores" / name / "queries" / "runs.sql"

        assert stages_of(source, ROOT)[-1].markers.startswith(f"on_{name}")

    def test_each_room_exists(self):
        assert all((ROOT / PACKAGE / room).exists() for room in TESTS_BY_ROOM)


def a_verdict(test: str = "", reason: str = "") -> Verdict:
    mutant = Mutant(A_FILE, Mutation(0, 1, b""), 1, "a < b", "a <= b")
    return Verdict(mutant, test, 1.0, reason)


class TestReport:
    def test_survivors_are_listed_and_counted(self):
        lines = "\n".join(summarize([a_verdict("test_a"), a_verdict(), a_verdict(reason="Why.")]))

        assert lines.count(f"{A_FILE}:1: a < b  →  a <= b") == 2
        assert "Why." in lines
        assert "3 mutants: 1 noticed, 1 not, 1 accepted. 50 %" in lines

    def test_one_for_which_the_time_was_too_short_is_no_success(self):
        [*lines, last] = summarize([a_verdict("test_a"), a_verdict(OUT_OF_TIME)])

        assert lines[-1].endswith(f"a <= b {OUT_OF_TIME}")
        assert "1 noticed, 1 not" in last

    def test_a_survivor_is_accepted_by_its_text(self):
        mutant = a_verdict().mutant
        entry = (
            'file = "_domain/runs/retry.py"\nbefore = "a < b"\nafter = "a <= b"\nreason = "Why."'
        )
        accepted = Accepted(f"[[mutant]]\n{entry}\n")

        assert accepted.reason_of(mutant._replace(line=99)) == "Why."
        assert accepted.reason_of(mutant._replace(after="a > b")) == ""

    def test_accepted_mutants_exist(self):
        reasons = Accepted(ACCEPTED.read_text(encoding="utf-8")).reasons
        known = set()
        for name in {name for name, _, _ in reasons}:
            text = (ROOT / PACKAGE / name).read_bytes()
            mutations = find_mutations(text, PurePosixPath(name).suffix)
            known |= {(name, *each.describe(text)) for each in mutations}

        assert reasons.keys() <= known


SOURCE = "def is_long(value):\n    return value > 9\n"
NOTICES = (
    "from tickwork._domain.sizes import is_long\n\n\ndef test_it():\n    assert not is_long(9)\n"
)


class TestWorkspace:
    """A mutant is judged in a copy, which is the same again afterwards."""

    @pytest.fixture
    def workspace(self, tmp_path, monkeypatch):
        files = {
            "src/tickwork/__init__.py": "",
            "src/tickwork/_domain/__init__.py": "",
            "src/tickwork/_domain/sizes.py": SOURCE,
            "tests/unit/domain/test_sizes.py": NOTICES,
            "pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['-p', 'no:tickwork']\n",
        }
        workspace = Workspace.__new__(Workspace)
        workspace.folder = tmp_path
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.setattr("mutants.selection.TESTS_BY_ROOM", {"": ("unit/domain",)})
        return workspace

    @pytest.mark.parametrize(
        ("after", "noticed"),
        [(b">=", "unit/domain/test_sizes.py::test_it"), (b"> 1 +", "")],
    )
    def test_a_test_notices_a_mutant_or_not(self, workspace, after, noticed):
        source = PurePosixPath("src/tickwork/_domain/sizes.py")
        file = workspace.folder / source
        at = SOURCE.index(">")
        mutant = Mutant(source, Mutation(at, at + 1, after), 2, "", "")

        for _ in range(2):
            assert workspace.judge(mutant, time.monotonic() + 60) == noticed
            assert file.read_text() == SOURCE

    def test_a_test_that_fails_anyway_has_noticed_nothing(self, workspace):
        path = workspace.folder / "tests/unit/domain/test_other.py"
        path.write_text("def test_other():\n    assert False\n")
        source = PurePosixPath("src/tickwork/_domain/sizes.py")
        mutant = Mutant(source, Mutation(0, 0, b""), 1, "", "")

        assert workspace.judge(mutant, time.monotonic() + 60) == ""

    def test_without_time_nothing_is_known(self, workspace):
        mutant = Mutant(
            PurePosixPath("src/tickwork/_domain/sizes.py"), Mutation(0, 0, b""), 1, "", ""
        )

        assert workspace.judge(mutant, time.monotonic()) == OUT_OF_TIME
