"""Which servers the tests start: TICKWORK_TEST_SERVERS.

(not set)  PostgreSQL and MariaDB of this machine
newest     PostgreSQL and MariaDB of Debian's unstable packages
mysql      MySQL instead of MariaDB: tests with "mariadb" in their name run on it
"""

import os

VARIABLE = "TICKWORK_TEST_SERVERS"
CHOICES = ("", "newest", "mysql")


def chosen() -> str:
    choice = os.environ.get(VARIABLE, "")
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE} must be newest or mysql, got {choice!r}.")
    return choice
