"""The host from which a connection comes, for all bounds per host. Pure."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import unquote

_NETWORK_BITS = 64
"""The bits of an IPv6 address that count. A host chooses the others itself, so it has any number of addresses."""


def host_of_peer(peer: str) -> str:
    """The host in gRPC's name for the other end of a connection, for example `ipv4:10.0.0.1:4711`."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    return counted_host(rest.rpartition(":")[0])


@lru_cache(maxsize=4096)
def counted_host(address: str) -> str:
    """One name for all addresses of one host; text that is no IP address is returned unchanged."""
    text = unquote(address).strip("[]").partition("%")[0]
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    if parsed.is_loopback:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))
