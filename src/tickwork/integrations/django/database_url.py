"""Where the worker connects to: the URL of a database of Django."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured

SCHEMES: Final = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}
"""By the vendor of a connection; MariaDB's is ``mysql``, too."""

# Options of DATABASES that are not parameters of libpq.
_OF_DJANGO: Final = frozenset(
    {"pool", "isolation_level", "server_side_binding", "assume_role", "cursor_factory"}
)
_MYSQL_OPTIONS: Final = {
    "unix_socket": "unix_socket",
    "ssl_ca": "ssl_ca",
    "ssl_cert": "ssl_cert",
    "ssl_key": "ssl_key",
}


def database_url(vendor: str, settings: Mapping[str, Any]) -> str:
    """The URL of a server, from the settings of a connection.

    >>> database_url("postgresql", {"NAME": "shop", "USER": "ann", "HOST": "db", "PORT": "5433"})
    'postgresql://ann@db:5433/shop'
    >>> database_url("postgresql", {"NAME": "shop", "HOST": "/tmp", "OPTIONS": {"pool": True}})
    'postgresql:///shop?host=%2Ftmp'
    >>> database_url("postgresql", {"NAME": "shop", "OPTIONS": {"options": "-c search_path=a+b"}})
    'postgresql:///shop?options=-c%20search_path%3Da%2Bb'
    >>> database_url("mysql", {"NAME": "shop", "USER": "ann", "PASSWORD": "a/b", "HOST": ""})
    'mysql://ann:a%2Fb@/shop'
    """
    options = dict(settings.get("OPTIONS") or {})
    host = str(settings.get("HOST") or "")
    if vendor == "postgresql":
        query = _libpq_options(options)
        if host.startswith("/"):
            query["host"], host = host, ""
    else:
        query = {_MYSQL_OPTIONS[key]: options[key] for key in _MYSQL_OPTIONS.keys() & options}
        query |= {f"ssl_{key}": value for key, value in dict(options.get("ssl") or {}).items()}
        if host.startswith("/"):
            query["unix_socket"], host = host, ""
    user = quote(str(settings.get("USER") or ""), safe="")
    password = quote(str(settings.get("PASSWORD") or ""), safe="")
    if password:
        user += f":{password}"
    port = settings.get("PORT")
    place = f"{user}@" * bool(user) + host + f":{port}" * bool(port)
    name = quote(str(settings.get("NAME") or ""), safe="")
    # libpq takes a plus sign for itself, not for a space.
    tail = f"?{urlencode(query, quote_via=quote, safe='')}" if query else ""
    return f"{SCHEMES[vendor]}://{place}/{name}{tail}"


def _libpq_options(options: Mapping[str, Any]) -> dict[str, Any]:
    query = {key: value for key, value in options.items() if key not in _OF_DJANGO}
    if role := options.get("assume_role"):
        query["options"] = f"{query.get('options', '')} -c role={role}".strip()
    return query


def check_vendor(vendor: str, alias: str) -> None:
    """Check that tickwork supports a database.

    Raises:
        ImproperlyConfigured: It does not.
    """
    if vendor not in SCHEMES:
        raise ImproperlyConfigured(
            f"Tickwork cannot use the database {alias!r}: {vendor} is not supported. Name one on "
            "PostgreSQL, MariaDB, MySQL or SQLite: TICKWORK = {'DATABASE': '...'}."
        )
