import zoneinfo

import pytest

from tickwork._kernel.zonedata import read_zone_version


@pytest.fixture(autouse=True)
def anew():
    read_zone_version.cache_clear()
    yield
    read_zone_version.cache_clear()


@pytest.mark.parametrize(
    ("name", "text"), [("tzdata.zi", "# version 2026b\nR A 1\n"), ("+VERSION", "2026b\n")]
)
def test_files_of_the_machine_say_which_they_are(tmp_path, monkeypatch, name, text):
    (tmp_path / name).write_text(text)
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path / "none"), str(tmp_path)))

    assert read_zone_version() == "2026b"


def test_files_that_do_not_say(tmp_path, monkeypatch):
    (tmp_path / "UTC").touch()
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))

    assert read_zone_version() == ""


def test_the_package_where_the_machine_has_none(monkeypatch):
    monkeypatch.setattr(zoneinfo, "TZPATH", ())

    assert read_zone_version().startswith("20")
