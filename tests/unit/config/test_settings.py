"""Settings: arguments override the environment, the file and the defaults."""

from datetime import timedelta
from typing import Any

import pytest

from tickwork._config.settings import (
    VARIABLES,
    Settings,
    app_in,
    read_settings,
    report_late_settings,
    settings_in,
)
from tickwork._config.toml_document import Document
from tickwork.errors import ConfigError, InvalidDuration, InvalidOption, InvalidSchedule

SECRET, OLD = "k" * 32, "o" * 32


def read(environ: dict[str, str] | None = None, file: Any = None, **given: Any) -> Settings:
    return read_settings(given, package="shop", file=file or {}, environ=environ or {})


def problems_in(text: str) -> list[str]:
    document = Document("tickwork.toml", text)
    settings_in(document)
    with pytest.raises(ConfigError) as caught:
        document.raise_problems()
    return list(caught.value.faults)


class TestSources:
    """Arguments override the environment, the environment the file, the file the defaults."""

    def test_defaults(self):
        settings = read()

        assert (settings.url, settings.timezone) == ("sqlite:///tickwork.db", "UTC")
        assert settings.handler_paths == ("shop",)
        assert settings.retire_after == timedelta(days=7)
        assert settings.explicit == frozenset()

    def test_arguments_before_environment_before_file(self):
        file = {"url": "memory://file", "timezone": "Europe/Berlin", "redact": ("pin",)}
        environ = {"TICKWORK_URL": "memory://environment", "TICKWORK_TIMEZONE": "Asia/Tokyo"}

        settings = read(environ, file, url="memory://argument")

        assert settings.url == "memory://argument"
        assert settings.timezone == "Asia/Tokyo"
        assert settings.redact == ("pin",)
        assert settings.explicit == {"url", "timezone"}

    def test_an_empty_value_is_not_set(self):
        assert read({"TICKWORK_URL": ""}, url="").url == "sqlite:///tickwork.db"
        assert read(timezone=None).timezone == "UTC"

    @pytest.mark.parametrize(
        ("name", "text", "kept"),
        [
            ("url", "memory://", "memory://"),
            ("timezone", "Europe/Berlin", "Europe/Berlin"),
            ("install", "yes", True),
            ("install", "0", False),
            ("handler_paths", "shop, blog", ("shop", "blog")),
            ("redact", "card", ("card",)),
            ("payload_max", "1000", 1000),
            ("retire_after", "2 days", timedelta(days=2)),
            ("dashboard_url", "https://jobs.example.com/ops/", "https://jobs.example.com/ops"),
            ("callback_secret", SECRET, (SECRET,)),
            ("callback_secret", f"{SECRET}, {OLD}", (SECRET, OLD)),
        ],
    )
    def test_each_setting_has_a_variable(self, name, text, kept):
        settings = read({VARIABLES[name]: text})

        assert getattr(settings, "should_install" if name == "install" else name) == kept

    @pytest.mark.parametrize(
        ("variable", "text"),
        [("TICKWORK_INSTALL", "perhaps"), ("TICKWORK_PAYLOAD_MAX", "many")],
    )
    def test_the_error_names_the_variable(self, variable, text):
        with pytest.raises(InvalidOption, match=f"{variable} must be .*, got '{text}'"):
            read({variable: text})

    @pytest.mark.parametrize(
        ("url", "install", "should_install"),
        [
            ("sqlite:///a.db", None, True),
            ("memory://", None, True),
            ("postgresql://db/a", None, False),
            ("postgresql://db/a", True, True),
            ("sqlite:///a.db", False, False),
        ],
    )
    def test_an_embedded_database_installs_itself(self, url, install, should_install):
        assert read(url=url, install=install).should_install is should_install


class TestValues:
    """An invalid value is refused."""

    @pytest.mark.parametrize(
        ("name", "value", "error"),
        [
            ("url", 5, InvalidOption),
            ("timezone", "Europe/Berln", InvalidSchedule),
            ("install", "yes", InvalidOption),
            ("handler_paths", "shop", InvalidOption),
            ("handler_paths", [5], InvalidOption),
            ("redact", {"card": 1}, InvalidOption),
            ("payload_max", 0, InvalidOption),
            ("payload_max", True, InvalidOption),
            ("payload_max", 10**9, InvalidOption),
            ("retire_after", "soon", InvalidDuration),
            ("retire_after", 0, InvalidOption),
            ("dashboard_url", "jobs.example.com", InvalidOption),
            ("dashboard_url", "javascript://x/", InvalidOption),
            ("dashboard_url", "https://ann:pw@jobs.example.com", InvalidOption),
            ("dashboard_url", "https://jobs.example.com/?a=1", InvalidOption),
            ("dashboard_url", "https://[jobs", InvalidOption),
            ("callback_secret", "short", InvalidOption),
            ("callback_secret", [SECRET, "short"], InvalidOption),
            ("callback_secret", [], InvalidOption),
            ("callback_secret", 5, InvalidOption),
        ],
    )
    def test_as_an_argument_and_in_a_file(self, name, value, error):
        with pytest.raises(error):
            read(**{name: value})

        document = Document("tickwork.toml", f"[tickwork]\n{name} = 1\n")
        document.content = {"tickwork": {name: value}}
        assert settings_in(document) == {}
        assert document.problem_count == 1

    def test_any_iterable_is_a_list(self):
        assert read(handler_paths=iter(["shop", "blog"])).handler_paths == ("shop", "blog")


class TestSecrets:
    """The secret that signs links is never shown."""

    def test_in_texts(self):
        assert SECRET not in repr(read(callback_secret=SECRET))

    @pytest.mark.parametrize("name", ["argument", "variable", "file"])
    def test_in_errors(self, name):
        bad = OLD[:20]
        if name == "file":
            [text] = problems_in(f"[tickwork]\ncallback_secret = '{bad}'\n")
        else:
            given = {"callback_secret": bad} if name == "argument" else {}
            environ = {"TICKWORK_CALLBACK_SECRET": bad} if name == "variable" else {}
            with pytest.raises(InvalidOption) as caught:
                read(environ, **given)
            text = str(caught.value)
        assert bad not in text

    def test_in_a_file_that_is_read_too_late(self):
        document = Document("tickwork.toml", f"[tickwork]\ncallback_secret = '{OLD}'\n")
        report_late_settings(document, read())

        with pytest.raises(ConfigError) as caught:
            document.raise_problems()
        assert OLD not in str(caught.value)


class TestFiles:
    """[tickwork] holds settings. Its problems are reported with the rest of the file."""

    def test_all_settings(self):
        document = Document(
            "tickwork.toml",
            """
            [tickwork]
            app = "shop.jobs:app"
            url = "postgresql://db/jobs"
            timezone = "Europe/Berlin"
            install = true
            handler_paths = ["shop"]
            redact = ["card"]
            payload_max = 1000
            retire_after = "2 days"
            """,
        )

        settings = read(file=settings_in(document))
        document.raise_problems()

        assert settings == Settings(
            url="postgresql://db/jobs",
            timezone="Europe/Berlin",
            should_install=True,
            handler_paths=("shop",),
            redact=("card",),
            payload_max=1000,
            retire_after=timedelta(days=2),
        )
        assert app_in(document) == "shop.jobs:app"

    def test_without_the_table_there_are_no_settings(self):
        document = Document("tickwork.toml", "")

        assert settings_in(document) == {}
        assert app_in(document) is None

    def test_problems_have_their_lines(self):
        assert problems_in("[tickwork]\nurll = 'x'\npayload_max = 'y'\napp = 'shop'\n") == [
            "line 2: Unknown key 'urll'. Did you mean 'url'?",
            "line 3: payload_max must be between 1 and 16,777,216 bytes, got 'y'.",
            "line 4: app must be an import path, got 'shop'. Write 'package.module:app'.",
        ]
        assert problems_in("tickwork = 5") == ["line 1: tickwork must be a table, got 5."]

    def test_a_setting_that_differs_from_the_app_is_a_problem(self):
        document = Document(
            "tickwork.toml",
            "[tickwork]\ntimezone = 'Asia/Tokyo'\nurl = 'postgresql://a:s3cret@db/jobs'\n",
        )
        report_late_settings(document, read())

        with pytest.raises(ConfigError) as caught:
            document.raise_problems()

        assert caught.value.faults[0] == (
            "line 2: timezone cannot be changed: the app was created with UTC. "
            "Create it with Tickwork(config='tickwork.toml')."
        )
        assert "s3cret" not in str(caught.value)

    def test_equal_settings_and_those_of_arguments_are_no_problem(self):
        document = Document("tickwork.toml", "[tickwork]\ntimezone = 'UTC'\nurl = 'memory://'\n")

        report_late_settings(document, read(url="sqlite://"))

        document.raise_problems()
