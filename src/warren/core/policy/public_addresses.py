"""Which addresses are outside: public ones that are not this host's. Everything else is somebody's own network.

Shared by all that leaves this host on a sandbox's word: the way out, and the tools that clients offer.
"""

from __future__ import annotations

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# WHY: these hold an IPv4 address that a gateway on the way would go on to, public or not.
_TRANSLATED = tuple(
    map(
        ipaddress.ip_network,
        ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
    )
)
# WHY: it looks public, and is the metadata and agent service of every machine at Azure, reached from inside only.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
_WIDEST = {4: 8, 6: 7}
"""No private network is wider: what is, holds public addresses too."""


def parse_address(text: str) -> Address:
    """Read an address as it is connected to: an IPv4 address that is written as IPv6 is one. Raises ValueError."""
    if "%" in text:
        raise ValueError("an address that names an interface")
    return plain(ipaddress.ip_address(text))


def plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one is, where it is; so that no second spelling has other rules."""
    return getattr(address, "ipv4_mapped", None) or address


def is_public(address: Address) -> bool:
    """Whether an address is anybody's: not private, loopback, link-local, shared, multicast, nor one in disguise."""
    if address in _METADATA or any(address in network for network in _TRANSLATED):
        return False
    return address.is_global and not (address.is_multicast or getattr(address, "is_site_local", False))


def is_ours(address: Address) -> bool:
    """Whether an address is this host's own: what listens there is often shielded from outside, and not from here."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # WHY: nothing is sent; the kernel chooses whom it would come from, and to itself it speaks as itself.
            probe.connect((str(address), 9))
            return parse_address(probe.getsockname()[0]) == address
        except (OSError, ValueError):
            return False


def is_inside(network: Network) -> bool:
    """Whether none of a network's addresses are public: who names it means what is not, unlike who writes 0.0.0.0/0."""
    ends = (network.network_address, network.broadcast_address)
    return network.prefixlen >= _WIDEST[network.version] and not any(map(is_public, ends))


def is_loopback(host: str) -> bool:
    """Whether a host is reachable from this machine only. Names other than localhost are not resolved."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
