import pytest

from tickwork._domain.worker_version import WorkerVersion


@pytest.mark.parametrize(
    "version",
    [
        WorkerVersion("0.1.0"),
        WorkerVersion("0.1.0", "2026.11"),
        WorkerVersion("0.1.0", "", "2026b"),
        WorkerVersion("0.1.0", "a/b-1", "2026b"),
    ],
)
def test_a_version_can_be_read_from_its_text(version):
    assert WorkerVersion.parse(version.text) == version


def test_the_row_of_an_older_worker():
    assert WorkerVersion.parse("0.0.9 tz/2025a") == ("0.0.9", "", "2025a")
