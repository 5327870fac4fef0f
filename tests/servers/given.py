"""A server named by TICKWORK_TEST_URL, used instead of a private one."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import psycopg
import pymysql

from servers import mariadb, postgres

VARIABLE = "TICKWORK_TEST_URL"
KINDS_BY_SCHEME = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mariadb",
    "mariadb": "mariadb",
}


class GivenServer:
    """Creates databases on a server that is not ours, if it has the right to.

    Otherwise all tests use the database in the URL, one after the other.
    """

    def __init__(self, given_url: str) -> None:
        self.parts = urlsplit(given_url)
        if self.parts.scheme not in KINDS_BY_SCHEME:
            raise ValueError(
                f"{VARIABLE} has a URL with the scheme {self.parts.scheme!r}. "
                f"It can be one of {', '.join(KINDS_BY_SCHEME)}."
            )
        self.kind = KINDS_BY_SCHEME[self.parts.scheme]
        self.given_database = self.parts.path.strip("/")

    def url(self, database: str = "", *, port: int | None = None) -> str:
        """Return where the database is; ``port`` names a proxy's on this machine instead."""
        netloc = self.parts.netloc
        if port is not None:
            user = netloc.rpartition("@")[0]
            netloc = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
        path = f"/{database or self.given_database}"
        return self.parts._replace(netloc=netloc, path=path).geturl()

    def create_database(self) -> str:
        try:
            if self.kind == "postgres":
                return postgres.create_database(self.url())
            return mariadb.create_database(self.url())
        except psycopg.errors.InsufficientPrivilege:
            return self.given_database
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1044:  # access denied to a database, not to the server
                raise
            return self.given_database

    def drop_database(self, database: str) -> None:
        if database == self.given_database:
            return
        if self.kind == "postgres":
            postgres.drop_database(self.url(), database)
        else:
            mariadb.drop_database(self.url(), database)


def given_server(kind: str, *, environment: Mapping[str, str] = os.environ) -> GivenServer | None:
    """Return the server of that kind that the variable names; it may name several."""
    servers = [GivenServer(url) for url in environment.get(VARIABLE, "").split()]
    return next((server for server in servers if server.kind == kind), None)
