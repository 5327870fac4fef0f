import pytest

from tickwork._dialects import DIALECT_BY_PACKAGE
from tickwork._stores._sql import queries as queries_module
from tickwork._stores._sql.queries import Queries, split_statements

DIALECTS = ["sqlite", "postgres", "mysql"]


class TestStatements:
    """A semicolon at the end of a line ends a statement; comments are left out."""

    def test_several_statements_in_one_script(self):
        script = "-- why\nSELECT 1;\n\nSELECT ';' -- not here\n  AS a;\n"

        assert split_statements(script) == ["SELECT 1", "SELECT ';' -- not here\n  AS a"]

    def test_nothing_in_a_script(self):
        assert split_statements("-- nothing\n\n") == []


class TestNamedQueries:
    """Queries are found by name, with their fragments filled in."""

    def test_fragments_are_filled_in(self):
        [text] = Queries("tickwork._stores.sqlite")("pick_ready").parts

        assert "{" not in text
        assert "limit_keys" in text

    def test_columns_can_be_qualified(self):
        [text] = Queries("tickwork._stores.sqlite")("finish_plain").parts

        assert "SELECT run.id, run.tenant, run.job" in text

    def test_an_ending_is_filled_in_too(self):
        queries = Queries("tickwork._stores.sqlite")

        [text] = queries.compose("list_live", "WHERE {has_tag}", {}).parts

        assert text.endswith("WHERE instr(' ' || substr(tags, 2), :tag) > 0")

    def test_a_command_needs_no_result(self):
        queries = Queries("tickwork._stores.sqlite")

        assert queries("lock_run", id="a").needs_result
        assert not queries.command("lock_run", id="a").needs_result

    def test_tables_may_have_another_prefix(self):
        [text] = Queries("tickwork._stores.sqlite", prefix="jobs_")("lock_run").parts

        assert "FROM jobs_run" in text
        assert "tickwork_" not in text


class TestCommonQueries:
    """One text for all dialects: each leaves out what it does not know."""

    @pytest.fixture
    def query(self, monkeypatch):
        common = (
            "-- name: find\nSELECT {key} FROM tickwork_slot FORCE INDEX (taken)\n"
            "WHERE run = :run::uuid AND {key} {in_keys}\n{skip_locked};\n"
            "-- name: count\nSELECT 1;\n"
        )
        read_sql = queries_module.read_sql

        def read(package, folder):
            if folder == "common_queries":
                return {"common": common}
            declared = DIALECT_BY_PACKAGE[package].optional._asdict()
            optional = "".join(
                f"-- name: {name}\nSELECT 0;\n" for name in declared if declared[name]
            )
            own = f"-- name: count\nSELECT 2;\n{optional}"
            return {"words": read_sql(package, folder)["words"], "own": own}

        monkeypatch.setattr(queries_module, "read_sql", read)
        return lambda dialect: Queries(f"tickwork._stores.{dialect}")

    def test_a_common_query_in_each_dialect(self, query):
        assert [" ".join(query(dialect)("find").parts[0].split()) for dialect in DIALECTS] == [
            (
                "SELECT key FROM tickwork_slot WHERE run = :run"
                " AND key IN (SELECT value FROM json_each(:keys))"
            ),
            (
                "SELECT key FROM tickwork_slot WHERE run = :run::uuid"
                " AND key = ANY (:keys::text[]) FOR UPDATE SKIP LOCKED"
            ),
            (
                "SELECT `key` FROM tickwork_slot FORCE INDEX (taken) WHERE run = :run"
                " AND `key` IN (:keys) FOR UPDATE SKIP LOCKED"
            ),
        ]

    def test_a_query_of_the_dialect_replaces_it(self, query):
        assert query("sqlite")("count").parts == ("SELECT 2",)

    def test_a_name_is_used_once_in_a_dialect(self, monkeypatch):
        twice = "-- name: find\nSELECT 1;\n-- name: find\nSELECT 2;\n"
        monkeypatch.setattr(queries_module, "read_sql", lambda *_: {"own": twice})

        with pytest.raises(AssertionError, match="a name twice"):
            Queries("tickwork._stores.sqlite")
