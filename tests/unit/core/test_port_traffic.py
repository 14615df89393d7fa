"""Audit entries of ports: a first one, then one for each minute with traffic."""

from __future__ import annotations

from typing import Any

from warren.core.ports.ports import WINDOW_S, PortTraffic
from warren.domain.records import Caller, Principal

ANN = Caller(principal=Principal(subject="ann"), request_id="req_1")
SANDBOX = "sbx_0123456789abcdef01234567"


class Record:
    """Keeps what it is told, as the audit record does."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def note(self, caller: Caller, action: str, **details: Any) -> None:
        self.entries.append({"caller": caller, "action": action, **details})


class Minutes:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def build() -> tuple[PortTraffic, Record, Minutes]:
    record, clock = Record(), Minutes()
    return PortTraffic(record, clock), record, clock  # type: ignore[arg-type]  # it notes, which is all that is asked


def test_a_minute_is_one_entry() -> None:
    traffic, record, clock = build()
    firsts = []
    for number in range(200):
        window, is_first = traffic.begin(ANN, SANDBOX, 5000)
        firsts.append(is_first)
        window.bytes_in += 10
        window.bytes_out += 100
        window.end("200" if number else "404")
    traffic.collect()
    assert record.entries == []
    clock.now += WINDOW_S
    traffic.collect()

    assert firsts == [True] + [False] * 199
    (entry,) = record.entries
    assert entry["action"] == "port.traffic"
    assert (entry["requests"], entry["bytes_in"], entry["bytes_out"]) == (200, 2000, 20_000)
    assert entry["statuses"] == {"404": 1, "200": 199}
    assert traffic.begin(ANN, SANDBOX, 5000)[1]


def test_a_connection_that_lasts_is_in_every_minute_in_which_something_passed() -> None:
    traffic, record, clock = build()
    window, _ = traffic.begin(ANN, SANDBOX, 5000)
    for passed in (5, 0, 7):
        window.bytes_out += passed
        clock.now += WINDOW_S
        traffic.collect()
    window.end("101")
    traffic.collect(now=True)

    assert [each["bytes_out"] for each in record.entries] == [5, 7, 0]
    assert [each["requests"] for each in record.entries] == [0, 0, 1]


def test_people_ports_and_links_are_told_apart() -> None:
    traffic, record, _ = build()
    by_link = Caller(principal=ANN.principal, request_id="req_2", link_id="lnk_1")
    for caller, port in ((ANN, 1), (ANN, 2), (by_link, 1)):
        window, is_first = traffic.begin(caller, SANDBOX, port)
        window.end("200")
        assert is_first
    traffic.collect(now=True)

    assert [(each["caller"].link_id, each["port"]) for each in record.entries] == [("", 1), ("", 2), ("lnk_1", 1)]


def test_what_is_kept_is_bounded() -> None:
    traffic, record, _ = build()
    for port in range(1, 5000):
        window, _ = traffic.begin(ANN, SANDBOX, port)
        for status in range(100, 130):
            window.open += 1
            window.end(str(status))
        window.end("200")

    assert len(traffic._windows) <= 4096
    assert all(len(each["statuses"]) <= 17 for each in record.entries)
