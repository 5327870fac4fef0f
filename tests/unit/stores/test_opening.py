import gc
import re
from datetime import timedelta

import pytest

from contract.builders import a_run
from tickwork import Tickwork
from tickwork._dialects import DIALECT_BY_NAME
from tickwork._stores import open_store
from tickwork._stores._sql import script
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores.sqlite import store as sqlite_store
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._stores.sqlite.store import SqliteStore, reject_network_path
from tickwork.errors import InvalidOption, InvalidStoreUrl, NetworkFileSystem, SchemaMissing


class TestUrls:
    """A URL names a store, or says why it names none."""

    def path_of(self, url: str) -> str:
        store = open_store(url)
        assert isinstance(store, SqliteStore)
        return store.path

    def test_a_relative_path(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        assert self.path_of("sqlite:///jobs.db") == str(tmp_path / "jobs.db")

    def test_an_absolute_path(self, tmp_path):
        assert self.path_of(f"sqlite:///{tmp_path}/jobs.db") == f"{tmp_path}/jobs.db"

    def test_a_path_with_a_space(self, tmp_path):
        assert self.path_of(f"sqlite:///{tmp_path}/my%20jobs.db") == f"{tmp_path}/my jobs.db"

    def test_a_store_in_memory(self):
        store = open_store("sqlite://")

        assert store.install() == SCHEMA_VERSION
        assert store.list_jobs() == []

    def test_the_reference(self):
        assert isinstance(open_store("memory://"), MemoryStore)

    def test_options_in_the_url(self, tmp_path):
        store = open_store(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL")

        assert isinstance(store, SqliteStore)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("jobs.db", "the URL has none"),
            ("mongodb://host/db", "got 'mongodb'"),
            ("sqlite://jobs.db", "three slashes"),
            ("sqlite:jobs.db", "three slashes"),
            ("postgresql:user@host/db", "scheme://user"),
            ("mysql://user:pass/word@host/db", "%2F for /"),
            ("sqlite:///jobs.db?sync=NORMAL", "no option 'sync'"),
            ("postgresql://[host/db", "Invalid IPv6"),
        ],
    )
    def test_a_url_that_names_none(self, url, reason):
        with pytest.raises(InvalidStoreUrl, match=reason):
            open_store(url)

    def test_a_wrong_value_of_an_option(self, tmp_path):
        with pytest.raises(InvalidOption, match="FULL or NORMAL"):
            open_store(f"sqlite:///{tmp_path}/jobs.db?synchronous=OFF")


class TestSchema:
    """The tables are installed once, and checked before they are used."""

    def test_nothing_is_installed(self, tmp_path):
        store = open_store(f"sqlite:///{tmp_path}/jobs.db")

        assert store.schema_version() == 0
        with pytest.raises(SchemaMissing, match="tickwork install"):
            store.check_schema()

    def test_installing_again_changes_nothing(self, tmp_path):
        store = open_store(f"sqlite:///{tmp_path}/jobs.db")

        assert [store.install(), store.install(), store.schema_version()] == [SCHEMA_VERSION] * 3
        store.check_schema()

    def test_another_prefix_stands_beside(self, tmp_path):
        one = open_store(f"sqlite:///{tmp_path}/jobs.db")
        other = open_store(f"sqlite:///{tmp_path}/jobs.db", prefix="other_")
        one.install()

        assert other.schema_version() == 0
        assert other.install() == SCHEMA_VERSION

    @pytest.mark.parametrize("prefix", ["a", "_", "Shop_1_", "x" * 31])
    def test_a_prefix_that_is_an_identifier(self, tmp_path, prefix):
        store = open_store(f"sqlite:///{tmp_path}/jobs.db", prefix=prefix)

        assert store.install() == SCHEMA_VERSION
        assert open_store(f"sqlite:///{tmp_path}/jobs.db?prefix={prefix}").schema_version() > 0

    def test_the_case_of_a_prefix_makes_no_difference(self, tmp_path):
        open_store(f"sqlite:///{tmp_path}/jobs.db", prefix="shop_").install()
        other = open_store(f"sqlite:///{tmp_path}/jobs.db", prefix="Shop_")

        assert other.install() == SCHEMA_VERSION

    @pytest.mark.parametrize(
        "prefix", ["", "1a", "a-b", "a b", "a;", "a\n", "ä", "x" * 32, None, 5]
    )
    @pytest.mark.parametrize("url", ["sqlite://", "postgresql://host/db", "mysql://host/db"])
    def test_any_other_prefix_is_refused(self, url, prefix):
        with pytest.raises(InvalidOption, match=r"prefix must be an identifier \(\[A-Za-z_\]"):
            open_store(url, prefix=prefix)

    def test_a_prefix_in_a_url_is_checked(self, tmp_path):
        with pytest.raises(InvalidOption, match="must be an identifier"):
            open_store(f"sqlite:///{tmp_path}/jobs.db?prefix=a%3Bb")

    @pytest.mark.parametrize("dialect", DIALECT_BY_NAME)
    def test_no_name_with_the_longest_prefix_is_too_long_for_a_database(self, dialect):
        prefix = "x" * 31
        names = re.findall(rf"\b{prefix}\w*", script.schema_script(dialect, prefix=prefix))

        assert max(map(len, names)) <= 63


class TestNetworkFileSystems:
    """SQLite's locks do not hold on a network file system: such a path is refused."""

    MOUNTS = (
        "dev / ext4 rw 0 0\nserver:/x /mnt/share nfs4 rw 0 0\ndev /mnt/share/disk ext4 rw 0 0\n"
    )

    @pytest.fixture(autouse=True)
    def mounts(self, tmp_path, monkeypatch):
        (tmp_path / "mounts").write_text(self.MOUNTS)
        monkeypatch.setattr(sqlite_store, "MOUNTS", tmp_path / "mounts")

    def test_a_share_is_refused(self):
        with pytest.raises(NetworkFileSystem, match="nfs4"):
            reject_network_path("/mnt/share/jobs.db")

    @pytest.mark.parametrize("path", ["/var/jobs.db", "/mnt/share/disk/jobs.db", "/mnt/shared.db"])
    def test_a_local_disk_is_fine(self, path):
        reject_network_path(path)

    def test_a_system_without_such_a_list_is_trusted(self, monkeypatch, tmp_path):
        monkeypatch.setattr(sqlite_store, "MOUNTS", tmp_path / "none")

        reject_network_path("/mnt/share/jobs.db")


class TestOptionsInTheUrl:
    """Text of a URL becomes the type of the option."""

    @pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("2", 2), ("0.5", 0.5), ("1m", 60)])
    def test_a_duration(self, tmp_path, text, seconds):
        store = open_store(f"sqlite:///{tmp_path}/jobs.db?busy_timeout={text}")

        assert store._writer._busy_timeout == timedelta(seconds=seconds)  # type: ignore[attr-defined]

    @pytest.mark.parametrize("text", ["soon", "-1s", "nan"])
    def test_what_is_no_duration_is_an_error_at_once(self, text):
        with pytest.raises(InvalidStoreUrl, match="busy_timeout"):
            open_store(f"sqlite:///jobs.db?busy_timeout={text}")

    def test_an_option_that_has_no_text_form(self):
        with pytest.raises(InvalidStoreUrl, match="no option 'clock'"):
            open_store("sqlite:///jobs.db?clock=x")


class TestInMemory:
    """Rows in memory exist as long as the application object."""

    @pytest.mark.parametrize("url", ["memory://", "sqlite://"])
    def test_a_handle_can_be_read_after_the_application_was_closed(self, url):
        app = Tickwork(url)
        run = app.schedule("greet", lambda: "hello").dispatch()
        app.run()
        app.close()

        assert run.result() == "hello"
        assert app.runs.recent()

    def test_two_applications_share_nothing(self):
        one, other = Tickwork("memory://"), Tickwork("memory://")
        one.schedule("greet", lambda: "hello").dispatch()

        assert len(one.runs.recent()) == 1
        assert not other.runs.recent()

    def test_its_connection_is_closed_when_nothing_refers_to_it(self):
        store = MemoryStore()
        connection = store._own_writer
        del store
        gc.collect()

        assert connection._connection is None

    def test_a_waiting_worker_is_notified_of_a_new_run(self):
        store = MemoryStore()
        listener = store.listen()
        store.add_runs([a_run()])

        assert listener.wait(0)
        assert not listener.wait(0)
