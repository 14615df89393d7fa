"""Between Onyx's words and ours: what no request can bring about at will."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from warren.core.executions.jobs import JobResult
from warren.domain.values import Cause, Entry, Event, State
from warren.gateway.dialects.details import Refused
from warren.gateway.dialects.onyx import translate
from warren.testing.store_subject import make_execution, make_result, make_sandbox

if TYPE_CHECKING:
    from warren.domain.values import ExecResult


def build(**fields: Any) -> ExecResult:
    plain = {
        "exit_code": 0,
        "cause": Cause.EXITED,
        "state": State.NONE,
        "stdout": b"",
        "stderr": b"",
        "stdout_bytes": 0,
        "stderr_bytes": 0,
        "hint": None,
        "duration_ms": 1.9,
    }
    return make_result(**{**plain, **fields})


def test_a_list_that_is_cut_says_so() -> None:
    entry = Entry(path="a", type="file", size=1, mode=0o644, mtime_ns=0)

    assert translate.render_entries((entry,), is_cut=False) == {"files": [{"path": "a", "kind": "file"}]}
    assert "more in the workspace than these 1" in translate.render_entries((entry,), is_cut=True)["note"]


def done(result: ExecResult, *, unkept: tuple[str, ...] = (), is_complete: bool = True) -> JobResult:
    return JobResult(make_execution(make_sandbox(), result=result), (), unkept, is_complete)


def read(*events: bytes) -> list[tuple[str, Any]]:
    lines = [event.decode().split("\n") for event in events]
    return [(each[0].removeprefix("event: "), json.loads(each[1].removeprefix("data: "))) for each in lines]


def test_output_that_was_skipped_comes_with_the_result() -> None:
    writer = translate.StreamWriter(100)
    sent = [*writer.write(Event(1, "stdout", b"one "))]
    sent += writer.write(Event(2, "stdout", b"three ", skipped=4))
    sent += writer.write(Event(3, "stdout", b"four"))
    sent += writer.write(Event(4, "display"))
    result = build(stdout=b"one two three four", stdout_bytes=18)
    sent += writer.finish(done(result))

    assert read(*sent) == [
        ("output", {"stream": "stdout", "data": "one "}),
        ("output", {"stream": "stdout", "data": "two three four"}),
        ("result", {"exit_code": 0, "timed_out": False, "duration_ms": 1, "files": []}),
    ]


def test_a_stream_ends_at_its_limit_and_not_within_a_character() -> None:
    writer = translate.StreamWriter(5)
    sent = [*writer.write(Event(1, "stderr", "ééé".encode()))]
    sent += writer.finish(done(build(stderr="éé".encode() + b"\xc3", stderr_bytes=6)))

    assert read(*sent)[:-1] == [("output", {"stream": "stderr", "data": "éé"})]


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    writer = translate.StreamWriter(100)
    sent = [*writer.write(Event(1, "stdout", b"a\xc3"))]
    sent += writer.finish(done(build(stdout=b"a\xc3", stdout_bytes=2)))

    assert "".join(data["data"] for name, data in read(*sent) if name == "output") == "a\ufffd"


def test_what_has_no_place_in_the_answer_is_said_below_the_programs_errors() -> None:
    result = build(stderr=b"half a line", stderr_bytes=11, exit_code=-9, cause=Cause.OOM, hint="Use less memory.")
    ended = done(result, unkept=("a.bin", "b\udcff.bin"), is_complete=False)
    answer = translate.render_executed(ended, 1000)
    writer = translate.StreamWriter(1000)
    sent = [*writer.write(Event(1, "stderr", b"half a line")), *writer.finish(ended)]
    said = "".join(data["data"] for name, data in read(*sent) if name == "output")

    assert answer["stderr"] == said
    first, oom, files, more = said.splitlines()
    assert (first, oom) == ("half a line", "[warren] Use less memory.")
    assert files.startswith("[warren] 2 of the files")
    assert "a.bin" in files
    assert more.startswith("[warren] the workspace has more files")
    assert (answer["exit_code"], answer["timed_out"]) == (137, False)


@pytest.mark.parametrize(
    ("exit_code", "cause", "shown"),
    [(0, Cause.EXITED, 0), (255, Cause.EXITED, 255), (-15, Cause.KILLED, 143), (-9, Cause.TIMEOUT, None)],
)
def test_an_exit_code_is_as_shells_have_it(exit_code: int, cause: Cause, shown: int | None) -> None:
    answer = translate.render_ran(build(exit_code=exit_code, cause=cause, hint="not said"), 1000)

    assert (answer["exit_code"], answer["timed_out"], answer["stderr"]) == (shown, cause is Cause.TIMEOUT, "")


@pytest.mark.parametrize(
    ("path", "clean"),
    [("a", "a"), ("./a//b/.", "a/b"), (".hidden", ".hidden"), ("..dots", "..dots"), ("a b", "a b"), ("...", "...")],
)
def test_a_path_is_written_one_way(path: str, clean: str) -> None:
    assert translate.parse_path(path) == clean


@pytest.mark.parametrize("path", ["/a", "//a", "..", "a/..", "a/../b", "", ".", "./", "a/b/../../.."])
def test_a_path_outside_is_refused(path: str) -> None:
    with pytest.raises(Refused) as caught:
        translate.parse_path(path)
    assert caught.value.status == 422


def test_only_the_programs_own_path_is_reserved() -> None:
    assert translate.parse_path("sub/__main__.py", reserved=True) == "sub/__main__.py"
    assert translate.parse_path("__main__.py") == "__main__.py"
    with pytest.raises(Refused):
        translate.parse_path("./__main__.py", reserved=True)
