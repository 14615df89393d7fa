"""Egress rules for any input: one spelling of each host, and no private address by accident."""

from __future__ import annotations

import fnmatch
import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from warren.core.policy.egress_hosts import parse_host, parse_pattern
from warren.core.policy.egress_rules import check_egress, decide
from warren.core.policy.public_addresses import is_public, parse_address
from warren.domain.egress import Egress, EgressMode, EgressRule
from warren.domain.errors import InvalidRequest

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PORT = st.integers(1, 65_535)
ADDRESS = st.one_of(
    st.ip_addresses(), st.sampled_from(["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fd00::1"])
).map(str)
GLOB = st.lists(
    st.one_of(LABEL, st.just("*"), LABEL.map(lambda each: f"{each}*"), LABEL.map(lambda each: f"*{each}*")), max_size=3
)
OPEN = Egress(mode=EgressMode.OPEN)


def rules(*hosts: str, ports: tuple[int, ...] = (443,)) -> Egress:
    return Egress(mode=EgressMode.RULES, rules=tuple(EgressRule(host=host, ports=ports) for host in hosts))


@given(NAME, st.booleans(), st.booleans())
def test_a_name_has_one_spelling(name: str, upper: bool, dot: bool) -> None:
    written = (name.upper() if upper else name) + ("." if dot else "")

    assert parse_host(written).text == name
    assert parse_pattern(written).text == name
    assert parse_pattern(written).matches_name(parse_host(name))


@given(st.text(max_size=40))
def test_whatever_is_written_is_a_host_in_its_one_spelling_or_an_error(text: str) -> None:
    try:
        host = parse_host(text)
    except ValueError:
        return

    assert parse_host(host.text) == host
    assert host.text.isascii()
    assert not set(host.text) & set(" /@#?\\\r\n\0%")


@given(st.text(max_size=40))
def test_whatever_is_written_is_a_pattern_in_its_one_spelling_or_an_error(text: str) -> None:
    try:
        pattern = parse_pattern(text)
    except ValueError:
        return

    assert parse_pattern(pattern.text) == pattern
    assert sum(each is not None for each in (pattern.name, pattern.glob, pattern.network)) == 1


@given(GLOB, NAME)
def test_globs_match_label_by_label(labels: list[str], name: str) -> None:
    glob = ".".join([*labels, "example"])
    host = parse_host(f"{name}.example")
    *own, _ = host.text.split(".")
    expected = len(own) == len(labels) and all(map(fnmatch.fnmatchcase, own, labels))
    if labels and labels[0] == "*" and len(own) > len(labels):
        tail = labels[1:]
        expected = all(map(fnmatch.fnmatchcase, own[len(own) - len(tail) :], tail)) if tail else True

    if "*" in glob:
        assert parse_pattern(glob).matches_name(host) is expected


@given(NAME, LABEL)
def test_a_glob_of_a_domain_is_neither_the_domain_nor_one_that_ends_like_it(name: str, label: str) -> None:
    pattern = parse_pattern(f"*.{name}")

    assert not pattern.matches_name(parse_host(name))
    assert not pattern.matches_name(parse_host(f"{label}-{name}"))
    assert not pattern.matches_name(parse_host(f"{name}.{label}.invalid"))
    assert pattern.matches_name(parse_host(f"{label}.{name}"))
    assert pattern.matches_name(parse_host(f"a.{label}.{name}"))


@given(NAME, PORT, ADDRESS, st.sampled_from(["open", "glob", "everything", "0.0.0.0/0", "::/0"]))
def test_no_private_address_is_reached_without_a_rule(name: str, port: int, address: str, how: str) -> None:
    host = f"{name}.example"
    policy = {
        "open": OPEN,
        "glob": rules("*.example", ports=(port,)),
        "everything": rules("*", ports=(port,)),
    }.get(how) or rules(how, ports=(port,))
    named = rules(host, "10.0.0.0/8", "127.0.0.0/8", "169.254.169.254", "fd00::/8", ports=(port,))
    for asked in (host, address):
        verdict = decide(policy, named, asked, port, addresses=[address])
        assert not verdict.allowed or all(is_public(parse_address(each)) for each in verdict.addresses)


@given(NAME, PORT, st.lists(ADDRESS, min_size=1, max_size=4))
def test_only_addresses_that_both_policies_allow_are_connected_to(name: str, port: int, found: list[str]) -> None:
    host = f"{name}.example"
    own = rules(host, ports=(port,))
    verdict = decide(own, OPEN, host, port, addresses=found)
    public = [each for each in map(parse_address, found) if is_public(each)]

    assert verdict.allowed is bool(public)
    assert list(verdict.addresses) == list(map(str, public))
    assert bool(verdict.why) is not verdict.allowed


@given(NAME, PORT, PORT)
def test_other_ports_than_those_of_a_rule_are_refused(name: str, port: int, other: int) -> None:
    assume(port != other)
    policy = rules(name, ports=(port,))

    assert decide(policy, OPEN, name, port).allowed
    assert not decide(policy, OPEN, name, other).allowed


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_has_no_second_spelling_with_other_rules(address: ipaddress.IPv4Address) -> None:
    mapped = f"::ffff:{address}"
    plain, disguised = (decide(OPEN, OPEN, each, 443) for each in (str(address), mapped))
    nat = decide(OPEN, OPEN, str(ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) + int(address))), 443)

    assert plain == disguised
    assert not nat.allowed


@given(st.builds(EgressRule, host=st.text(max_size=20), ports=st.lists(st.integers(-1, 70_000), max_size=3).map(tuple)))
def test_a_policy_is_checked_or_refused_and_checked_again_the_same(rule: EgressRule) -> None:
    try:
        checked = check_egress(Egress(mode=EgressMode.RULES, rules=(rule,)))
    except InvalidRequest:
        return

    assert check_egress(checked) == checked


@pytest.mark.parametrize(
    "text",
    [
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "1.2.3.4.5",
        "010.0.0.1",
        "a.0x1",
        "[::1%lo]",
        "fe80::1%eth0",
        "",
        ".",
        "a..b",
        "a b",
        "a/b",
        "-a.b",
        "example.*",
        "é*.org",
    ],
)
def test_what_a_c_library_would_take_for_something_else_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_host(text)
