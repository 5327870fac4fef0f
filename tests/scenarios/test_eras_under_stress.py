"""No run is lost, doubled or out of order while a snapshot is held and boundaries move."""

import pytest

from scenarios.era_stress import EraStress
from tickwork._domain import eras as era_rules
from tickwork._stores._sql.operations import eras as era_operations
from tickwork._stores._sql.queries import Queries

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]


@pytest.fixture
def url(postgres_url):
    from tickwork._stores.postgres.store import PostgresStore

    PostgresStore(postgres_url).install()
    return postgres_url


class TestStress:
    @pytest.mark.parametrize("claimers", [1, 4])
    @pytest.mark.parametrize("seed", SEEDS)
    def test_every_run_ends_once_and_in_order(self, url, seed, claimers):
        seconds = 5.0 if seed == 1 else 30.0

        report = EraStress(url, seed=seed, seconds=seconds, claimers=claimers).run()

        assert not report.faults, report
        assert report.moves > 0, report
        assert report.dispatched > 100, report


def forget_late_writers(monkeypatch):
    monkeypatch.setattr(era_rules.TransactionSnapshot, "unended", lambda *_: frozenset[int]())


def end_at_the_snapshot(monkeypatch):
    read = era_operations._read_look

    def read_wrongly(rows):
        look = read(rows)
        return look._replace(number=max(look.snapshot.end, look.boundary))

    monkeypatch.setattr(era_operations, "_read_look", read_wrongly)


def remove_the_fallback(monkeypatch):
    for_eras = Queries.for_eras

    def without_check(query, name, count, /, **params):
        if name == "count_head":
            params = params | {"boundary": None, "late": []}
        return for_eras(query, name, count, **params)

    monkeypatch.setattr(Queries, "for_eras", without_check)


def read_the_boundary_first(monkeypatch):
    """Wide enough that a test can find it: the time between two instructions is not."""
    init = Queries.__init__
    early = """(SELECT least(boundary, txid_current() + length(pg_sleep(0.002)::text) * 0)
        FROM (SELECT pg_sequence_last_value('tickwork_era') AS boundary OFFSET 0) AS early)"""

    def init_wrongly(self, package, **options):
        init(self, package, **options)
        right = self._fragments.get("this_era", "")
        self.parts_by_name = {
            name: tuple(part.replace(right, early) for part in parts) if right else parts
            for name, parts in self.parts_by_name.items()
        }

    monkeypatch.setattr(Queries, "__init__", init_wrongly)


@pytest.mark.long
class TestPlantedBugs:
    """The stress finds each of the mistakes that this design invites."""

    @pytest.mark.parametrize(
        "plant",
        [forget_late_writers, end_at_the_snapshot, remove_the_fallback, read_the_boundary_first],
    )
    def test_the_stress_finds_it(self, url, plant, monkeypatch):
        plant(monkeypatch)

        for seed in range(5):
            report = EraStress(url, seed=seed, seconds=10.0, claimers=1, has_kills=False).run()
            assert not report.errors, report.errors
            if report.faults:
                return
        pytest.fail(f"not found: {report}")
