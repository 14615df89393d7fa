"""Settings of authentication and tenants: what is refused at start-up, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.minting import SECRET, ec_key, key_set, mint, public_jwk, public_pem, rsa_key
from warren.bootstrap.app import build_policy, build_tokens
from warren.domain.errors import ConfigError, InvalidRequest
from warren.domain.records import ResourceUse, Scope
from warren.domain.values import GIB, MIB
from warren.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, text: str = "", **environ: str) -> Settings:
    (folder / "warren.toml").write_text(text)
    return Settings.load({f"WARREN_{name}": value for name, value in environ.items()}, str(folder))


def test_without_anything_to_check_tokens_with_there_are_none(tmp_path: Path) -> None:
    assert build_tokens(load(tmp_path).jwt) is None
    assert build_tokens(load(tmp_path, JWT_ISSUER="x").jwt) is None


def test_a_secret_alone_is_enough_and_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    tokens = build_tokens(load(tmp_path, JWT_SECRET_FILE=str(tmp_path / "secret")).jwt)

    assert tokens is not None
    assert anyio.run(tokens.authenticate, mint(aud=None, scope="warren:admin")).scope is Scope.ADMIN


def test_a_key_file_and_a_key_set_can_be_had_together(tmp_path: Path) -> None:
    (tmp_path / "issuer.pem").write_bytes(public_pem(rsa_key()))
    (tmp_path / "keys.json").write_bytes(key_set(public_jwk(ec_key(), kid="two")))
    text = f"""
        [jwt]
        public_key_file = "{tmp_path}/issuer.pem"
        jwks = "{tmp_path}/keys.json"
        issuer = ["https://issuer.example"]
        audience = ["warren"]
        """
    tokens = build_tokens(load(tmp_path, text).jwt)

    async def check() -> None:
        assert tokens is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tokens.run)
            assert (await tokens.authenticate(mint(rsa_key(), "RS256"))).subject == "jwt:ann"
            assert (await tokens.authenticate(mint(ec_key(), "ES256", {"kid": "two"}))).subject == "jwt:ann"
            tasks.cancel_scope.cancel()

    anyio.run(check)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"JWT_SECRET": "short"}, "jwt.secret cannot be used: the secret has 5 bytes"),
        ({"JWT_SECRET": SECRET[:40], "JWT_ALGORITHMS": "HS512"}, "needs 64"),
        ({"JWT_SECRET": SECRET, "JWT_ALGORITHMS": "none"}, "cannot have 'none'"),
        ({"JWT_SECRET": SECRET, "JWT_ALGORITHMS": "RS257"}, "cannot have 'RS257'"),
        ({"JWT_SECRET": public_pem(rsa_key()).decode()}, "public_key_file"),
        ({"JWT_PUBLIC_KEY_FILE": "missing.pem", "JWT_AUDIENCE": "a"}, "jwt.issuer must be set"),
        ({"JWT_JWKS": "https://issuer.example/k", "JWT_ISSUER": "i"}, "jwt.audience must be set"),
        ({"JWT_JWKS": "http://issuer.example/k", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}, "https://"),
        ({"JWT_JWKS": "missing.json", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}, "missing.json cannot be used"),
        ({"JWT_PUBLIC_KEY_FILE": "missing.pem", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}, "No such file"),
        ({"JWT_PUBLIC_KEY_FILE": "/dev/null", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}, "no `-----BEGIN"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    settings = load(tmp_path, **environ).jwt
    with pytest.raises(ConfigError) as caught:
        build_tokens(settings)
    assert said in str(caught.value)
    assert SECRET[:40] not in str(caught.value)


def test_every_token_is_of_some_tenant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"jwt\.tenant must be set"):
        build_tokens(load(tmp_path, f'[jwt]\nsecret = "{SECRET}"\ntenant_claim = ""').jwt)


def test_a_tenant_has_what_its_own_table_says_and_else_what_all_have(tmp_path: Path) -> None:
    text = """
        [tenant]
        active = 5
        memory_bytes = "4G"
        requests_per_minute = 100
        max_memory_bytes = "256M"

        [tenants.acme]
        active = 50
        requests_per_minute = 0
        max_cpus = 0.5

        [tenants."a b"]
        executions = 3
        """
    policy = build_policy(load(tmp_path, text))

    assert policy.ceiling_of("anybody").holding == ResourceUse(active=5, memory_bytes=4 * GIB)
    assert policy.ceiling_of("acme").holding == ResourceUse(active=50, memory_bytes=4 * GIB)
    assert (policy.ceiling_of("acme").requests_per_minute, policy.ceiling_of("a b").requests_per_minute) == (0, 100)
    assert policy.ceiling_of("a b").executions == 3
    assert (policy.limits_of("acme").memory_bytes, policy.limits_of("acme").cpus) == (256 * MIB, 0.5)
    assert (policy.limits_of("anybody").memory_bytes, policy.limits_of("anybody").cpus) == (256 * MIB, 1.0)


def test_no_sandbox_of_a_tenant_is_larger_than_the_tenant_may_have(tmp_path: Path) -> None:
    policy = build_policy(load(tmp_path, "[tenants.acme]\nmax_memory_bytes = '1G'\nmax_pids = 64\n"))
    limits = policy.limits_of("acme")
    policy.check_limits("acme", limits)
    policy.check_limits("other", policy.limits)

    with pytest.raises(InvalidRequest, match=r"pids may be at most 64 in a sandbox of tenant 'acme', and 256"):
        policy.check_limits("acme", policy.limits)
    policy.check_limits("acme", policy.limits, policy.limits)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tenants.acme]\nmax_memory_bytes = '1M'", "tenants.acme: no sandbox could be made"),
        ("[tenant]\nmax_pids = 2", "tenant: no sandbox could be made"),
        ("[tenants.acme]\nactiv = 1", "active"),
        ("[tenants.acme]\nactive = -1", "tenants.acme.active"),
        ("[tenants]\nacme = 5", "table"),
    ],
)
def test_ceilings_that_make_no_sense_are_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_policy(load(tmp_path, text))
    assert said in str(caught.value)
