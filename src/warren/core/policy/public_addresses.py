"""Which addresses are outside: public ones that do not belong to this host. All others are internal.

Used for everything that leaves this host on behalf of a sandbox: egress, and tool callbacks.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# WHY: these embed an IPv4 address that a gateway may forward to, public or not.
_TRANSLATED = tuple(
    map(ipaddress.ip_network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
)
# WHY: it looks public, but is the metadata service of every machine at Azure, reachable from inside only.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
# WHY: not all of these are known to every Python: documentation (RFC 9637), segment routing (RFC 9602).
_RESERVED = tuple(map(ipaddress.ip_network, ("3fff::/20", "5f00::/16")))
_LOCAL_NAMES = (".internal", ".local", ".localhost")
"""Endings of names that are never in the public DNS."""
_WIDEST = {4: 8, 6: 7}
"""The widest private networks; a wider network contains public addresses."""


def parse_address(text: str) -> Address:
    """Parse an address as it is connected to; an IPv4 address in IPv6 notation becomes IPv4. Raises ValueError."""
    if "%" in text:
        raise ValueError("an address that names an interface")
    return plain(ipaddress.ip_address(text))


def plain(address: Address) -> Address:
    """Return the IPv4 address in an IPv4-mapped one, so that both spellings have the same rules."""
    return getattr(address, "ipv4_mapped", None) or address


def is_public(address: Address) -> bool:
    """Whether an address is public: not private, loopback, link-local, shared, multicast, nor a translation."""
    if address in _METADATA or any(address in network for network in (*_TRANSLATED, *_RESERVED)):
        return False
    return address.is_global and not (address.is_multicast or getattr(address, "is_site_local", False))


def is_ours(address: Address) -> bool:
    """Whether an address belongs to this host: its services are often shielded from outside, but not from here."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # WHY: connect on UDP sends nothing; the kernel picks the source address, which for this host is the address
            # itself.
            probe.connect((str(address), 9))
            return parse_address(probe.getsockname()[0]) == address
        except (OSError, ValueError):
            return False


def is_inside(network: Network) -> bool:
    """Whether no address of a network is public. Such a rule means internal addresses; 0.0.0.0/0 does not."""
    ends = (network.network_address, network.broadcast_address)
    return network.prefixlen >= _WIDEST[network.version] and not any(map(is_public, ends))


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether the address of a client is in one of these networks. What is no address is in none."""
    try:
        found = parse_address(address)
    except ValueError:
        return False
    return any(found in _parse_network(network) for network in networks)


@functools.lru_cache(maxsize=4096)
def _parse_network(text: str) -> Network:
    return ipaddress.ip_network(text)


def is_local_name(host: str) -> bool:
    """Whether a host is an address, or a name that a stranger cannot register."""
    name = host.lower().rstrip(".")
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return bool(name) and ("." not in name or name.endswith(_LOCAL_NAMES))
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is reachable from this machine only. Names other than localhost are not resolved."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
