"""Host names and addresses in canonical spelling, and the patterns of rules that match them. Pure."""

from __future__ import annotations

import functools
import ipaddress
import re
from dataclasses import dataclass

from warren.core.policy.public_addresses import Address, Network, is_inside, parse_address

MAX_NAME = 253
_MAPPED = 96
"""Length of the prefix of an IPv4 address in IPv6 notation."""
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_GLOB_LABEL = re.compile(r"[a-z0-9_*-]{1,63}")
# WHY: C libraries parse these as addresses: 127.1, 2130706433 and 0x7f.1 are all 127.0.0.1.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


_PRIVATE_ENDS = frozenset(
    {
        *("local", "localhost", "localdomain", "internal", "intranet", "private", "corp", "home", "lan", "mail"),
        *("svc", "consul", "test", "onion", "alt", "arpa", "invalid"),
    }
)
"""Top-level labels that are not in the public DNS, or that lead into private networks."""


@dataclass(frozen=True, slots=True)
class Host:
    """A destination: a name or an address."""

    text: str
    """In canonical spelling."""
    address: Address | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """The destinations of a rule: exactly one of a name, a glob of names, and a network or single address."""

    text: str
    name: str | None = None
    glob: tuple[str, ...] | None = None
    """Its labels, some with stars."""
    network: Network | None = None

    def matches_name(self, host: Host) -> bool:
        """Whether the pattern matches a host by its name."""
        if host.address is not None:
            return False
        return host.text == self.name or (self.glob is not None and _is_like(self.glob, host.text.split(".")))

    def opens(self, host: Host, address: Address, *, is_outside: bool) -> bool:
        """Whether the pattern allows a connection for a host to one of its addresses.

        An address that is not outside must be named: by the host's exact name, by itself, or by a network without
        public addresses.
        """
        if self.network is not None:
            is_named = self.network.num_addresses == 1 or is_inside(self.network)
            return address in self.network and (is_outside or is_named)
        return self.matches_name(host) and (self.name is not None or is_outside)


def is_public_name(text: str) -> bool:
    """Whether a name may be in the public DNS, judged by its spelling."""
    labels = text.rstrip(".").lower().split(".")
    return len(labels) > 1 and labels[-1] not in _PRIVATE_ENDS


@functools.lru_cache(maxsize=4096)
def parse_host(text: str) -> Host:
    """Parse a destination. Raises ValueError for what is neither a name nor an address."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare:
        address = parse_address(bare)
        return Host(str(address), address)
    name = _parse_name(bare)
    try:
        return Host(name, ipaddress.IPv4Address(name))
    except ValueError:
        pass
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise ValueError("it is neither a name nor an address")
    return Host(name)


@functools.lru_cache(maxsize=4096)
def parse_pattern(text: str) -> Pattern:
    """Parse the host of a rule. Raises ValueError with the reason."""
    if "/" in text:
        return _parse_network(text)
    if "*" in text:
        return _parse_glob(text)
    host = parse_host(text)
    if host.address is not None:
        return Pattern(host.text, network=ipaddress.ip_network(host.text))
    return Pattern(host.text, name=host.text)


def _parse_network(text: str) -> Pattern:
    try:
        network: Network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError("write a network as an address and its length, such as 10.0.0.0/8 or fd00::/8") from None
    first = getattr(network.network_address, "ipv4_mapped", None)
    if first is not None and network.prefixlen >= _MAPPED:
        network = ipaddress.ip_network(f"{first}/{network.prefixlen - _MAPPED}")
    return Pattern(str(network), network=network)


def _parse_glob(text: str) -> Pattern:
    """Parse a glob: a star matches any part of one label, and as the whole first label one or more labels.

    The last label has no star, unless the glob is a single star: anyone can register a name under `example.*`.
    """
    name = text.lower().removesuffix(".")
    labels = tuple(name.split("."))
    if len(name) > MAX_NAME or not all(map(_GLOB_LABEL.fullmatch, labels)) or ("*" in labels[-1] and name != "*"):
        raise ValueError("write a glob with stars in any label but the last, such as *.example.org")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("globs are of names: write addresses as a network, such as 10.0.0.0/8")
    return Pattern(name, glob=labels)


def _is_like(glob: tuple[str, ...], labels: list[str]) -> bool:
    more = len(labels) - len(glob)
    if more < 0 or (more and glob[0] != "*"):
        return False
    return all(map(_is_part_like, glob[1:], labels[more + 1 :])) and (more > 0 or _is_part_like(glob[0], labels[0]))


def _is_part_like(glob: str, label: str) -> bool:
    """Match one label. Not by a regular expression: callers write rules, and many stars take exponential time."""
    first, *middle = glob.split("*")
    if not middle:
        return glob == label
    last = middle.pop()
    if len(label) < len(first) + len(last) or not (label.startswith(first) and label.endswith(last)):
        return False
    at, end = len(first), len(label) - len(last)
    for part in middle:
        at = label.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _parse_name(text: str) -> str:
    # WHY first: the checks below take more than linear time.
    if len(text) > MAX_NAME + 1:
        raise ValueError("it is no host name")
    name = text.lower().removesuffix(".")
    if not name.isascii():
        # Imported here: few names need it.
        import idna

        try:
            name = idna.encode(name, uts46=True).decode("ascii")
        except idna.IDNAError:
            raise ValueError("it is no host name") from None
    if len(name) > MAX_NAME or not all(map(_LABEL.fullmatch, name.split("."))):
        raise ValueError("it is no host name")
    return name
