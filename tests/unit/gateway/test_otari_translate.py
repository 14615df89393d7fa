"""What otari's clients are told of how something ended."""

from __future__ import annotations

from typing import Any

import pytest

from warren.domain.errors import Conflict, InvalidRequest, NotFound, OutsideWorkspace
from warren.domain.values import Cause, ExecKind, ExecResult, FileChange, Keep, State
from warren.gateway.dialects.details import Refused
from warren.gateway.dialects.otari import translate
from warren.settings.groups_apis import OtariSettings

TRACEBACK = 'Traceback (most recent call last):\n  File "<cell 12>", line 1, in <module>\nValueError: no\n'


def ended(**fields: Any) -> ExecResult:
    output = {name: fields.get(name, b"") for name in ("stdout", "stderr")}
    sizes = {f"{name}_bytes": len(data) for name, data in output.items()}
    plain = {"id": "exe_1", "exit_code": 0, "cause": Cause.EXITED, "state": State.KEPT}
    return ExecResult(**{**plain, **sizes, **fields})


@pytest.mark.parametrize(
    ("written", "told"), [(b"a\n", "a"), (b"a\n\n", "a\n"), (b"a", "a"), (b"\n", ""), (b"", ""), (b"\xff\n", "\ufffd")]
)
def test_one_line_feed_is_left_out_of_what_python_wrote(written: bytes, told: str) -> None:
    ran = translate.read_python(ended(stdout=written, stderr=written), 30)
    assert (ran.stdout, ran.stderr, ran.return_code) == (told, told, 0)


def test_a_command_is_told_as_it_was() -> None:
    ran = translate.read_shell(ended(stdout=b"a\n", exit_code=-9, cause=Cause.KILLED), 30)
    assert (ran.stdout, ran.return_code) == ("a\n", -9)


def test_a_traceback_names_the_code_as_clients_know_it_and_nothing_else_is_changed() -> None:
    said = b'he said File "<cell 3>"\n' + TRACEBACK.encode()
    ran = translate.read_python(
        ended(stderr=said, exit_code=1, cause=Cause.ERROR, error={"name": "", "value": "", "traceback": TRACEBACK}), 30
    )
    assert ran.stderr == 'he said File "<cell 3>"\n' + TRACEBACK.replace("<cell 12>", "<sandbox>").rstrip("\n")
    assert ran.return_code == 1


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (Cause.KILLED, "process exited unexpectedly"),
        (Cause.LOST, "process exited unexpectedly"),
        (Cause.OOM, "killed by sandbox limit (memory)"),
        (Cause.CPU, "killed by sandbox limit (cpu)"),
        (Cause.DISK, "killed by sandbox limit (file_size)"),
        (Cause.OUTPUT, "killed by sandbox limit (output)"),
    ],
)
def test_a_death_is_told_with_what_was_written_before(cause: Cause, sentence: str) -> None:
    ran = translate.read_python(
        ended(stdout=b"so far\n", stderr=b"half", exit_code=None, cause=cause, state=State.ROLLED_BACK), 30
    )
    assert (ran.stdout, ran.stderr, ran.return_code) == ("so far\n", f"half\nrunner: {sentence}\n", -1)
    assert ran.state == "rolled_back"


def test_an_exit_by_the_operating_system_is_a_death_whatever_its_number() -> None:
    ran = translate.read_python(ended(exit_code=3, cause=Cause.KILLED, state=State.ROLLED_BACK), 30)
    assert (ran.stderr, ran.return_code) == ("runner: process exited unexpectedly\n", -1)


def test_an_exception_for_want_of_memory_is_an_exception() -> None:
    error = {"name": "MemoryError", "value": "", "traceback": TRACEBACK}
    ran = translate.read_python(ended(stderr=TRACEBACK.encode(), exit_code=1, cause=Cause.OOM, error=error), 30)
    assert ran.return_code == 1
    assert ran.stderr.endswith("ValueError: no")


def test_what_is_left_out_is_counted() -> None:
    ran = translate.read_python(ended(stdout=b"ab", stdout_bytes=12, truncated=True), 30)
    assert ran.stdout == "ab\n... [output truncated by sandbox: 10 bytes elided]"
    assert ran.truncated


def test_hidden_and_deleted_files_are_not_offered_but_told_of() -> None:
    files = tuple(
        FileChange(path, action, 1)
        for path, action in (
            ("a", "created"),
            (".b", "created"),
            ("c/.d/e", "created"),
            ("f", "deleted"),
            ("__pycache__/g.pyc", "created"),
            ("h/i", "modified"),
        )
    )
    ran = translate.read_python(ended(files_changed=files), 30)
    answer = translate.render_exec(ran, translate.render_result(ran), "code_execution", "t", 1)

    assert [each["file_id"] for each in answer["result_block"]["content"]["content"]] == ["a", "h/i"]
    assert len(answer["files"]) == len(files)


def test_a_command_that_no_argument_could_hold_comes_by_standard_input() -> None:
    short, long = (translate.parse_command("x" * size, 5, 100) for size in (100, 150_000))
    assert (short.kind, short.code, short.output_keep) == (ExecKind.SHELL, "x" * 100, Keep.HEAD)
    assert (long.kind, long.stdin, long.output_keep) == (ExecKind.ARGV, b"x" * 150_000, Keep.HEAD)
    with pytest.raises(Refused):
        translate.parse_command("a\0b", 5, 100)


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (NotFound("x"), 404, "file not found: p"),
        (OutsideWorkspace("'p' is outside of the workspace /workspace"), 403, "path escapes workspace: p"),
        (InvalidRequest("'leads out' has a name that is too long"), 400, "'leads out' has a name that is too long"),
        (Conflict("'p' is a folder"), 400, "is a directory: p"),
        (InvalidRequest("'p' is not a regular file or a folder"), 400, "'p' is not a regular file or a folder"),
    ],
)
def test_what_is_wrong_with_a_path_is_told_in_otaris_words(error: Any, status: int, detail: str) -> None:
    refused = translate.explain_path(error, "p", missing="file")
    assert (refused.status, refused.detail) == (status, detail)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.csv", "text/csv; charset=utf-8"),
        ("a.png", "image/png"),
        ("a.unknown", "application/octet-stream"),
        ("a", "application/octet-stream"),
    ],
)
def test_the_type_of_a_file_is_guessed_from_its_name(path: str, kind: str) -> None:
    assert translate.guess_content_type(path) == kind


@pytest.mark.parametrize("path", ["data:text/html\r\nX-Evil: 1\r\nX,x", "data:text/html,x", "data:image/png;x,y"])
def test_the_name_of_a_file_does_not_say_its_type_itself(path: str) -> None:
    assert translate.guess_content_type(path) == "application/octet-stream"
    assert translate.guess_type(f"{path}.csv") == "text/csv"


@pytest.mark.parametrize("exit_code", [None, 1])
def test_what_only_the_hint_says_of_a_limit_is_in_stderr_too(exit_code: int | None) -> None:
    hint = "It needed more memory than the limit of 64 MiB. Python variables are as they were."
    result = ended(stderr=b"half", exit_code=exit_code, cause=Cause.OOM, state=State.ROLLED_BACK, hint=hint)

    assert f"half\nsandbox: {hint}\n" in translate.read_python(result, 30).stderr + "\n"
    assert f"half\nsandbox: {hint}\n" in translate.read_shell(result, 30).stderr


def test_after_a_timeout_stderr_says_that_the_variables_are_kept_and_ends_as_clients_know_it() -> None:
    ran = translate.read_python(ended(exit_code=None, cause=Cause.TIMEOUT, hint="It ran too long."), 3)

    sentence = "runner: execution timed out after 3s\n"
    assert ran.stderr == f"sandbox: the variables are kept\n{sentence}"


def test_a_hint_about_an_ordinary_exception_is_not_put_into_stderr() -> None:
    ran = translate.read_python(ended(stderr=b"ValueError\n", exit_code=1, cause=Cause.ERROR, hint="Fix it."), 3)

    assert ran.stderr == "ValueError"


def test_a_warning_names_the_code_as_a_traceback_does() -> None:
    written = b"<cell 5>:2: DeprecationWarning: old\n  old()\nnot <cell 5>:2: DeprecationWarning: this\n"
    ran = translate.read_python(ended(stderr=written), 30)

    assert ran.stderr.splitlines() == [
        "<sandbox>:2: DeprecationWarning: old",
        "  old()",
        "not <cell 5>:2: DeprecationWarning: this",
    ]


def test_files_of_environments_repositories_and_caches_are_not_named_and_the_rest_is_counted() -> None:
    private = (
        "mine/pyvenv.cfg",
        "mine/lib/x.py",
        ".git/config",
        "a/__pycache__/x.pyc",
        "node_modules/x/i.js",
        "venv/x",
    )
    made = [f"out/{number:03}.txt" for number in range(103)]
    ran = translate.Ran(files=tuple(FileChange(path, "created", 1) for path in (*private, *made)))
    content = translate.render_result(ran)

    assert [each["filename"] for each in content["content"]] == made[:100]
    assert content["content_left_out"] == 3
    assert "content_left_out" not in translate.render_result(translate.Ran(files=ran.files[: len(private) + 100]))


@pytest.mark.parametrize(
    ("hint", "image"),
    [
        (None, "data"),
        ("office", "office"),
        ("office:latest", "office"),
        ("them/science:3.12", "python"),
        ("secret", "data"),
        ({"name": "office"}, "data"),
    ],
)
def test_an_image_that_a_client_names_is_taken_if_the_operator_allows_it(hint: object, image: str) -> None:
    settings = OtariSettings(image="data", images=("office", "them/science=python"))

    assert translate.choose_image(hint, settings) == image
