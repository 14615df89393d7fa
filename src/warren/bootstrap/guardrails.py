"""Guardrails: settings that a service refuses to start with, in production or where other machines reach it.

Pure: settings and facts in, sentences out.

1. A sentence names the setting and the remedy.
2. All findings are reported at once, so that an operator does not start the service five times to learn five things.
3. A risk that an operator may have reasons for can be allowed by its name, in `allow_risks`. Settings that make no
   sense, or open everything to anyone, cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from warren.core.policy.public_addresses import is_loopback
from warren.domain.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.settings import Settings

MIN_SECRET = 32
_OF_HOSTS = tuple(map(ip_network, ("127.0.0.0/8", "169.254.0.0/16", "::1/128", "fe80::/10", "fd00:ec2::254/128")))
_LIMITS = (
    "quota.sandboxes",
    "quota.active",
    "quota.executions",
    "quota.creates_per_minute",
    "capacity.active",
    "capacity.executions",
    "maximum.memory_bytes",
    "maximum.cpus",
    "maximum.pids",
    "maximum.disk_bytes",
    "disk.free_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of this machine that the settings do not contain."""

    has_keys: bool = True
    unbuilt_images: tuple[str, ...] = ()
    unlocked_images: tuple[str, ...] = ()
    """Images without a lock of their versions."""
    readable_secrets: tuple[str, ...] = ()
    """Files with secrets that every user of this machine can read."""
    is_data_writable: bool = False
    """Whether other users can write to the data folder."""


def is_public(settings: Settings) -> bool:
    """Whether other machines reach the service, directly or through a proxy."""
    serve = settings.serve
    return not is_loopback(serve.host) or bool(serve.trusted_proxies) or _has_public_name(serve.ports_url)


def _has_public_name(ports_url: str) -> bool:
    """Whether servers inside have hosts in the public DNS, which lead to something of the service."""
    name = urlsplit(ports_url.replace("*.", "", 1)).hostname or "localhost"
    return not is_loopback(name) and not name.endswith(".localhost")


def is_production(settings: Settings) -> bool:
    """Whether the operator set production."""
    return settings.env == "production"


def is_exposed(settings: Settings) -> bool:
    """Whether strangers may connect: in production, and where other machines reach it."""
    return is_production(settings) or is_public(settings)


def _always(_settings: Settings) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Guardrail:
    """One reason not to start."""

    name: str
    when: Callable[[Settings], bool]
    find: Callable[[Settings, Facts], Iterator[str]]
    can_be_allowed: bool = True


def check(settings: Settings, facts: Facts) -> list[str]:
    """Return a sentence for each finding; empty is good."""
    known = {rail.name for rail in GUARDRAILS if rail.can_be_allowed}
    found = [
        f"allow_risks names {name}, which is not a risk that can be allowed{suggest(name, known)}"
        for name in settings.allow_risks
        if name not in known
    ]
    for rail in GUARDRAILS:
        is_allowed = rail.can_be_allowed and rail.name in settings.allow_risks
        if not is_allowed and rail.when(settings):
            found += [f"{rail.name}: {sentence}" for sentence in rail.find(settings, facts)]
    return found


def _no_auth(settings: Settings, _facts: Facts) -> Iterator[str]:
    if not settings.serve.auth:
        yield (
            f"serve.auth is off (--no-auth), so anyone who reaches {settings.serve.host or 'any address'} can run "
            "code: that is allowed on 127.0.0.1, ::1 and localhost only, without a proxy and not in production"
        )


def _open_dialect(settings: Settings, _facts: Facts) -> Iterator[str]:
    for name in type(settings.dialects).model_fields:
        if getattr(settings.dialects, name).open:
            yield (
                f"dialects.{name}.open lets anyone who reaches {settings.serve.host or 'any address'} run code: give "
                f"its clients keys, or list their addresses in dialects.{name}.networks"
            )


def _any_network(settings: Settings, _facts: Facts) -> Iterator[str]:
    for name, network in _list_doors(settings):
        if network.prefixlen == 0:
            yield f"dialects.{name}.networks has {network}, so anyone can run code: list the addresses of its clients"


def _proxy_network(settings: Settings, _facts: Facts) -> Iterator[str]:
    proxies = [ip_network(each) for each in (*settings.serve.trusted_proxies, "127.0.0.0/8", "::1/128")]
    for name, network in _list_doors(settings):
        if network.prefixlen and any(network.overlaps(proxy) for proxy in proxies):
            yield (
                f"dialects.{name}.networks has {network}, which is a proxy or this machine itself: what a proxy passes "
                "on may come from anyone, so list the addresses of its clients only"
            )


def _list_doors(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield each network of each dialect."""
    for name in type(settings.dialects).model_fields:
        for network in getattr(settings.dialects, name).networks:
            yield name, ip_network(network)


def _no_keys(settings: Settings, facts: Facts) -> Iterator[str]:
    jwt = settings.jwt
    if settings.serve.auth and not facts.has_keys and not (jwt.secret or jwt.public_key_file or jwt.jwks):
        yield (
            "serve.auth requires keys, but there are neither keys nor [jwt], and in production none is created at the "
            "first start: create one with `warren keys create NAME --scope admin`"
        )


def _short_secret(settings: Settings, _facts: Facts) -> Iterator[str]:
    secret = settings.jwt.secret
    if secret is not None and len(secret.get_secret_value()) < MIN_SECRET:
        yield f"jwt.secret has less than {MIN_SECRET} characters: make one with `openssl rand -hex 32`"


def _readable_secret(_settings: Settings, facts: Facts) -> Iterator[str]:
    for path in facts.readable_secrets:
        yield f"{path} holds a secret and every user of this machine can read it: run `chmod 600 {path}`"


def _cors_any(settings: Settings, _facts: Facts) -> Iterator[str]:
    if "*" in settings.serve.cors_origins:
        yield "serve.cors_origins is *, which allows every web page: name yours, such as https://app.example.com"


def _cors_plain(settings: Settings, _facts: Facts) -> Iterator[str]:
    for origin in settings.serve.cors_origins:
        if origin.startswith("http://") and not is_loopback(urlsplit(origin).hostname or ""):
            yield f"serve.cors_origins has {origin}, which can be changed in transit: serve it with https"


def _docs(settings: Settings, _facts: Facts) -> Iterator[str]:
    if settings.serve.docs:
        yield "serve.docs is on, which shows the API to attackers: turn it off, or leave it unset"


def _debug(settings: Settings, _facts: Facts) -> Iterator[str]:
    if settings.debug:
        yield "debug is on, which writes tracebacks with their values to the log: turn it off"


def _bare_engine(settings: Settings, _facts: Facts) -> Iterator[str]:
    if settings.engine == "bare":
        yield "engine is bare, which isolates nothing from this machine: use the local engine"


def _optional_layers(settings: Settings, _facts: Facts) -> Iterator[str]:
    if settings.optional_layers:
        layers = ", ".join(settings.optional_layers)
        yield f"optional_layers does without {layers}: enable them on this host (see `warren doctor`), and unset it"


def _no_quota(settings: Settings, _facts: Facts) -> Iterator[str]:
    values = dict(settings.values())
    for name in _LIMITS:
        if values[name] == 0:
            yield f"{name} is 0, which is no limit: one caller could use up all resources; set one"


def _endless(settings: Settings, _facts: Facts) -> Iterator[str]:
    if settings.life.idle_timeout_s is None and settings.life.max_lifetime_s is None:
        yield "life.idle_timeout_s and life.max_lifetime_s are both none, so no sandbox ever ends: set one of them"


def _lifetimes(settings: Settings, _facts: Facts) -> Iterator[str]:
    idle, most = settings.life.idle_timeout_s, settings.life.max_lifetime_s
    if idle is not None and most is not None and most < idle:
        yield (
            f"life.max_lifetime_s is {most:g} and ends sandboxes before life.idle_timeout_s, {idle:g}, can stop them: "
            "raise the one or lower the other"
        )


def _open_egress(settings: Settings, _facts: Facts) -> Iterator[str]:
    if settings.egress.default == "open":
        yield (
            "egress.default is open, so every sandbox reaches all public hosts from the address of this host: choose "
            "none or packages, and let callers request more"
        )


def _host_egress(settings: Settings, _facts: Facts) -> Iterator[str]:
    for tenant in (settings.tenant, *settings.tenants.values()):
        for host in tenant.egress_hosts or ():
            try:
                network = ip_network(host, strict=False)
            except ValueError:
                continue
            if any(network.version == each.version and network.overlaps(each) for each in _OF_HOSTS):
                yield (
                    f"tenant.egress_hosts has {host}, where services of this machine, or its cloud, trust every local "
                    "client: name the few addresses that sandboxes need"
                )


def _plain_http(settings: Settings, _facts: Facts) -> Iterator[str]:
    host = settings.serve.host
    if not is_loopback(host) and not settings.serve.trusted_proxies:
        yield (
            f"serve.host is {host or 'every address'}, where keys and code would cross the network unencrypted: put a "
            "proxy with TLS before it and name its address in serve.trusted_proxies, or listen on 127.0.0.1"
        )


def _any_proxy(settings: Settings, _facts: Facts) -> Iterator[str]:
    for network in settings.serve.trusted_proxies:
        if ip_network(network).prefixlen == 0:
            yield f"serve.trusted_proxies has {network}, so any client can claim any address: name your proxy's"


def _unbuilt_image(_settings: Settings, facts: Facts) -> Iterator[str]:
    for image in facts.unbuilt_images:
        yield f"image {image} is not built, and a start in production fetches nothing: run `warren image build {image}`"


def _unlocked_image(_settings: Settings, facts: Facts) -> Iterator[str]:
    for image in facts.unlocked_images:
        yield f"image {image} has no lock, so each build may be another: write {image}.lock beside its spec"


def _open_data_dir(settings: Settings, facts: Facts) -> Iterator[str]:
    if facts.is_data_writable:
        path = settings.data_dir
        yield f"data_dir, {path}, can be written by other users of this machine: run `chmod go-w {path}`"


def _plain_tracing(settings: Settings, _facts: Facts) -> Iterator[str]:
    address = urlsplit(settings.tracing.endpoint)
    if settings.tracing.headers is not None and address.scheme == "http" and not is_loopback(address.hostname or ""):
        yield "tracing.endpoint is not encrypted, and tracing.headers would cross the network with it: use https"


def _public_beta(settings: Settings, _facts: Facts) -> Iterator[str]:
    chatui = settings.dialects.chatui
    forbidden = {
        "serve.auth is off": not settings.serve.auth,
        "dialects.chatui.open is on": chatui.open,
        "dialects.chatui.allow_pip is on": chatui.allow_pip,
        "dialects.chatui.allow_env is on": chatui.allow_env,
        f"dialects.chatui.network is {chatui.network}": chatui.network != "none",
        "engine is bare": settings.engine == "bare",
    }
    for what, is_so in forbidden.items():
        if is_so:
            yield f"{what}, which dialects.chatui.public_beta forbids: change it, or turn public_beta off"


GUARDRAILS = (
    Guardrail("no_auth", is_exposed, _no_auth, can_be_allowed=False),
    Guardrail("open_dialect", is_exposed, _open_dialect, can_be_allowed=False),
    Guardrail("any_network", _always, _any_network, can_be_allowed=False),
    Guardrail("proxy_network", is_exposed, _proxy_network),
    Guardrail("no_keys", is_production, _no_keys),
    Guardrail("short_secret", is_production, _short_secret),
    Guardrail("readable_secret", is_production, _readable_secret),
    Guardrail("cors_any", lambda settings: is_exposed(settings) or not settings.serve.auth, _cors_any),
    Guardrail("cors_plain", is_production, _cors_plain),
    Guardrail("docs", is_production, _docs),
    Guardrail("debug", is_exposed, _debug),
    Guardrail("bare_engine", is_exposed, _bare_engine, can_be_allowed=False),
    Guardrail("optional_layers", is_exposed, _optional_layers),
    Guardrail("no_quota", is_exposed, _no_quota),
    Guardrail("endless", is_exposed, _endless),
    Guardrail("lifetimes", _always, _lifetimes, can_be_allowed=False),
    Guardrail("open_egress", is_exposed, _open_egress),
    Guardrail("host_egress", is_exposed, _host_egress),
    Guardrail("plain_http", is_public, _plain_http),
    Guardrail("any_proxy", _always, _any_proxy, can_be_allowed=False),
    Guardrail("unbuilt_image", is_production, _unbuilt_image),
    Guardrail("unlocked_image", is_production, _unlocked_image),
    Guardrail("open_data_dir", is_exposed, _open_data_dir),
    Guardrail("plain_tracing", is_production, _plain_tracing),
    Guardrail("public_beta", lambda settings: settings.dialects.chatui.public_beta, _public_beta, can_be_allowed=False),
)
