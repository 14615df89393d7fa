"""Each guardrail tripped once, by one setting or fact; good settings pass."""

from __future__ import annotations

from typing import Any

import pytest

from warren.bootstrap.guardrails import GUARDRAILS, Facts, check
from warren.settings import Settings

PRODUCTION: dict[str, Any] = {"env": "production", "data_dir": "/srv/warren"}
PUBLIC: dict[str, Any] = {
    "data_dir": "/srv/warren",
    "serve": {"host": "0.0.0.0", "trusted_proxies": ("10.0.0.1",)},
}
BOTH = (PRODUCTION, PUBLIC)


def sentences(base: dict[str, Any], more: dict[str, Any], **facts: Any) -> list[str]:
    """Put settings over others, table by table, and check them."""
    merged = {**base}
    for name, value in more.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return check(Settings.model_validate(merged), Facts(**facts))


SETTINGS: list[tuple[str, tuple[dict[str, Any], ...], dict[str, Any], str]] = [
    ("no_auth", BOTH, {"serve": {"auth": False}}, "serve.auth is off"),
    ("no_auth", ({},), {"serve": {"auth": False, "trusted_proxies": ("127.0.0.1",)}}, "serve.auth is off"),
    ("no_auth", ({},), {"serve": {"auth": False, "ports_url": "https://*.apps.example.com"}}, "serve.auth is off"),
    ("short_secret", (PRODUCTION,), {"jwt": {"secret": "x" * 31}}, "jwt.secret has less than 32"),
    ("open_dialect", BOTH, {"dialects": {"onyx": {"open": True}}}, "dialects.onyx.open lets anyone"),
    ("any_network", ({}, *BOTH), {"dialects": {"onyx": {"networks": ("::/0",)}}}, "dialects.onyx.networks has ::/0"),
    ("proxy_network", BOTH, {"dialects": {"otari": {"networks": ("127.0.0.1",)}}}, "networks has 127.0.0.1"),
    ("proxy_network", (PUBLIC,), {"dialects": {"otari": {"networks": ("10.0.0.0/24",)}}}, "networks has 10.0.0.0/24"),
    ("cors_any", BOTH, {"serve": {"cors_origins": ("*",)}}, "serve.cors_origins is *"),
    ("cors_any", ({},), {"serve": {"cors_origins": ("*",), "auth": False}}, "serve.cors_origins is *"),
    ("cors_plain", (PRODUCTION,), {"serve": {"cors_origins": ("http://a.example",)}}, "http://a.example"),
    ("docs", (PRODUCTION,), {"serve": {"docs": True}}, "serve.docs is on"),
    ("debug", BOTH, {"debug": True}, "debug is on"),
    ("bare_engine", BOTH, {"engine": "bare", "allow_bare": True}, "engine is bare"),
    ("optional_layers", BOTH, {"optional_layers": ("memory",)}, "optional_layers does without memory"),
    *(
        ("no_quota", BOTH, {group: {name: 0}}, f"{group}.{name} is 0")
        for group, name in (
            ("quota", "sandboxes"),
            ("quota", "active"),
            ("quota", "executions"),
            ("quota", "creates_per_minute"),
            ("capacity", "active"),
            ("capacity", "executions"),
        )
    ),
    ("endless", BOTH, {"life": {"idle_timeout_s": None}}, "no sandbox ever ends"),
    ("lifetimes", ({}, *BOTH), {"life": {"max_lifetime_s": 60}}, "life.max_lifetime_s is 60"),
    ("open_egress", BOTH, {"egress": {"default": "open"}}, "egress.default is open"),
    ("host_egress", BOTH, {"tenant": {"egress_hosts": ("a.example", "127.0.0.1")}}, "127.0.0.1"),
    ("host_egress", BOTH, {"tenants": {"acme": {"egress_hosts": ("169.254.169.254",)}}}, "169.254.169.254"),
    ("host_egress", BOTH, {"tenant": {"egress_hosts": ("0.0.0.0/0",)}}, "0.0.0.0/0"),
    ("plain_http", ({},), {"serve": {"host": "0.0.0.0"}}, "serve.trusted_proxies"),
    ("plain_http", ({},), {"serve": {"host": ""}}, "serve.host is every address"),
    *(
        (
            "public_beta",
            ({}, PRODUCTION),
            {"dialects": {"chatui": {"public_beta": True, name: value}}},
            f"chatui.{name}",
        )
        for name, value in (("allow_pip", True), ("allow_env", True), ("network", "packages"))
    ),
    ("any_proxy", ({}, *BOTH), {"serve": {"trusted_proxies": ("0.0.0.0/0",)}}, "0.0.0.0/0"),
    (
        "plain_tracing",
        (PRODUCTION,),
        {"tracing": {"endpoint": "http://traces.example/v1/traces", "headers": "a=b"}},
        "tracing.endpoint is not encrypted",
    ),
]
FACTS: list[tuple[str, tuple[dict[str, Any], ...], dict[str, Any], str]] = [
    ("no_keys", (PRODUCTION,), {"has_keys": False}, "warren keys create"),
    ("readable_secret", (PRODUCTION,), {"readable_secrets": ("/etc/s",)}, "chmod 600 /etc/s"),
    ("unbuilt_image", (PRODUCTION,), {"unbuilt_images": ("data",)}, "warren image build data"),
    ("unlocked_image", (PRODUCTION,), {"unlocked_images": ("mine",)}, "mine.lock"),
    ("open_data_dir", BOTH, {"is_data_writable": True}, "chmod go-w /srv/warren"),
]


@pytest.mark.parametrize(("name", "bases", "more", "words"), SETTINGS)
def test_a_setting_that_is_risky_there_is_refused_in_one_sentence(
    name: str, bases: tuple[dict[str, Any], ...], more: dict[str, Any], words: str
) -> None:
    for base in bases:
        (sentence,) = sentences(base, more)

        assert sentence.startswith(f"{name}: ")
        assert words in sentence
        assert ": " in sentence.removeprefix(f"{name}: "), "it says what to do"
        assert "\n" not in sentence


@pytest.mark.parametrize(("name", "bases", "facts", "words"), FACTS)
def test_a_machine_that_is_not_ready_is_refused_in_one_sentence(
    name: str, bases: tuple[dict[str, Any], ...], facts: dict[str, Any], words: str
) -> None:
    for base in bases:
        (sentence,) = sentences(base, {}, **facts)

        assert sentence.startswith(f"{name}: ")
        assert words in sentence


def test_each_guardrail_is_tripped_above() -> None:
    assert {name for name, *_ in (*SETTINGS, *FACTS)} == {rail.name for rail in GUARDRAILS}


@pytest.mark.parametrize("base", [{}, *BOTH])
def test_the_defaults_are_good_everywhere(base: dict[str, Any]) -> None:
    assert sentences(base, {}) == []


@pytest.mark.parametrize(
    "more",
    [
        {"serve": {"auth": False}},
        {"serve": {"auth": False, "ports_url": "http://*.apps.localhost:8000"}},
        {"debug": True, "engine": "bare", "optional_layers": ("memory",)},
        {"serve": {"cors_origins": ("http://a.example", "*"), "docs": True}},
        {"quota": {"active": 0}, "life": {"idle_timeout_s": None}},
    ],
)
def test_for_trying_things_out_on_this_machine_it_is_allowed(more: dict[str, Any]) -> None:
    assert sentences({}, more, has_keys=False, unbuilt_images=("data",)) == []


@pytest.mark.parametrize(
    "more",
    [
        {"jwt": {"jwks": "https://issuer.example/keys"}},
        {"jwt": {"secret": "x" * 32}},
        {"serve": {"cors_origins": ("http://localhost:3000", "https://a.example")}},
        {"tracing": {"endpoint": "http://127.0.0.1:4318/v1/traces", "headers": "a=b"}},
        {"life": {"idle_timeout_s": 60, "max_lifetime_s": 60}},
    ],
)
def test_in_production_what_is_done_well_is_allowed(more: dict[str, Any]) -> None:
    assert sentences(PRODUCTION, more, has_keys="jwt" not in more) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST."])
def test_no_key_need_be_asked_for_where_only_this_machine_reaches(host: str) -> None:
    assert sentences({}, {"serve": {"auth": False, "host": host}}) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.4", "example.com", "localhost.evil.example"])
def test_a_key_must_be_asked_for_where_others_reach(host: str) -> None:
    assert sentences({}, {"serve": {"auth": False, "host": host}})[0].startswith("no_auth: ")


def test_all_reasons_are_given_at_once() -> None:
    found = sentences(PRODUCTION, {"debug": True, "serve": {"auth": False, "docs": True}}, is_data_writable=True)

    assert [sentence.partition(":")[0] for sentence in found] == ["no_auth", "docs", "debug", "open_data_dir"]


@pytest.mark.parametrize("rail", [rail.name for rail in GUARDRAILS if rail.can_be_allowed])
def test_a_risk_can_be_allowed_by_its_name(rail: str) -> None:
    for name, bases, more, _ in SETTINGS:
        if name == rail:
            assert sentences(bases[0], {**more, "allow_risks": (rail,)}) == []
    for name, bases, facts, _ in FACTS:
        if name == rail:
            assert sentences(bases[0], {"allow_risks": (rail,)}, **facts) == []


@pytest.mark.parametrize("rail", [rail.name for rail in GUARDRAILS if not rail.can_be_allowed])
def test_what_gives_everything_to_everybody_cannot_be_allowed(rail: str) -> None:
    found = next(case for case in SETTINGS if case[0] == rail)

    refused, sentence = sentences(found[1][0], {**found[2], "allow_risks": (rail,)})

    assert refused.startswith(f"allow_risks names {rail}, which is not a risk that can be allowed")
    assert sentence.startswith(rail)


def test_a_misspelt_risk_is_refused_with_the_nearest() -> None:
    (sentence,) = sentences({}, {"allow_risks": ("plain_htp",)})

    assert "did you mean plain_http?" in sentence
