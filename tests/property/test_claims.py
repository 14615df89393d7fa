"""Whatever JSON arrives, from a gateway or a kernel, it is taken or refused: nothing else happens."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warren.guest.executions.request import parse_run
from warren.guest.wire import claims
from warren.guest.wire.frames import ProtocolError
from warren.guest.wire.parameters import Refused
from warren.guest.wire.run_request import KINDS, WIRE_NAMES

_KEYS = ["exec", "status", "error", "exit_code", "pid", "private_bytes", "why", "display", "data", "metadata", "name"]
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([*claims.STATUSES, "display"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS) | st.text(), inner, max_size=6),
    max_leaves=20,
)
_HEADERS = st.dictionaries(st.sampled_from(_KEYS), _JSON)


@given(_HEADERS, st.binary(max_size=200) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_a_claim_is_checked_or_refused(header: dict[str, Any], payload: bytes) -> None:
    for check in (claims.check_exec, claims.check_done, claims.check_frozen, claims.check_why):
        with contextlib.suppress(ProtocolError):
            check(header)
    with contextlib.suppress(ProtocolError):
        claims.check_display(header, payload)


@given(_HEADERS)
def test_a_finished_cell_has_a_status_an_exit_code_and_perhaps_an_error(header: dict[str, Any]) -> None:
    with contextlib.suppress(ProtocolError):
        status, code, error = claims.check_done(header)
        assert status in claims.STATUSES
        assert 0 <= code <= 255
        assert error is None or set(error) == {"name", "value", "traceback"}


@given(
    st.dictionaries(st.sampled_from(["exec", *WIRE_NAMES.values()]), _JSON),
    st.sampled_from([*KINDS, None]),
    st.binary(max_size=100),
)
def test_a_run_request_is_parsed_or_refused(header: dict[str, Any], kind: str | None, payload: bytes) -> None:
    if kind is not None:
        header = {"exec": "exe_1", **header, "kind": kind}
    with contextlib.suppress(Refused):
        request = parse_run(header, payload)
        assert request.kind in KINDS
        assert request.id
