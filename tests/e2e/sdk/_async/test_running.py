from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import warren

if TYPE_CHECKING:
    from pathlib import Path

    from warren import AsyncClient, AsyncSandbox

pytestmark = pytest.mark.anyio

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_a_kernel_keeps_its_variables(sandbox: AsyncSandbox) -> None:
    await sandbox.run("x = 6")

    result = await sandbox.run("print('seven'); x * 7")

    assert (result.ok, result.stdout, result.value, result.text) == (True, "seven\n", "42", "seven\n42")
    assert (result.cause, result.exit_code, result.kernel) == ("exited", 0, "main")


async def test_what_a_program_does_wrong_is_a_value_until_it_is_checked(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("1 / 0")

    assert (result.ok, result.cause) == (False, "error")
    assert result.error is not None
    assert result.error.name == "ZeroDivisionError"
    with pytest.raises(warren.ExecutionFailed, match="ZeroDivisionError: division by zero") as caught:
        result.check()
    assert caught.value.result is result
    assert (await sandbox.run("1")).check().value == "1"


async def test_commands_run_in_a_shell_or_without_one(sandbox: AsyncSandbox) -> None:
    line = await sandbox.exec("echo $((1 + 1)); exit 3")
    words = await sandbox.exec(["printf", "%s", "$HOME *"])

    assert (line.stdout, line.exit_code, line.ok) == ("2\n", 3, False)
    assert (words.stdout, words.ok) == ("$HOME *", True)


async def test_options_are_passed_on(sandbox: AsyncSandbox) -> None:
    script = "import os, sys; print(os.environ['NAME'], os.getcwd(), sys.stdin.read()); sys.exit(7)"
    await sandbox.files.mkdir("inner")

    result = await sandbox.run(script, fresh=True, env={"NAME": "ann"}, cwd="inner", stdin="typed")

    assert result.exit_code == 7
    name, folder, typed = result.stdout.split()
    assert (name, folder.rpartition("/")[2], typed) == ("ann", "inner", "typed")


async def test_bytes_come_back_exactly_where_that_is_asked_for(sandbox: AsyncSandbox) -> None:
    data = bytes(range(256))

    exact = await sandbox.exec(["cat"], stdin=data, exact=True)
    plain = await sandbox.exec(["cat"], stdin=data)

    assert (exact.raw_stdout, exact.stdout) == (data, data.decode("utf-8", "replace"))
    assert plain.stdout == exact.stdout


async def test_a_run_out_of_time_says_so(sandbox: AsyncSandbox) -> None:
    result = await sandbox.exec("sleep 60", timeout_seconds=0.2, grace_seconds=0)

    assert (result.ok, result.cause, result.timed_out) == (False, "timeout", True)
    assert result.hint


async def test_a_word_that_is_no_option_is_named_with_the_nearest(sandbox: AsyncSandbox) -> None:
    with pytest.raises(TypeError, match="did you mean timeout_seconds"):
        await sandbox.run("1", timeout_second=3)  # type: ignore[call-arg]  # that is the point


async def test_the_same_key_runs_once(sandbox: AsyncSandbox) -> None:
    code = "import uuid; uuid.uuid4().hex"

    first = await sandbox.run(code, idempotency_key=f"key-of-{sandbox.id}")
    again = await sandbox.run(code, idempotency_key=f"key-of-{sandbox.id}")
    other = await sandbox.run(code)

    assert first.execution_id == again.execution_id
    assert first.value == again.value != other.value


async def test_images_are_shown(sandbox: AsyncSandbox) -> None:
    code = f"import base64\nclass Dot:\n  def _repr_png_(self): return base64.b64decode('{PNG}')\nDot()"

    result = await sandbox.run(code)

    (picture,) = result.images
    assert (picture.mime, picture.data[:4]) == ("image/png", b"\x89PNG")
    assert "data:image/png;base64," in result._repr_html_()


async def test_one_run_takes_files_in_and_brings_files_back(client: AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("more")
    code = "open('out.txt', 'w').write(open('in.txt').read().upper() + open('d/more.txt').read())"

    result = await client.run(code, files={"in.txt": "hello ", "d/more.txt": tmp_path / "more.txt"})
    result.check().file("out.txt").save(str(tmp_path / "out.txt"))

    assert (tmp_path / "out.txt").read_text() == "HELLO more"
    assert [(file.path, file.text, file.action) for file in result.files] == [("out.txt", "HELLO more", "created")]
    assert (await client.run(command="exit 4")).exit_code == 4
    assert (await client.run(command=["echo", "*"])).stdout == "*\n"


async def test_what_ran_can_be_looked_up(fresh: AsyncSandbox) -> None:
    made = await fresh.run("print('first')")
    await fresh.exec("echo second")

    page = await fresh.executions(limit=1)
    found = await fresh.execution(made.execution_id).get()

    assert (page.total, [each.stdout for each in page]) == (2, ["second\n"])
    assert (found.code, found.stdout, found.status) == ("print('first')", "first\n", "finished")
