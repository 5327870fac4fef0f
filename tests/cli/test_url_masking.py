"""No command prints the password of a URL, however the URL is written and wherever it is given."""

import itertools
import logging
import traceback
from collections.abc import Callable
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from tickwork import Tickwork
from tickwork.cli.main import cli
from unit.masks.test_url import FORMS, PASSWORDS

# PyMySQL leaves a socket open when it cannot connect to it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# Nothing listens at port 1.
URLS = [
    "postgresql://user:{p}@127.0.0.1:1/db",
    "POSTGRESQL://user:{p}@127.0.0.1:1/db",
    "mysql://user:{p}@127.0.0.1:1/db",
    "mysql:user:{p}@127.0.0.1:1",
    "mysql://user:{p}@/db?unix_socket=/nowhere.sock",
    "postgresql://127.0.0.1:1/db?user=a&password={p}",
    "postgresql://user:{p}@127.0.0.1:1/db?nope=1",
    "host=127.0.0.1 port=1 password='{p}'",
    "sqlite://user:{p}@127.0.0.1/db",
    "sqlite:user:{p}@127.0.0.1",
    "sqlite:/user:{p}@127.0.0.1",
    "mysqll://user:{p}@127.0.0.1:1/db",
]


def check(printed: str, password: str) -> None:
    for form in {password, quote(password), quote(password, safe=""), repr(password)[1:-1]}:
        assert form.casefold() not in printed.casefold()


def spell_urls(forms: list[str]) -> list[tuple[str, str]]:
    return [
        (form.format(p=written), password)
        for form, password in itertools.product(forms, PASSWORDS)
        for written in sorted({password, quote(password, safe="")})
    ]


def run(*words: str, **environ: str) -> str:
    done = CliRunner().invoke(cli, words, env=environ, prog_name="tickwork")
    found = done.exception
    shown = found is not None and not isinstance(found, SystemExit)
    return done.output + ("".join(traceback.format_exception(found)) if shown else "")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TICKWORK_APP", raising=False)
    return tmp_path


class TestLibrary:
    """What a program prints and logs."""

    @pytest.mark.parametrize("form", URLS)
    def test_errors_tracebacks_and_records(self, form, caplog):
        for url, password in spell_urls([form]):
            try:
                with Tickwork(url, install=False) as app:
                    printed = f"{app!r} {app.settings!r} {app._services.store!r}"
                    check(printed, password)
                    app.dispatch("job")
            except Exception as error:
                logging.getLogger("shop").exception("It failed.")
                printed = "".join([repr(error), str(error), *traceback.format_exception(error)])
                check(printed + repr(vars(error)), password)
        check(caplog.text, password)

    @pytest.mark.parametrize("form", [form for form in FORMS if "{s}" in form])
    def test_a_malformed_url_is_not_given_to_a_driver(self, form, monkeypatch):
        """A driver would show a part of the password, or connect to another host."""
        from tickwork._masks.url import is_well_formed
        from tickwork.errors import InvalidStoreUrl

        for scheme in ("postgresql", "mysql"):
            for url, _ in spell_urls([form.replace("{s}", scheme)]):
                if not is_well_formed(url):
                    with pytest.raises(InvalidStoreUrl, match="is not a valid store URL"):
                        Tickwork(url)._services.store  # noqa: B018  # it opens the store


WAYS: dict[str, Callable[[str], str]] = {
    "status": lambda url: run("status", TICKWORK_URL=url),
    "settings": lambda url: run("settings", TICKWORK_URL=url),
    "settings --json": lambda url: run("settings", "--json", TICKWORK_URL=url),
    "doctor": lambda url: run("doctor", TICKWORK_URL=url),
    "doctor --json": lambda url: run("doctor", "--json", TICKWORK_URL=url),
    "install": lambda url: run("install", TICKWORK_URL=url),
    "install --sql": lambda url: run("install", "--sql", TICKWORK_URL=url),
    "dispatch": lambda url: run("dispatch", "job", TICKWORK_URL=url),
    "in place of an application": lambda url: run("-a", url, "status"),
    "attached": lambda url: run(f"--app={url}", "status") + run(f"-a{url}", "status"),
    "as TICKWORK_APP": lambda url: run("status", TICKWORK_APP=url),
    "in place of a command": run,
    "as an argument": lambda url: run("status", url) + run("import", url),
    "as an option": lambda url: run("status", f"--url={url}"),
    "to import from": lambda url: run("import", "apscheduler", url),
}
USED = ["S3CR3T", "S3CR3T/9x", "S3C R3T", "S3C\"R3T'x", "S3C%R3T", "S3C\nR3T"]


@pytest.mark.parametrize("form", URLS)
@pytest.mark.parametrize("way", WAYS)
def test_commands(folder, way, form):
    (folder / "tickwork.toml").write_text("[tickwork]\n")
    for password in USED:
        printed = WAYS[way](form.format(p=password))

        assert printed
        check(printed, password)


@pytest.mark.parametrize("form", URLS)
def test_the_file(folder, form):
    for password in USED:
        url = form.format(p=password)
        for text in (f'url = "{url}"', f"url = '{url}'", f"urls = '''{url}'''", f"url = {url}"):
            (folder / "tickwork.toml").write_text(f"[tickwork]\n{text}\n")
            check(run("status") + run("settings"), password)


@pytest.mark.parametrize("form", URLS)
def test_a_line_of_the_program(folder, form):
    """The error of a module that cannot be imported shows its line."""
    for number, password in enumerate(USED):
        url = form.format(p=password)
        lines = [f"app = Tickwork({url!r})._services.store.nothing", f"app = Tickwork({url!r}"]
        for line in lines:
            name = f"program_{abs(hash((form, number, line)))}"
            (folder / f"{name}.py").write_text(f"from tickwork import Tickwork\n{line}\n")
            printed = run("-a", name, "status")

            assert "cannot be imported" in printed
            check(printed, password)
