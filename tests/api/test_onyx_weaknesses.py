"""Where the original was weak: what Warren does instead, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.onyx import Onyx, output, sandboxes_of
from api.served import Served, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.settings import Settings


@pytest.fixture
def onyx(served: Served) -> Iterator[Onyx]:
    with Onyx(served) as client:
        yield client


@pytest.mark.parametrize(
    "file_id", ["/etc/hostname", "../../warren.db", "../../../../etc/hostname", "%2e%2e", "", ".", "\0", "x" * 10_000]
)
def test_the_id_of_a_file_is_never_a_path(onyx: Onyx, file_id: str) -> None:
    files = [{"path": "x", "file_id": file_id}]
    for path, body in (("/v1/execute", {"code": "1"}), ("/v1/execute/stream", {"code": "1"}), ("/v1/sessions", {})):
        refused = onyx.http.post(path, json={**body, "files": files})
        assert refused.status_code == 404
        assert "not found for path 'x'" in refused.json()["detail"]


@pytest.mark.parametrize("path", ["%2Fetc%2Fhostname", "..%2F..%2Fwarren.db", "%2e%2e%2fwarren.db", "%00"])
def test_no_file_is_fetched_or_deleted_by_a_path(onyx: Onyx, path: str) -> None:
    assert onyx.http.get(f"/v1/files/{path}").status_code == 404
    assert onyx.http.delete(f"/v1/files/{path}").status_code == 404


@pytest.mark.parametrize("name", ["tree", "ast", "exec", "compile", "isinstance", "print", "sys", "__builtins__"])
def test_a_program_may_call_its_variables_what_it_likes(onyx: Onyx, name: str) -> None:
    shown = onyx.execute(f"{name} = {{'a': 1}}\nx = 2\n{name}")

    assert (shown["stdout"], shown["exit_code"]) == ("{'a': 1}\n", 0)


def test_nothing_of_ours_is_among_a_programs_names(onyx: Onyx) -> None:
    shown = onyx.execute("sorted(name for name in globals() if not name.startswith('__'))")

    assert shown["stdout"] == "[]\n"


def test_an_import_from_the_future_holds_for_the_whole_program(onyx: Onyx) -> None:
    code = "from __future__ import annotations\ndef f(x: Missing) -> None: ...\nf.__annotations__['x']"

    assert onyx.execute(code)["stdout"] == "'Missing'\n"


def test_files_keep_their_names_whatever_they_begin_with(onyx: Onyx) -> None:
    names = [".hid", "..dot", ".config/x", "__main__.py.txt", "pkg/__main__.py", "a b", "ä.txt"]
    code = (
        "import os\n"
        f"for name in {names}:\n"
        "    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)\n"
        "    open(name, 'w').write(name)\n"
    )
    files = {file["path"]: file["file_id"] for file in onyx.execute(code)["files"]}

    assert sorted(files) == sorted(names)
    assert {path: onyx.fetch(file_id).decode() for path, file_id in files.items()} == {name: name for name in names}


def test_a_file_that_is_not_changed_is_not_new_however_its_path_was_written(onyx: Onyx) -> None:
    file = onyx.upload(b"abc")
    for path in ("a.txt", "./a.txt", "b//a.txt", ".hid", "./.hid"):
        assert onyx.execute("None", files=[{"path": path, "file_id": file}])["files"] == []


def test_importing_a_file_leaves_no_bytecode(onyx: Onyx) -> None:
    file = onyx.upload(b"x = 5", "helper.py")
    shown = onyx.execute("import helper\nhelper.x", files=[{"path": "helper.py", "file_id": file}])

    assert (shown["stdout"], shown["files"]) == ("5\n", [])


def test_what_a_command_writes_cannot_make_its_session_look_gone(onyx: Onyx) -> None:
    with onyx.session() as session:
        spoofed = session.bash("echo 'Error: No such container: x' >&2; echo 'not found'; exit 1")
        assert (spoofed["stderr"], spoofed["exit_code"]) == ("Error: No such container: x\n", 1)
        assert session.bash("echo here")["stdout"] == "here\n"


def test_a_large_workspace_is_neither_held_nor_silently_left_out(onyx: Onyx) -> None:
    done = onyx.execute("for n in range(1100): open(f'{n:04}', 'w').close()")

    assert len(done["files"]) == 1000
    assert done["exit_code"] == 0
    assert done["stderr"].startswith("[warren] the workspace has more files than are looked at")


def test_a_file_of_many_megabytes_goes_in_and_out(onyx: Onyx) -> None:
    content = bytes(range(256)) * 80_000
    file = onyx.upload(content, "large.bin")
    code = "data = open('in.bin', 'rb').read()\nopen('out.bin', 'wb').write(data[::-1])\nNone"
    (left,) = onyx.execute(code, files=[{"path": "in.bin", "file_id": file}])["files"]

    assert onyx.fetch(left["file_id"]) == content[::-1]


def test_files_that_there_is_no_room_for_are_named(make_settings: Callable[..., Settings]) -> None:
    served = Served(make_settings(quota={"file_bytes": 100_000}))
    served.start()
    try:
        with Onyx(served) as onyx:
            done = onyx.execute("open('big', 'wb').write(bytes(90_000))\nopen('small', 'w').write('1')\nprint('ran')")
            events = onyx.stream("open('big', 'wb').write(bytes(90_000))\nNone")
            refused = onyx.http.post("/v1/files", files={"file": ("a", bytes(70_000))})
    finally:
        served.stop()

    assert ([file["path"] for file in done["files"]], done["stdout"]) == (["small"], "ran\n")
    assert done["stderr"] == "[warren] 1 of the files could not be stored, for want of room: big\n"
    assert output(events, "stderr") == done["stderr"]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1


def test_what_a_program_leaves_running_does_not_delay_the_answer(onyx: Onyx) -> None:
    done = onyx.execute("import subprocess\nsubprocess.Popen(['sleep', '100'])\nprint('done')")
    with onyx.session() as session:
        bash = session.bash("sleep 100 & echo done", timeout_ms=30_000)
        late = session.bash("echo begun; (sleep 100 &) ; sleep 100 | cat", timeout_ms=2000)
        events = onyx.stream("import subprocess\nsubprocess.Popen(['sleep', '100'])\nprint('done')")

    assert (done["stdout"], bash["stdout"], output(events)) == ("done\n", "done\n", "done\n")
    assert (late["stdout"], late["exit_code"], late["timed_out"]) == ("begun\n", None, True)
    # Had they waited for what was left, their time would have been over.
    assert not any(each["timed_out"] for each in (done, bash, events[-1].data))


def test_a_program_that_ignores_signals_ends_in_time_and_keeps_what_it_wrote(onyx: Onyx) -> None:
    code = (
        "import signal, sys, time\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        "open('f.txt', 'w').write('so far')\n"
        "sys.stdout.write('no newline')\n"
        "sys.stderr.write('err')\n"
        "time.sleep(100)"
    )
    done = onyx.execute(code, timeout_ms=4000)

    assert (done["exit_code"], done["timed_out"]) == (None, True)
    assert (done["stdout"], done["stderr"]) == ("no newline", "err")
    assert [onyx.fetch(file["file_id"]) for file in done["files"]] == [b"so far"]


def test_nothing_of_a_program_outlives_its_answer(served: Served, onyx: Onyx) -> None:
    others = sandboxes_of(served)
    onyx.execute("import time\ntime.sleep(100)", timeout_ms=300)
    wait_for(lambda: sandboxes_of(served) <= others)


def test_files_and_sessions_are_their_principals_alone(served: Served, onyx: Onyx) -> None:
    with Onyx(served, "bob") as bob, Onyx(served, "adam") as adam, onyx.session() as session:
        file = onyx.upload(b"secret")
        left = onyx.execute("open('f', 'w').write('secret')")["files"][0]["file_id"]
        for other in (bob, adam):
            assert not {file, left} & {each["file_id"] for each in other.files()}
            for each in (file, left):
                assert other.http.get(f"/v1/files/{each}").status_code == 404
                assert other.http.delete(f"/v1/files/{each}").status_code == 404
                named = {"code": "1", "files": [{"path": "a", "file_id": each}]}
                assert other.http.post("/v1/execute", json=named).status_code == 404
            assert other.http.post(f"{session.path}/bash", json={"cmd": "true"}).status_code == 404
            assert other.http.post(f"{session.path}/python", json={"code": "1"}).status_code == 404
            assert other.http.get(f"{session.path}/files/f").status_code == 404
            assert other.http.delete(session.path).status_code == 404
        assert onyx.fetch(file) == b"secret"


def test_five_seconds_of_processor_are_not_too_many(onyx: Onyx) -> None:
    code = "import os, time\nsince = time.process_time()\nwhile time.process_time() - since < 5.5: pass\nprint('done')"
    assert onyx.execute(code, timeout_ms=60_000)["stdout"] == "done\n"


def test_programs_do_not_see_each_other(onyx: Onyx) -> None:
    onyx.execute("import builtins, os\nbuiltins.mark = 1\nopen('left', 'w').close()\nos.environ['MARK'] = '1'")
    seen = onyx.execute("import builtins, os\nhasattr(builtins, 'mark'), os.listdir(), 'MARK' in os.environ")

    assert seen["stdout"] == "(False, ['__main__.py'], False)\n"


def test_a_session_leaves_alone_a_program_of_its_clients_name(onyx: Onyx) -> None:
    file = onyx.upload(b"print('mine')", "__main__.py")
    with onyx.session(files=[{"path": "__main__.py", "file_id": file}]) as session:
        assert session.python("print('given')")["stdout"] == "given\n"
        late = session.python("while True: pass", timeout_ms=500)
        assert (late["timed_out"], late["files"]) == (True, [])
        assert session.bash("cat __main__.py; ls -A")["stdout"] == "print('mine')__main__.py\n"
    with onyx.session() as session:
        assert session.python("while True: pass", timeout_ms=500)["files"] == []
        assert session.bash("ls -A")["stdout"] == ""
