"""HTTP connections of alerts. They refuse addresses at which machines keep credentials.

A link-local address is that of a cloud's metadata service, or of a neighbor. The check is made on
the address to which the socket connects, so the name of a host, the way an address is written and
a second answer of DNS make no difference.
"""

import socket
from collections.abc import Sequence
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from tickwork.errors import InvalidOption

_METADATA: Final = (
    IPv6Network("fd00:ec2::/32"),  # AWS
    IPv6Network("fd20:ce::254/128"),  # Google
    IPv4Network("100.100.100.200/32"),  # Alibaba
    IPv4Network("168.63.129.16/32"),  # Azure
)
"""Metadata services whose addresses are not link-local."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_MAX: Final = 0xFFFF_FFFF


def check_allow(allow: Sequence[str]) -> None:
    """Check the option ``allow``: addresses and networks.

    Raises:
        InvalidOption: One of them is neither.
    """
    for each in [allow] if isinstance(allow, str) else allow:
        try:
            ip_network(each)
        except ValueError:
            rule = "must be a list of IP addresses and networks"
            raise InvalidOption("allow", allow, rule) from None
    if isinstance(allow, str):
        raise InvalidOption("allow", allow, "must be a list", fix=f"Write [{allow!r}].")


def check_address(host: str, address: str, *, allow: Sequence[str]) -> None:
    """Check that a socket may connect to this address.

    Raises:
        ConnectionError: It may not.
    """
    ip = _embedded(ip_address(address.partition("%")[0]))
    is_refused = ip.is_link_local or any(ip in network for network in _METADATA)
    if is_refused and not any(ip in ip_network(each) for each in allow):
        raise ConnectionError(
            f"{host} has the address {ip}, which is link-local or that of a metadata service. "
            f"If it is your target, allow it: allow=[{str(ip)!r}]."
        )


def check_host(host: str, *, allow: Sequence[str]) -> None:
    """Check a host that is an address, in any notation. For proxies, which connect themselves.

    Raises:
        ConnectionError: A socket may not connect to it.
    """
    try:
        addresses = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return  # a name
    for *_, target in addresses:
        check_address(host, str(target[0]), allow=allow)


def build_opener(*, allow: Sequence[str]) -> OpenerDirector:
    """Build an opener that follows no redirects. It uses the proxies of the environment."""
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        _CheckedHttp(allow),
        _CheckedHttps(allow),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class _CheckedHttp(HTTPHandler):
    def __init__(self, allow: Sequence[str]) -> None:
        super().__init__()
        self._allow = allow

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_Connection, allow=self._allow), req)


class _CheckedHttps(HTTPSHandler):
    def __init__(self, allow: Sequence[str]) -> None:
        super().__init__()
        self._allow = allow

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_TlsConnection, allow=self._allow), req)


class _Connection(HTTPConnection):
    def __init__(self, *args: Any, allow: Sequence[str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = partial(_connect, allow=allow)


class _TlsConnection(HTTPSConnection):
    def __init__(self, *args: Any, allow: Sequence[str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = partial(_connect, allow=allow)


def _connect(
    address: tuple[str, int], timeout: float, source: Any = None, *, allow: Sequence[str]
) -> socket.socket:
    """As :func:`socket.create_connection`, to addresses that were checked."""
    host, port = address
    address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(target[0]) for *_, target in address_infos]
    for each in addresses:
        check_address(host, each, allow=allow)
    for each in addresses[:-1]:
        try:
            return socket.create_connection((each, port), timeout, source)
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), timeout, source)


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address in an IPv6 address that has one, else the address."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64 or 1 < int(address) <= _IPV4_MAX:
        return IPv4Address(int(address) & _IPV4_MAX)
    return address.ipv4_mapped or address.sixtofour or address
