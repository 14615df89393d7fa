"""What sandboxes may reach, as people type it."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from warren.cli.egress_args import build_egress, parse_target, render_egress
from warren.sdk.values_sandboxes import Egress, EgressRule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("api.example.org", {"host": "api.example.org"}),
        ("*.example.org:443", {"host": "*.example.org", "ports": [443]}),
        ("10.0.0.0/8:5432,5433", {"host": "10.0.0.0/8", "ports": [5432, 5433]}),
        ("fd00::1", {"host": "fd00::1"}),
        ("fd00::/8", {"host": "fd00::/8"}),
        ("[fd00::1]:80", {"host": "fd00::1", "ports": [80]}),
    ],
)
def test_a_target_is_a_host_and_its_ports(text: str, rule: dict[str, Any]) -> None:
    assert parse_target(text) == rule


@pytest.mark.parametrize("text", ["", ":80", "a:b", "a:80,", "http://a.example", "a:"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_target(text)


def test_an_egress_is_a_mode_and_what_is_allowed_besides() -> None:
    assert build_egress(None, None) is None
    assert build_egress("open", ()) == {"mode": "open", "rules": []}
    assert build_egress(None, ["a.example"]) == {"mode": "rules", "rules": [{"host": "a.example"}]}
    with pytest.raises(typer.BadParameter, match="none, packages, open, or rules"):
        build_egress("all", None)
    with pytest.raises(typer.BadParameter, match="--allow"):
        build_egress("rules", ())


def test_an_egress_is_one_line() -> None:
    rules = (EgressRule(host="fd00::1", ports=(80,)), EgressRule(host="a.example", methods=("GET",)))

    assert render_egress(Egress()) == "none"
    assert render_egress(Egress(mode="rules", rules=rules)) == "rules: [fd00::1]:80, a.example:80,443 (GET)"
