from datetime import timedelta

import pytest

from tickwork.errors import InvalidOption, InvalidStoreUrl, NetworkFileSystem, SchemaMissing
from tickwork.stores import open_store
from tickwork.stores._sql.migrate import SCHEMA_VERSION
from tickwork.stores.memory import MemoryStore
from tickwork.stores.sqlite import store as sqlite_store
from tickwork.stores.sqlite.store import SqliteStore, reject_network_path


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
