import pkgutil
from pathlib import Path

import pytest

from tickwork import _dialects, _stores
from tickwork._dialects import DIALECT_BY_SCHEME, DIALECTS, is_embedded, scheme_of
from tickwork._masks.url import mask_url
from tickwork._stores import dialect_of, open_store
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.store import SqlStore
from tickwork.errors import InvalidStoreUrl


class TestTable:
    """A dialect is its package and one value."""

    def test_every_package_with_queries_is_a_dialect(self):
        packages = {
            f"tickwork._stores.{each.name}"
            for each in pkgutil.iter_modules(_stores.__path__)
            if Path(_stores.__path__[0], each.name, "queries").is_dir()
        }

        assert {each.package for each in DIALECTS} == packages

    def test_a_scheme_names_one_dialect(self):
        schemes = [name for each in DIALECTS for name in (*each.schemes, *each.memory_schemes)]

        assert len(set(schemes)) == len(schemes)

    @pytest.mark.parametrize("scheme", DIALECT_BY_SCHEME)
    def test_a_scheme_opens_a_store_of_its_dialect(self, scheme):
        dialect = DIALECT_BY_SCHEME[scheme]
        store = open_store(f"{scheme}://" if dialect.is_embedded else f"{scheme}://host/jobs")

        assert isinstance(store, SqlStore)
        assert store.query.package == dialect.package
        store.close()

    def test_the_schemes_are_listed_when_none_fits(self):
        with pytest.raises(InvalidStoreUrl, match="sqlite, memory, postgresql"):
            open_store("oracle://host/jobs")

    def test_a_url_without_tables_has_no_dialect(self):
        assert dialect_of("memory://") is None
        assert dialect_of("oracle://host/jobs") is None
        assert dialect_of("mariadb+pymysql://host/jobs") == "mysql"


class TestOptionalStatements:
    """A dialect declares which of them it has: a query that is missing or misspelt is an error."""

    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_a_statement_that_is_missing(self, dialect, monkeypatch):
        name = next(name for name, has in dialect.optional._asdict().items() if has)
        wrong = dialect._replace(optional=dialect.optional._replace(**{name: False}))
        monkeypatch.setitem(_dialects.DIALECT_BY_PACKAGE, dialect.package, wrong)

        with pytest.raises(AssertionError, match=name):
            Queries(dialect.package)


class TestUrls:
    """What a URL says about its database, before a store is loaded."""

    @pytest.mark.parametrize(
        ("url", "scheme", "embedded"),
        [
            ("sqlite:///jobs.db", "sqlite", True),
            ("SQLite:///jobs.db", "sqlite", True),
            ("memory://", "memory", True),
            ("postgresql+psycopg://db/jobs", "postgresql", False),
            ("oracle://db/jobs", "oracle", False),
            ("jobs.db", "", False),
        ],
    )
    def test_the_scheme(self, url, scheme, embedded):
        assert scheme_of(url) == scheme
        assert is_embedded(url) == embedded

    def test_a_file_has_no_password_to_mask(self):
        assert mask_url("sqlite:jobs/a.db") == "sqlite:jobs/a.db"
