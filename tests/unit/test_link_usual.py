"""What both ends of a link leave out because it is usual: the same for both, or it means another thing."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from warren.core.agent.events import Shown, parse_event
from warren.domain.values import Echo, ExecKind, ExecRequest, ExecResult, Keep
from warren.guest.executions.execution import USUAL
from warren.guest.executions.request import parse_run
from warren.guest.wire.run_request import DEFAULTS, RunRequest, encode_run

ALWAYS = {"exec": "exe_1", "duration_ms": 1.0, "cpu_ms": 2.0}

OTHERS: dict[str, Any] = {
    "kind": ExecKind.SHELL,
    "kernel": "other",
    "argv": ("a", "b"),
    "timeout_s": 7.5,
    "grace_s": 0.0,
    "idle_timeout_s": 0.25,
    "env": {"A": "1"},
    "cwd": "below",
    "echo": Echo.NONE,
    "file": "f.py",
    "label": "a label",
    "figures": "/tmp/figures",
    "scratch": ("/tmp/in",),
    "collect": "/tmp/out",
    "stream": False,
    "paced": True,
    "output_bytes": 7,
    "output_keep": Keep.HEAD,
    "output_max_bytes": 8,
    "kill_leftovers": True,
    "scan_changes": False,
    "checkpoint": False,
}
"""Of each field of a request a value that has to be said."""


def parse_result(body: dict[str, Any]) -> ExecResult:
    content = json.dumps(body).encode()
    header = {"t": "event", "seq": 1, "kind": "result", "parts": [len(content), 0, 0]}
    result = parse_event(header, content, "exe_1", Shown()).result
    assert result is not None
    return result


def parse_request(request: ExecRequest) -> RunRequest:
    # As it arrives: through JSON, in which there are no tuples and no members of enumerations.
    return parse_run(json.loads(json.dumps(encode_run(request))), request.code.encode())


def test_what_a_result_leaves_out_is_what_the_service_takes_it_for() -> None:
    assert parse_result(ALWAYS) == parse_result({**ALWAYS, **USUAL})


def test_what_a_request_leaves_out_is_what_the_agent_takes_it_for() -> None:
    plain = ExecRequest(id="exe_1")
    assert {name: getattr(plain, name) for name in DEFAULTS if name != "stdin"} == {
        name: default for name, default in DEFAULTS.items() if name != "stdin"
    }
    assert parse_request(plain) == RunRequest(id="exe_1")


def test_a_plain_request_says_nothing_but_its_name() -> None:
    assert encode_run(ExecRequest(id="exe_1")) == {"exec": "exe_1"}


def test_every_field_of_a_request_is_tried() -> None:
    assert {field.name for field in fields(ExecRequest)} == {"id", "code", *OTHERS}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_usual_reaches_the_agent(name: str) -> None:
    plain = ExecRequest(id="exe_1", argv=("true",))
    asked = replace(plain, **{name: OTHERS[name]})
    before, after = parse_request(plain), parse_request(asked)

    assert getattr(after, name) == OTHERS[name]
    # And nothing else has changed by that, but that it has no follower.
    changed = {field.name for field in fields(RunRequest) if getattr(before, field.name) != getattr(after, field.name)}
    assert changed == ({"stream", "whole"} if name == "stream" else {name})
