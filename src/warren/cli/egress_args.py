"""What sandboxes may reach, as people type it, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.options import option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren import Egress

_TARGET = re.compile(
    r"(?P<host>\[[^\]]+\]|[^:]+)(?::(?P<ports>\d{1,5}(?:,\d{1,5})*))?|(?P<bare>[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:./]*)"
)
_MODES = ("none", "packages", "rules", "open")

EgressMode = Annotated[
    str | None,
    option("MODE", "Allowed egress: none, packages (the package indexes) or open (all public hosts).", "--egress"),
]
Allow = Annotated[
    list[str] | None,
    option(
        "HOST[:PORTS]",
        "Host name, glob, address or network that it may also reach, on ports 80 and 443 unless given; repeatable.",
        "--allow",
    ),
]


def parse_target(text: str) -> dict[str, Any]:
    """Turn `api.example.org`, `*.example.org:443` or `[fd00::1]:5432,5433` into a rule."""
    match = _TARGET.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a target: write a host, and its ports after a colon.")
    host = match["bare"] or match["host"].strip("[]")
    return (
        {"host": host, "ports": [int(port) for port in match["ports"].split(",")]} if match["ports"] else {"host": host}
    )


def build_egress(mode: str | None, allow: Iterable[str] | None) -> dict[str, Any] | None:
    """Build the egress of a request; None where no option names one."""
    rules = [parse_target(text) for text in allow or ()]
    if mode is None and not rules:
        return None
    if mode is not None and mode not in _MODES:
        raise typer.BadParameter(
            f"{mode!r} is not an egress mode: write none, packages, open, or rules with the hosts in --allow."
        )
    if mode == "rules" and not rules:
        raise typer.BadParameter("rules need at least one --allow HOST; none is the egress that reaches nothing.")
    return {"mode": mode or "rules", "rules": rules}


def render_target(host: str, ports: Iterable[int], methods: Iterable[str] = ()) -> str:
    """Write a rule as people read it."""
    words = ",".join(methods)
    place = f"[{host}]" if ":" in host else host
    return f"{place}:{','.join(map(str, ports))}" + (f" ({words})" if words else "")


def render_egress(egress: Egress) -> str:
    """Write what a sandbox may reach in one line."""
    rules = ", ".join(render_target(rule.host, rule.ports, rule.methods) for rule in egress.rules)
    return f"{egress.mode}: {rules}" if rules else egress.mode
