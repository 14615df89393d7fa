"""Log lines: what they hold, and what they never do."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from warren.gateway.ops.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "canary-3f9a"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Put logging back as it was: it belongs to the whole process."""
    root, ours = logging.getLogger(), logging.getLogger("warren")
    before = (root.handlers[:], root.level, ours.level, logging.raiseExceptions)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.raiseExceptions = before[3]


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_one_line_of_json() -> None:
    out = io.StringIO()
    configure_logs(stream=out)

    logging.getLogger("warren.access").info("request.finished", extra={"status": 200, "duration_ms": 1.5})

    (line,) = lines(out)
    assert (line["level"], line["event"], line["status"], line["duration_ms"]) == ("info", "request.finished", 200, 1.5)
    assert line["time"].endswith("+00:00")


def test_on_a_terminal_it_is_words() -> None:
    out = Terminal()
    configure_logs(stream=out)

    logging.getLogger("warren.pool").warning("pool.empty", extra={"image": "data", "nothing": ""})

    assert out.getvalue().split()[1:] == ["warning", "pool.empty", "image=data"]


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_the_operator_can_choose_the_form(kind: type[io.StringIO]) -> None:
    said = {}
    for form in ("text", "json"):
        said[form] = kind()
        configure_logs(stream=said[form], form=form)
        logging.getLogger("warren.pool").warning("pool.empty", extra={"image": "data"})

    assert said["text"].getvalue().split()[1:] == ["warning", "pool.empty", "image=data"]
    assert lines(said["json"])[0]["image"] == "data"


@pytest.mark.parametrize(
    ("level", "debug", "said"),
    [
        ("debug", False, ["debug", "info", "warning", "error"]),
        ("info", False, ["info", "warning", "error"]),
        ("warning", False, ["warning", "error"]),
        ("error", False, ["error"]),
        ("error", True, ["debug", "info", "warning", "error"]),
    ],
)
def test_the_operator_can_choose_the_least_that_is_logged(level: str, debug: bool, said: list[str]) -> None:
    out = io.StringIO()
    configure_logs(stream=out, level=level, debug=debug)

    for each in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("warren.pool").log(each, "pool.empty")
    logging.getLogger("asyncio").info("using selector")

    assert [line["level"] for line in lines(out)] == said


def test_an_exception_is_named_and_placed_but_not_quoted() -> None:
    out = io.StringIO()
    configure_logs(stream=out)

    try:
        int(CANARY)
    except ValueError:
        logging.getLogger("warren.core").exception("something.failed")

    (line,) = lines(out)
    assert line["error"] == "ValueError"
    assert "test_logs.py" in line["where"]
    assert CANARY not in out.getvalue()


def test_with_debug_an_exception_is_quoted() -> None:
    out = io.StringIO()
    configure_logs(stream=out, debug=True)

    try:
        int(CANARY)
    except ValueError:
        logging.getLogger("warren.core").exception("something.failed")

    assert CANARY in lines(out)[0]["traceback"]


def test_of_other_libraries_only_the_first_line_of_the_template_is_kept() -> None:
    out = io.StringIO()
    configure_logs(stream=out)

    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: %s", CANARY)
    logging.getLogger("uvicorn.error").error("bad %s", CANARY)
    logging.getLogger("uvicorn.error").info("started %s", CANARY)

    assert [line["event"] for line in lines(out)] == [
        "asyncio: Task exception was never retrieved",
        "uvicorn.error: bad %s",
    ]


def test_a_field_cannot_forge_a_line_or_fill_a_disk() -> None:
    out = io.StringIO()
    configure_logs(stream=out)

    logging.getLogger("warren.x").info(
        "a\nb", extra={"name_of": "\n{}\udcff\x1b[2J", "long": "x" * 10_000, "big": 1 << 80}
    )

    (line,) = lines(out)
    assert line["event"] == "a?b"
    assert line["name_of"] == "?{}??[2J"
    assert len(line["long"]) < 400
    assert line["big"] == str(1 << 80)


def test_a_closed_stream_stops_no_logging() -> None:
    out = io.StringIO()
    configure_logs(stream=out)
    out.close()

    logging.getLogger("warren.x").info("still.alive")
