"""Migrations: one text for all dialects, and constraints that have the values of the domain."""

import re

import pytest

from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import FINAL, PHASES, Phase, RunStatus
from tickwork._stores._sql.migrate import migrations, render_migration
from tickwork._stores.contract import PauseKind

DIALECTS = ["sqlite", "postgres", "mysql"]
ENUMERATIONS = {
    ("run", "status"): frozenset(RunStatus) - FINAL,
    ("run", "phase"): frozenset(Phase),
    ("history", "status"): FINAL,
    ("history", "outcome"): frozenset(OutcomeKind),
    ("attempt", "outcome"): frozenset(OutcomeKind),
    ("schedule", "overlap"): frozenset(Overlap),
    ("schedule", "misfire"): frozenset(Misfire),
    ("schedule", "origin"): frozenset(ScheduleOrigin),
    ("pause", "kind"): frozenset(PauseKind),
}


def render(text: str, dialect: str, *, prefix: str = "tickwork_") -> list[str]:
    return render_migration(text, f"tickwork._stores.{dialect}", prefix=prefix)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def texts(dialect: str) -> list[str]:
    return [text for step in migrations(f"tickwork._stores.{dialect}") for text in step.statements]


class TestRendering:
    """Each dialect fills the words, and gets its own lines."""

    def test_words_are_those_of_the_dialect(self):
        text = "CREATE TABLE tickwork_colour (\n    id {id} NOT NULL\n) {updated_rows};\n"

        assert render(text, "sqlite") == [
            "CREATE TABLE tickwork_colour (\n    id TEXT NOT NULL\n) STRICT, WITHOUT ROWID"
        ]
        assert render(text, "postgres") == [
            "CREATE TABLE tickwork_colour (\n    id uuid NOT NULL\n) WITH (fillfactor = 50)"
        ]
        [mysql] = render(text, "mysql")
        assert ") ENGINE = InnoDB" in mysql

    def test_an_empty_word_leaves_no_space(self):
        assert render("CREATE TABLE t (\n    n INTEGER\n) {rows};\n", "postgres") == [
            "CREATE TABLE t (\n    n INTEGER\n)"
        ]

    def test_a_word_with_a_column(self):
        assert render("SELECT {time due_at} FROM tickwork_run;", "postgres") == [
            "SELECT to_timestamp(due_at / 1e6) FROM tickwork_run"
        ]

    def test_lines_for_other_dialects_are_left_out(self):
        text = "-- for: mysql\nSELECT 1;\n-- end\n-- for: postgres sqlite\nSELECT 2;\n-- end\n"

        assert render(text, "mysql") == ["SELECT 1"]
        assert render(text, "sqlite") == render(text, "postgres") == ["SELECT 2"]

    def test_nothing_is_left_to_fill(self, texts):
        assert not [text for text in texts if re.search(r"[{}#]|-- ", text)]

    def test_a_word_that_no_dialect_has_is_an_error(self, dialect):
        with pytest.raises(KeyError, match="colour"):
            render("SELECT {colour};", dialect)

    def test_another_prefix_goes_everywhere(self, dialect):
        for step in migrations(f"tickwork._stores.{dialect}", prefix="other_"):
            assert "tickwork_" not in "\n".join(step.statements)


class TestConstraints:
    """The constraints have the values of the domain."""

    @pytest.mark.parametrize(("table", "column"), ENUMERATIONS)
    def test_a_column_takes_the_values_of_its_enumeration(self, texts, table, column):
        [create] = [text for text in texts if text.startswith(f"CREATE TABLE tickwork_{table} (")]
        [check] = re.findall(rf"CHECK \((\s*{column} = '\w+'[^()]*OR[^()]*)\)", create)

        values = [value.value for value in ENUMERATIONS[table, column]]
        assert sorted(re.findall(rf"{column} = '(\w+)'", check)) == sorted(values)

    def test_a_run_is_running_in_both_columns_or_in_none(self, texts):
        assert PHASES[RunStatus.RUNNING] == {Phase.RUNNING}
        assert "CHECK ((status = 'running') = (phase = 'running'))" in "\n".join(texts)

    def test_every_table_of_sqlite_has_typed_columns(self):
        tables = [
            text
            for step in migrations("tickwork._stores.sqlite")
            for text in step.statements
            if text.startswith("CREATE TABLE")
        ]

        assert tables
        assert not [text for text in tables if "STRICT" not in text.rpartition(")")[2]]
