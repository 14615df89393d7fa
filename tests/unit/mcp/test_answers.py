"""What tools say, and which sandbox a name means: pure, for any input."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from warren.domain.errors import Overloaded, SandboxLost
from warren.domain.values import Cause, Display, ExecResult, FileChange, State
from warren.mcp_server.answers import clip, dump, explain, list_changes, pictures, why
from warren.mcp_server.original import render_run
from warren.mcp_server.server import TOOLS
from warren.mcp_server.tool import build_schema
from warren.mcp_server.use import session_key


@given(st.text(), st.text())
def test_different_names_are_different_sandboxes_and_every_name_makes_a_key(one: str, other: str) -> None:
    assert (session_key(one) == session_key(other)) == (one == other)
    assert 5 <= len(session_key(one)) <= 256
    assert session_key(one).isascii()


@given(st.text(max_size=3000), st.integers(3, 1000))
def test_a_clipped_text_has_both_ends_and_says_how_much_is_missing(text: str, most: int) -> None:
    clipped = clip(text, most)
    if len(text) <= most:
        assert clipped == text
    else:
        assert clipped.startswith(text[: most // 3])
        assert clipped.endswith(text[most // 3 - most :])
        assert f"{len(text) - most} characters left out" in clipped


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(-64, 255))
def test_a_result_of_the_original_s_is_json_whatever_a_program_wrote(out: bytes, err: bytes, code: int) -> None:
    result = ExecResult(id="exe_1", exit_code=code, cause=Cause.EXITED, state=State.NONE, stdout=out, stderr=err)
    told = json.loads(dump(render_run("c\ud800", result, 1)))
    assert told["returncode"] == (code if code >= 0 else 128 - code)
    assert set(told) == {"command", "stdout", "stderr", "returncode", "status", "files_created"}


def test_pictures_are_bounded_together_and_private_files_are_not_named() -> None:
    large = Display(data={"image/png": "x" * (3 << 20)})
    shown = (large, large, *[Display(data={"image/png": "y"})] * 20)
    result = ExecResult(id="e", exit_code=0, cause=Cause.EXITED, state=State.KEPT, displays=shown)
    assert [len(each.data) for each in pictures(result)] == [3 << 20, *[1] * 7]
    changes = [FileChange(path, "created", 1) for path in ("a", ".cache/x", "b/__pycache__/c.pyc", "b/c")]
    assert [each["path"] for each in list_changes(changes)] == ["a", "b/c"]


def test_errors_say_what_to_do_next() -> None:
    full = Overloaded("there is no room", retry_after_s=3)
    assert explain(full) == "there is no room. Try again in 3 seconds."
    assert "Call again" in explain(SandboxLost("it is gone."))


def test_how_it_ended_is_said_once_with_what_became_of_the_variables() -> None:
    late = ExecResult(id="e", exit_code=None, cause=Cause.TIMEOUT, state=State.KEPT, hint="It ran longer than 2 s.")
    assert why(late, 2) == "It ran longer than 2 s. Variables are kept."
    assert why(replace(late, hint=None), 2).startswith("It was stopped after 2 seconds:")
    assert why(replace(late, state=State.LOST, hint="The variables are lost."), 2) == "The variables are lost."
    assert why(replace(late, cause=Cause.ERROR, hint="That name is not defined."), 2) == "That name is not defined."
    assert why(replace(late, cause=Cause.EXITED, exit_code=3, hint=None), 2) == "It ended with exit code 3."


def test_a_command_whose_connections_were_refused_says_so_in_the_original_s_result_too() -> None:
    result = ExecResult(id="e", exit_code=56, cause=Cause.EXITED, state=State.NONE, hint="A connection was refused.")
    assert "hint" not in render_run("curl", result, 1)
    assert render_run("curl", result, 1, was_refused=True)["hint"] == "A connection was refused."


def test_schemas_stand_alone() -> None:
    for tool in TOOLS.values():
        for model in (tool.arguments, tool.answer):
            assert "$ref" not in json.dumps(build_schema(model))
