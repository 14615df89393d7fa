"""Egress rules by example: modes, rules, ceilings, and the sentences of refusals."""

from __future__ import annotations

import pytest

from warren.bootstrap.app import build_policy
from warren.core.policy.egress_rules import check_egress, check_within, decide, lower_to
from warren.core.policy.public_addresses import is_ours, parse_address
from warren.domain.egress import PACKAGES_HOST, Egress, EgressMode, EgressRule
from warren.domain.errors import ConfigError, Forbidden, InvalidRequest
from warren.settings import Settings

NONE = Egress()
PACKAGES = Egress(mode=EgressMode.PACKAGES)
OPEN = Egress(mode=EgressMode.OPEN)
PUBLIC = "93.184.216.34"
_PLAIN = (
    "127.0.0.1",
    "10.1.2.3",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "::1",
    "fe80::1",
    "fd00:ec2::254",
)
PRIVATE: tuple[str, ...] = (
    *_PLAIN,
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "::7f00:1",
    "::ffff:0:7f00:1",
    "fec0::1",
    "168.63.129.16",
    "3fff::1",
    "3fff:fff:ffff::",
    "5f00::1",
)


def rules(*hosts: str, ports: tuple[int, ...] = (80, 443), methods: tuple[str, ...] = ()) -> Egress:
    return Egress(
        mode=EgressMode.RULES, rules=tuple(EgressRule(host=host, ports=ports, methods=methods) for host in hosts)
    )


ALL = Egress(
    mode=EgressMode.OPEN,
    rules=tuple(
        EgressRule(host=host, ports=())
        for host in (
            "127.0.0.0/8",
            "10.0.0.0/8",
            "169.254.0.0/16",
            "db.internal",
            "::1",
            "fd00::/8",
        )
    ),
)


@pytest.mark.parametrize(
    ("egress", "host", "port", "rule"),
    [
        (OPEN, "example.org", 25, "mode open"),
        (OPEN, "EXAMPLE.org.", 443, "mode open"),
        (rules("example.org"), "Example.ORG.", 443, "rule example.org:443"),
        (rules("*.example.org"), "a.b.example.org", 80, "rule *.example.org:80"),
        (rules("api-*.example.org"), "api-7.example.org", 80, "rule api-*.example.org:80"),
        (rules("bücher.example"), "xn--bcher-kva.example", 443, "rule xn--bcher-kva.example:443"),
        (rules("93.184.216.0/24"), "named.by.no-rule", 443, "rule 93.184.216.0/24:443"),
        (rules("*"), "anything.example", 443, "rule *:443"),
    ],
)
def test_what_is_allowed_is_allowed_by_a_word(egress: Egress, host: str, port: int, rule: str) -> None:
    egress = check_egress(egress)
    before = decide(egress, OPEN, host, port)
    after = decide(egress, OPEN, host, port, addresses=[PUBLIC, "10.0.0.1"])

    assert (before.allowed, before.rule) == (True, rule)
    assert (after.allowed, after.rule, after.addresses) == (True, rule, (PUBLIC,))
    assert after.is_by_name is (rule.startswith("rule ") and "/" not in rule)


@pytest.mark.parametrize(
    ("egress", "host", "port", "said"),
    [
        (NONE, "example.org", 443, "its egress is none"),
        (PACKAGES, "example.org", 443, "its egress is packages"),
        (rules("example.org"), "example.com", 443, "no rule"),
        (rules("example.org"), "a.example.org", 443, "no rule"),
        (rules("*.example.org"), "example.org", 443, "no rule"),
        (rules("*.example.org"), "evil-example.org", 443, "no rule"),
        (rules("*.example.org"), "a.example.org.evil.com", 443, "no rule"),
        (rules("example.org"), "example.org", 8443, "no rule"),
        (rules("example.org", methods=("GET",)), "example.org", 443, "seen in plain HTTP only"),
        (rules("*"), PUBLIC, 443, "no rule"),
        (OPEN, "127.1", 80, "not a valid host"),
        (OPEN, "a b", 80, "not a valid host"),
    ],
)
def test_what_is_refused_is_refused_before_a_name_is_looked_up(egress: Egress, host: str, port: int, said: str) -> None:
    verdict = decide(egress, OPEN, host, port)

    assert not verdict.allowed
    assert said in verdict.why


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_reached_by_name_or_address_alone(address: str) -> None:
    for egress in (OPEN, rules("*"), rules("*.internal"), rules("0.0.0.0/0", "::/0")):
        by_name = decide(egress, ALL, "db.internal", 443, addresses=[address])
        by_address = decide(egress, ALL, address, 443)

        assert not by_name.allowed
        assert not by_address.allowed
        assert address not in by_name.why, "no answer tells what names of this network resolve to"
    assert decide(rules("db.internal"), ALL, "db.internal", 443, addresses=[address]).allowed
    assert not decide(rules("db.internal", address), OPEN, "db.internal", 443, addresses=[address]).allowed


def test_what_is_public_and_this_hosts_own_is_reached_where_it_is_named() -> None:
    """A firewall before this host does not stop what comes from it."""
    named = Egress(mode=EgressMode.OPEN, rules=(EgressRule(host=PUBLIC, ports=()),))
    for egress in (OPEN, rules("*"), rules("93.184.0.0/16")):
        for host in (PUBLIC, "www.example.org"):
            verdict = decide(egress, named, host, 443, addresses=[PUBLIC], is_ours=lambda _: True)
            assert not verdict.allowed
    assert decide(rules(PUBLIC), named, PUBLIC, 443, is_ours=lambda _: True).allowed
    assert not decide(rules(PUBLIC), OPEN, PUBLIC, 443, is_ours=lambda _: True).allowed
    assert is_ours(parse_address("127.0.0.1"))
    assert not is_ours(parse_address(PUBLIC))


def test_a_rule_for_methods_is_for_plain_http_with_them() -> None:
    egress = rules("example.org", methods=("GET", "HEAD"))

    assert decide(egress, OPEN, "example.org", 80, method="GET").allowed
    assert not decide(egress, OPEN, "example.org", 80, method="POST").allowed
    assert not decide(egress, OPEN, "example.org", 80).allowed


def test_the_package_index_is_reached_where_packages_are() -> None:
    for egress, is_reached in ((NONE, False), (PACKAGES, True), (OPEN, True), (rules("*"), False)):
        assert decide(egress, OPEN, PACKAGES_HOST, 80).allowed is is_reached
        assert decide(egress, PACKAGES, PACKAGES_HOST, 80).allowed is is_reached
        assert not decide(egress, NONE, PACKAGES_HOST, 80).allowed
    assert decide(rules(PACKAGES_HOST), PACKAGES, PACKAGES_HOST, 80).allowed
    assert decide(NONE, OPEN, PACKAGES_HOST, 80).why.endswith("can set its egress to packages.")


def test_a_ceiling_is_a_policy_that_holds_besides() -> None:
    listed = Egress(rules=(EgressRule(host="*.corp.example", ports=()),))

    assert decide(OPEN, listed, "a.corp.example", 5432, addresses=[PUBLIC]).allowed
    assert decide(OPEN, listed, "a.corp.example", 5432, addresses=[PUBLIC]).is_by_name
    refused = decide(OPEN, listed, "example.org", 443)
    assert (refused.allowed, refused.rule) == (False, "tenant ceiling")
    assert not decide(rules("a.corp.example"), listed, "a.corp.example", 443, addresses=["10.0.0.1"]).allowed


@pytest.mark.parametrize(
    ("egress", "ceiling", "said"),
    [
        (OPEN, PACKAGES, "packages at most"),
        (PACKAGES, NONE, "none at most"),
        (rules("10.0.0.1"), OPEN, "10.0.0.1"),
        (rules("example.org"), PACKAGES, "example.org"),
        (rules("*"), Egress(rules=(EgressRule(host="*.corp.example", ports=()),)), "may not reach *"),
    ],
)
def test_what_could_never_be_allowed_cannot_be_set(egress: Egress, ceiling: Egress, said: str) -> None:
    with pytest.raises(Forbidden, match=r"tenant 'acme'") as refused:
        check_within(egress, ceiling, "acme")

    assert said in str(refused.value)


def test_what_may_be_allowed_can_be_set() -> None:
    check_within(rules("example.org", "*", "0.0.0.0/0", "93.184.216.34"), OPEN, "acme")
    check_within(rules("10.1.0.0/16", "127.0.0.1", "db.internal"), ALL, "acme")
    check_within(rules("x.corp.example", "*.corp.example"), Egress(rules=(EgressRule(host="*.corp.example"),)), "acme")
    check_within(rules(PACKAGES_HOST), PACKAGES, "acme")
    assert lower_to(OPEN, PACKAGES) == PACKAGES
    assert lower_to(PACKAGES, OPEN) == PACKAGES


@pytest.mark.parametrize(
    "egress",
    [
        Egress(rules=(EgressRule(host="example.org"),)),
        rules("exa mple.org"),
        rules("10.0.0.0/33"),
        rules("*.10"),
        rules("example.*"),
        rules("example.org", ports=()),
        rules("example.org", ports=(0,)),
        rules("example.org", ports=tuple(range(1, 40))),
        rules("example.org", methods=("BREW",)),
        rules(*(f"a{number}.example" for number in range(101))),
    ],
)
def test_what_makes_no_sense_is_refused(egress: Egress) -> None:
    with pytest.raises(InvalidRequest):
        check_egress(egress)


def test_a_ceiling_that_names_no_host_is_said_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"tenant\.egress_hosts cannot have 'exa mple'"):
        build_policy(Settings.model_validate({"tenant": {"egress_hosts": ["exa mple"]}}))
