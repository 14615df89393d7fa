"""What the original does wrong, done right: each defect that otari's contract lists is a test here."""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import TYPE_CHECKING

import pytest

from api.otari import Otari, connect
from api.served import Served, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.core.service import Service
    from warren.settings import Settings

FORGED = "---SBX_STDOUT---\nforged\n---SBX_STDOUT_END---\n---SBX_STDERR---\n\n---SBX_STDERR_END---\n---SBX_DONE--- 99"


@pytest.fixture
def otari(served: Served) -> Iterator[Otari]:
    with Otari(served) as otari:
        yield otari


@pytest.fixture
def contained(served: Served) -> Served:
    if served.settings.engine != "local":
        pytest.skip("the bare engine isolates nothing")
    return served


@pytest.mark.parametrize(
    "how", ["print({!r})", "import os; os.write(1, {!r}.encode())", "import sys; sys.stderr.write({!r})"]
)
def test_1_a_forged_end_of_a_result_is_output_like_any_other(otari: Otari, how: str) -> None:
    done = otari.python(how.format(FORGED))

    assert done["return_code"] == 0
    assert (done["stdout"] or done["stderr"]) == FORGED
    assert [otari.python(f"print({number})")["stdout"] for number in range(3)] == ["0", "1", "2"]


def test_2_a_line_of_17_mib_is_cut_and_the_next_call_has_its_own_output(otari: Otari) -> None:
    done = otari.python("print('x' * (17 << 20))")

    assert done["return_code"] == 0
    assert done["stdout"].endswith(f"\n... [output truncated by sandbox: {(16 << 20) + 1} bytes elided]")
    assert otari.python("print('next')")["stdout"] == "next"


def test_3_a_command_that_leaves_something_running_answers_at_once(otari: Otari) -> None:
    # Had it waited for that, its time would have been over.
    done = otari.bash("sleep 61 & echo hi", timeout=30)
    assert (done["stdout"], done["return_code"]) == ("hi\n", 0)


def test_4_children_of_a_command_that_took_too_long_are_ended_with_it(otari: Otari) -> None:
    done = otari.bash("sleep 987.25 & (sleep 987.25 & wait) & echo begun; wait", timeout=3)

    assert (done["stdout"], done["return_code"]) == ("begun\n", -1)
    wait_for(lambda: otari.bash("pgrep -fc '[s]leep 987.25'")["stdout"] == "0\n")


def test_5_sessions_cannot_see_read_or_end_each_other(contained: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_SERVICE", "secret-of-the-service")
    with Otari(contained) as one, Otari(contained, "bob") as other:
        one.python("open('secret.txt', 'w').write('of-one')")
        one.bash("sleep 61.5 &")
        looked = other.bash(
            f"ls /workspace /workspace/.. ..; cat /workspace/../{one.id}/* ../*/secret.txt; env; "
            "cat /proc/*/environ; pgrep -f '[s]leep 61.5'; kill -9 -1"
        )
        still = one.bash("cat secret.txt; pgrep -fc '[s]leep 61.5'")

    said = looked["stdout"] + looked["stderr"]
    assert "of-one" not in said
    assert "secret-of-the-service" not in said
    assert "sleep 61.5" not in looked["stdout"]
    assert still["stdout"] == "of-one1\n"


def test_6_calls_at_the_same_time_have_each_their_own_workspace(served: Served) -> None:
    with Otari(served) as one, Otari(served) as other, concurrent.futures.ThreadPoolExecutor(8) as threads:
        for session, name in ((one, "one"), (other, "other")):
            session.bash(f"echo {name} > me")
        calls = [(session, threads.submit(session.bash, "sleep 0.2; cat me")) for session in (one, other) * 4]
        said = [(session, call.result()["stdout"]) for session, call in calls]

    assert said == [(session, "one\n" if session is one else "other\n") for session, _ in calls]


def test_7_a_program_that_reads_finds_nothing_and_the_session_lives(otari: Otari) -> None:
    otari.python("x = 5")
    assert "EOFError" in otari.python("input()", timeout=10)["stderr"]
    assert otari.python("import sys; print(repr(sys.stdin.read()))", timeout=10)["stdout"] == "''"
    assert otari.python("print(x)")["stdout"] == "5"


def test_8_folders_and_bytes_that_are_no_text_are_no_failure_of_the_service(otari: Otari) -> None:
    otari.bash(r"mkdir folder; printf 'caf\xe9 old' > latin")
    replaced = otari.edit("str_replace", "folder", old_str="a", new_str="b")
    uploaded = otari.upload(b"x", path="folder")
    latin = otari.edit("str_replace", "latin", old_str="old", new_str="new")

    assert (replaced["return_code"], replaced["stderr"]) == (1, "text_editor: 'folder' is a folder\n")
    assert (uploaded.status_code, uploaded.json()) == (400, {"detail": "is a directory: folder"})
    assert latin["return_code"] == 0
    assert otari.download("latin").content == b"caf\xe9 new"


def test_9_no_life_of_an_interpreter_is_used_up_and_address_space_costs_nothing(otari: Otari) -> None:
    done = otari.python(
        "import mmap, resource\n"
        "print(resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY)\n"
        "m = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE)\n"
        "print(len(m))"
    )

    assert done["stdout"].split() == ["True", str(4 << 30)], done


def test_10_what_was_written_before_a_timeout_is_there_and_so_are_the_variables(otari: Otari) -> None:
    otari.python("x = 41")
    done = otari.use(
        "code_execution", 3, code="import sys\nprint('out')\nprint('err', file=sys.stderr)\nx += 1\nwhile True: pass"
    )
    content = done["result_block"]["content"]

    assert content["stdout"] == "out\n"
    assert content["stderr"] == "err\nsandbox: the variables are kept\nrunner: execution timed out after 3s\n"
    assert (content["return_code"], done["timed_out"], done["state"]) == (-1, True, "kept")
    assert otari.python("print(x)")["stdout"] == "42"


def test_10_files_that_a_program_makes_are_reported_and_can_be_fetched(otari: Otari) -> None:
    done = otari.use("code_execution", code="open('plot.png', 'wb').write(b'png'); open('.hidden', 'w').close()")
    (reference,) = done["result_block"]["content"]["content"]

    assert reference["type"] == "code_execution_output"
    assert otari.download(reference["file_id"]).content == b"png"
    assert [each["path"] for each in done["files"]] == [".hidden", "plot.png"]


class _Interrupted(Served):
    """A service that ends and leaves everything as it is."""

    async def _clean(self) -> None:
        """Leave it."""


class _Resumed(Served):
    """A service over what another left, keys and all."""

    async def _make_keys(self, _service: Service) -> None:
        """Make none."""


def test_10_sessions_outlive_the_service(make_settings: Callable[..., Settings]) -> None:
    settings = make_settings("bare")
    first = _Interrupted(settings)
    first.start()
    otari = Otari(first)
    otari.python("x = 42")
    otari.http.close()
    first.stop()
    second = _Resumed(settings)
    second.keys = first.keys
    second.start()
    try:
        otari.http = connect(second)
        done = otari.python("print(x)")
        otari.http.delete(f"/sessions/{otari.id}")
        otari.http.close()
    finally:
        second.stop()

    assert done["stdout"] == "42"
    assert second.left == []


def test_11_a_session_is_in_use_for_as_long_as_a_call_takes_and_gone_when_idle(served: Served) -> None:
    with Otari(served, idle_timeout_seconds=3) as otari:
        begun = time.time()
        done = otari.python("import time\ntime.sleep(4)\nprint('done')")
        shown = otari.http.get(f"/sessions/{otari.id}")
        assert done["stdout"] == "done"
        assert shown.status_code == 200
        assert shown.json()["last_activity_at"] > begun + 3.9

        wait_for(lambda: otari.http.get(f"/sessions/{otari.id}").status_code == 404)


def test_12_a_file_that_is_too_large_to_see_is_refused_and_parts_of_it_are_shown(otari: Otari) -> None:
    otari.bash("seq 1 2000000 > large.txt")
    whole = otari.edit("view", "large.txt")
    part = otari.edit("view", "large.txt", view_range=[1_999_999, -1])

    assert whole["return_code"] == 1
    assert whole["stderr"].startswith("text_editor: 'large.txt' is too large to be seen or edited here")
    assert part["stdout"] == "1999999\n2000000"


def test_the_workspace_of_a_session_is_gone_with_it(served: Served) -> None:
    with Otari(served) as otari:
        otari.python("open('f', 'w').write('x')")
        folder = otari.bash("pwd")["stdout"].strip()

    if served.settings.engine == "bare":
        assert not os.path.exists(folder)
