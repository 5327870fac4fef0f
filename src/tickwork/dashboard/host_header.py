"""Reads the Host header and the Origin header as a browser reads a URL, and refuses the rest."""

import ipaddress
import re
from typing import Final, NamedTuple

from starlette.requests import HTTPConnection

PORT_MAX: Final = 65_535
_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::(?P<port>[0-9]{0,5}))?",
    re.ASCII | re.IGNORECASE,
)
_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]+)", re.ASCII)
_PORTS: Final = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """The host name or address of a URL, in lower case, and the port if there is one."""

    host: str
    port: int | None

    def is_same(self, other: "Authority", *, scheme: str) -> bool:
        """Whether both are the same server for a URL of this scheme."""
        default = _PORTS[scheme]
        return (self.host, self.port or default) == (other.host, other.port or default)


def parse_authority(text: str) -> Authority | None:
    """Read a host with an optional port. None if it is anything else.

    User names, zones of IPv6 addresses, percent signs, spaces and letters outside of ASCII are
    refused: no browser sends them.
    """
    found = _AUTHORITY.fullmatch(text)
    if found is None or int(found["port"] or 0) > PORT_MAX:
        return None
    host = found["name"]
    if host is None:
        try:
            host = str(ipaddress.IPv6Address(found["address"]))
        except ValueError:
            return None
    return Authority(host.lower(), int(found["port"]) if found["port"] else None)


def authority_of(request: HTTPConnection) -> Authority | None:
    """The host that a request names. None if it is not valid, missing or given twice."""
    given = request.headers.getlist("host")
    return parse_authority(given[0]) if len(given) == 1 else None


def is_own_origin(origin: str, request: HTTPConnection) -> bool:
    """Whether the Origin header names the host that the request names."""
    found, host = _ORIGIN.fullmatch(origin), authority_of(request)
    if found is None or host is None:
        return False
    authority = parse_authority(found["authority"])
    return authority is not None and authority.is_same(host, scheme=found["scheme"])


def is_loopback(host: str) -> bool:
    """Whether this is an address, or a host name, of this machine."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).is_loopback
