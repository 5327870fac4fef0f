"""A TOML file: its content, the lines of its keys, and its problems."""

import pytest

from tickwork._config.toml_document import SIZE_MAX, Document, shown, suggest_or_list
from tickwork._domain.names import check_name
from tickwork.errors import ConfigError, NaiveDatetime


def problems_in(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        Document("tickwork.toml", text)
    return caught.value.faults


class TestSyntax:
    """The error for invalid TOML has the line."""

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("a = 1\nb =\n", "line 2: Invalid value."),
            ("a = 1\n\nb 2\n", "line 3: Expected '=' after a key in a key/value pair."),
            ("a = 1\na = 2\n", "line 2: Cannot overwrite a value."),
            ("[a]\n[a]\n", "line 2: Cannot declare ('a',) twice."),
            ("a = '''\nb\n", "line 3: Expected \"'''\"."),
            ("a = [1,\n2", "line 2: Unclosed array."),
        ],
    )
    def test_the_problem_has_its_line(self, text, fault):
        assert problems_in(text) == (fault,)

    def test_values_that_are_nested_too_deeply(self):
        assert problems_in("a = " + "[" * 5000 + "]" * 5000) == (
            "line 1: Its values are nested too deeply.",
        )


class TestReading:
    """A file that cannot be read is an error with the name of the file."""

    def test_a_file(self, tmp_path):
        path = tmp_path / "jobs.toml"
        path.write_bytes(b"\xef\xbb\xbf[tickwork]\r\nurl = 'memory://'\r\n")

        document = Document.read(path)

        assert document.content == {"tickwork": {"url": "memory://"}}
        assert document.place(("tickwork", "url")) == f"{path}:2"

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(ConfigError, match="The file cannot be read: No such file"):
            Document.read(tmp_path / "jobs.toml")

    def test_another_encoding(self, tmp_path):
        path = tmp_path / "jobs.toml"
        path.write_bytes("a = 1\nname = 'Bücher'\n".encode("latin-1"))

        with pytest.raises(ConfigError, match="line 2: The file must be encoded in UTF-8"):
            Document.read(path)

    def test_a_file_that_is_too_large(self, tmp_path):
        path = tmp_path / "jobs.toml"
        path.write_bytes(b"#" * (SIZE_MAX + 1))

        with pytest.raises(ConfigError, match="The file must have at most 16,777,216 bytes"):
            Document.read(path)


class TestProblems:
    """They are collected, and reported together in the order of their lines."""

    @pytest.fixture
    def document(self) -> Document:
        return Document("tickwork.toml", "[[jobs]]\nqueue = 5\n\n[[jobs]]\nname = 'x'\n")

    def test_all_of_them_with_their_lines(self, document):
        document.report(("jobs", 1, "name"), "The second.")
        document.report(("jobs", 0, "queue"), "The first.")

        with pytest.raises(ConfigError) as caught:
            document.raise_problems()

        assert caught.value.source == "tickwork.toml"
        assert caught.value.faults == ("line 2: The first.", "line 5: The second.")

    def test_no_problem_is_no_error(self, document):
        document.raise_problems()

    def test_a_missing_key_has_the_line_of_its_table(self, document):
        assert document.line(("jobs", 1, "class")) == 4
        assert document.line(("nothing",)) == 1

    def test_an_error_in_the_block_is_a_problem_on_one_line(self, document):
        with document.reporting(("jobs", 0, "queue")):
            check_name("queue", 5)
        document.report_error(("jobs", 1, "name"), NaiveDatetime("2026-01-01 09:00:00"))

        with pytest.raises(ConfigError) as caught:
            document.raise_problems()

        first, second = caught.value.faults
        assert first == "line 2: queue must be a string, got 5."
        assert second.endswith("has no time zone. Write it with one: 2026-01-01T09:00:00+01:00.")

    def test_other_exceptions_are_not_problems_of_the_file(self, document):
        with pytest.raises(ZeroDivisionError), document.reporting(()):
            raise ZeroDivisionError

    def test_unknown_keys_suggest_a_close_one(self, document):
        document.check_keys(("jobs", 0), {"queue": 5, "naem": 1}, ["name", "queue"])

        with pytest.raises(ConfigError, match=r"Unknown key 'naem'\. Did you mean 'name'"):
            document.raise_problems()

    def test_a_value_that_should_be_a_table(self, document):
        assert document.table(("jobs", 0, "queue"), 5) == {}
        assert document.problem_count == 1


def test_without_a_close_name_all_are_listed():
    assert suggest_or_list("xyz", ["name", "queue"]) == "Choose from name, queue."


def test_long_values_are_cut_in_messages():
    assert len(shown("x" * 500)) == 60
