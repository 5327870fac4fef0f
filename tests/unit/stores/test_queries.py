from tickwork.stores._sql.queries import Queries, split_statements


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
        [text] = Queries("tickwork.stores.sqlite")("pick_ready").parts

        assert "{" not in text
        assert "limit_keys" in text

    def test_columns_can_be_qualified(self):
        [text] = Queries("tickwork.stores.sqlite")("finish_plain").parts

        assert "SELECT run.id, run.tenant, run.job" in text

    def test_an_ending_is_filled_in_too(self):
        queries = Queries("tickwork.stores.sqlite")

        [text] = queries.compose("list_live", "WHERE {has_tag}", {}).parts

        assert text.endswith("WHERE instr(tags, :tag) > 0")

    def test_a_command_needs_no_result(self):
        queries = Queries("tickwork.stores.sqlite")

        assert queries("lock_run", id="a").needs_result
        assert not queries.command("lock_run", id="a").needs_result

    def test_tables_may_have_another_prefix(self):
        [text] = Queries("tickwork.stores.sqlite", prefix="jobs_")("lock_run").parts

        assert "FROM jobs_run" in text
        assert "tickwork_" not in text
