"""Commands run by a real agent: output, exit, limits, leftovers."""

from __future__ import annotations

import os
import signal

import pytest

from unit.guest.agent_client import Client, RunningAgent, has_ended, ignored_signals, running_agent, until


def test_a_command_has_its_output_and_exit_code(client: Client) -> None:
    result = client.run("echo out; echo err >&2; exit 3", kind="shell")

    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")
    assert (result["exit_code"], result["cause"], result["state"]) == (3, "exited", "none")
    assert result["cpu_ms"] >= 0
    assert result["duration_ms"] > 0


def test_the_text_of_a_script_is_no_argument_of_its_shell(client: Client) -> None:
    """So `pkill -f` finds the program that is meant, and not the shell that looks for it."""
    script = "pkill -f needle-in-a-haystack; echo $?; tr '\\0' ' ' < /proc/$$/cmdline"
    result = client.run(script, kind="shell")

    code, _, shown = result["stdout"].partition("\n")
    assert (result["exit_code"], code) == (0, "1")
    assert "needle" not in shown


def test_a_script_has_the_names_and_lines_of_a_command_of_bash(client: Client) -> None:
    script = (
        "echo $0 $# $LINENO [${BASH_SOURCE[0]}]\n\nno-such-program\n"
        "[[ $BASH_EXECUTION_STRING == *magic* ]] && echo text && cat  # magic"
    )
    shell, command = client.run(script, kind="shell"), client.run("", kind="argv", argv=["bash", "-c", script])

    assert "line 3: no-such-program: command not found" in shell["stderr"]
    assert shell["stdout"].endswith(" 0 1 []\ntext\n")
    assert (shell["stdout"], shell["stderr"]) == (command["stdout"], command["stderr"])


@pytest.mark.parametrize(
    ("script", "code"),
    [("", 0), ("false", 1), ("exit 7", 7), ("set -e; false; exit 9", 1), ("if", 2), ("sh -c 'kill -9 $$'; true", 0)],
)
def test_a_script_ends_with_the_code_of_a_command_of_bash(client: Client, script: str, code: int) -> None:
    assert client.run(script, kind="shell")["exit_code"] == code


def test_a_program_gets_its_arguments_as_they_are(client: Client) -> None:
    result = client.run("", kind="argv", argv=["printf", "%s|", "a b", "$HOME", "*"])

    assert result["stdout"] == "a b|$HOME|*|"


def test_a_program_that_is_not_there_ends_as_in_a_shell(client: Client) -> None:
    result = client.run("", kind="argv", argv=["no-such-program"])

    assert result["exit_code"] == 127
    assert "not found" in result["stderr"]
    assert "not found" in result["hint"]


def test_a_file_that_is_no_program_ends_as_in_a_shell(agent: RunningAgent, client: Client) -> None:
    with open(os.path.join(agent.workspace, "data.txt"), "w") as file:
        file.write("no program")
    result = client.run("", kind="argv", argv=["./data.txt"])

    assert result["exit_code"] == 126


def test_a_command_runs_in_the_workspace_or_below_it(agent: RunningAgent, client: Client) -> None:
    os.makedirs(os.path.join(agent.workspace, "deep/er"))

    assert client.run("pwd", kind="shell")["stdout"].strip() == agent.workspace
    assert client.run("pwd", kind="shell", cwd="deep/er")["stdout"].strip() == agent.workspace + "/deep/er"
    assert client.run("pwd", kind="shell", cwd=agent.workspace + "/deep")["stdout"].strip() == agent.workspace + "/deep"


@pytest.mark.parametrize("cwd", ["missing", "../..", "/etc", "a\0b", "\ud800"])
def test_a_folder_that_is_not_there_is_refused(client: Client, cwd: str) -> None:
    end = client.call("run", b"true", kind="shell", exec="exe_cwd", cwd=cwd)

    assert end["code"] == "invalid_request"
    assert "cwd" in end["message"]


def test_a_command_sees_its_environment_and_nothing_of_the_agents(client: Client) -> None:
    client.call("configure", env={"CLAIMED": "yes"})
    result = client.run("env", kind="shell", env={"MINE": "1"})

    names = {line.partition("=")[0] for line in result["stdout"].splitlines()}
    assert names >= {"PATH", "HOME", "CLAIMED", "MINE", "WARREN_EXECUTION"}
    ours = {"PATH", "HOME", "LANG", "TMPDIR", "CLAIMED", "MINE", "WARREN_EXECUTION"}
    assert names <= ours | {"PWD", "SHLVL", "_", "OLDPWD"}


def test_a_command_inherits_no_descriptor_and_no_ignored_signal(client: Client) -> None:
    result = client.run("ls -1 /proc/self/fd; grep -E 'Sig(Ign|Blk)' /proc/self/status", kind="shell")

    fds = [line for line in result["stdout"].splitlines() if line.isdigit()]
    assert fds == ["0", "1", "2", "3"]  # 3 is the listing itself
    assert ignored_signals(result["stdout"]) == 0
    assert "SigBlk:\t0000000000000000" in result["stdout"]


def test_standard_input_is_empty_unless_it_is_given(client: Client) -> None:
    assert client.run("cat; echo end", kind="shell")["stdout"] == "end\n"


def test_standard_input_is_streamed_with_credit_until_its_end(client: Client) -> None:
    stream = client.start_run("cat | sha256sum; echo done", kind="shell", stdin=True)
    for _ in range(8):
        client.send({"t": "data", "id": stream}, b"x" * (256 << 10))
    client.wait_for(stream, lambda reply: reply.credit >= 1 << 20)
    client.send({"t": "eof", "id": stream})

    assert client.wait(stream).result["stdout"].endswith("done\n")


def test_a_program_that_does_not_read_its_input_ends_all_the_same(client: Client) -> None:
    stream = client.start_run("echo no", kind="shell", stdin=True)
    client.send({"t": "data", "id": stream}, b"x" * (256 << 10))

    assert client.wait(stream).result["stdout"] == "no\n"


def test_a_background_process_does_not_hold_the_call_and_lives_on(client: Client) -> None:
    result = client.run("(while true; do echo noise; sleep 0.01; done) & echo $! >&2", kind="shell")
    pid = int(result["stderr"])

    assert client.run(f"kill -0 {pid} && kill -9 {pid}", kind="shell")["exit_code"] == 0


def test_leftovers_are_killed_when_asked(client: Client) -> None:
    result = client.run("sleep 1000 & echo $!", kind="shell", leftover="kill")

    until(lambda: has_ended(int(result["stdout"])))


def test_output_of_a_leftover_never_shows_up_in_a_later_result(client: Client) -> None:
    first = client.run("(while true; do echo ghost; done) & echo $! >&2", kind="shell")
    second = client.run("echo clean", kind="shell")
    client.run(f"kill -9 {first['stderr']}", kind="shell")

    assert second["stdout"] == "clean\n"


def test_a_timeout_ends_the_whole_group(client: Client) -> None:
    result = client.run("echo $$; sleep 1000 | cat", kind="shell", timeout_ms=1500, grace_ms=200)

    assert (result["cause"], result["limit"]) == ("timeout", 1500)
    assert result["peak"] >= 1500
    until(lambda: has_ended(int(result["stdout"])))


def test_a_program_that_ignores_the_interrupt_is_killed_after_the_grace(client: Client) -> None:
    result = client.run("trap '' INT; echo $$; sleep 1000 & wait", kind="shell", timeout_ms=1500, grace_ms=100)

    assert (result["cause"], result["exit_code"]) == ("timeout", -signal.SIGKILL)


def test_an_idle_timeout_counts_from_the_last_output(client: Client) -> None:
    result = client.run(
        "for i in 1 2 3 4; do echo $i; sleep 0.15; done; sleep 1000", kind="shell", idle_timeout_ms=1500, grace_ms=100
    )

    assert result["cause"] == "timeout"
    assert result["stdout"] == "1\n2\n3\n4\n"
    assert result["duration_ms"] > 1500


def test_an_interrupt_ends_it_as_interrupted(client: Client) -> None:
    stream = client.start_run("echo up; sleep 1000", kind="shell", exec="exe_interrupt")
    client.wait_for(stream, lambda reply: reply.output() == b"up\n")

    assert client.call("interrupt", exec="exe_interrupt")["t"] == "ok"
    assert client.wait(stream).result["cause"] == "interrupted"


def test_a_program_may_handle_the_interrupt(client: Client) -> None:
    code = "trap 'echo caught; exit 0' INT; echo up; while true; do sleep 0.05; done"
    stream = client.start_run(code, kind="shell", exec="exe_handled")
    client.wait_for(stream, lambda reply: reply.output() == b"up\n")
    client.call("interrupt", exec="exe_handled")

    result = client.wait(stream).result
    assert (result["cause"], result["exit_code"]) == ("exited", 0)
    assert "caught" in result["stdout"]


def test_a_kill_ends_it_as_killed(client: Client) -> None:
    stream = client.start_run("trap '' INT TERM; echo up; while true; do sleep 1; done", kind="shell", exec="exe_kill")
    client.wait_for(stream, lambda reply: reply.output() == b"up\n")
    client.call("kill", exec="exe_kill")

    result = client.wait(stream).result
    assert (result["cause"], result["exit_code"]) == ("killed", -signal.SIGKILL)


def test_an_unrequested_signal_is_named(client: Client) -> None:
    result = client.run("kill -SEGV $$", kind="shell")

    assert (result["cause"], result["exit_code"]) == ("killed", -signal.SIGSEGV)
    assert "SIGSEGV" in result["hint"]


def test_endless_output_is_ended_with_its_beginning_and_end_kept(client: Client) -> None:
    result = client.run("echo first; yes", kind="shell", output_max_bytes=1 << 20, output_bytes=1000, stream=False)

    assert result["cause"] == "output"
    assert result["limit"] == 1 << 20
    assert result["peak"] > 1 << 20
    assert result["stdout"].startswith("first\ny\n")
    assert "bytes left out" in result["stdout"]
    assert result["truncated"]


def test_all_output_is_streamed_in_order_and_the_result_keeps_the_ends(client: Client) -> None:
    reply = client.wait(client.start_run("seq 1 200000", kind="shell", output_bytes=100))
    expected = "".join(f"{number}\n" for number in range(1, 200_001))

    assert reply.output().decode() == expected
    assert reply.result["stdout_bytes"] == len(expected)
    assert [header["seq"] for header, _ in reply.events] == list(range(1, len(reply.events) + 1))


def test_without_streaming_only_the_result_comes(client: Client) -> None:
    reply = client.wait(client.start_run("echo quiet", kind="shell", stream=False))

    assert [header["kind"] for header, _ in reply.events] == ["result"]
    assert reply.result["stdout"] == "quiet\n"


def test_files_that_a_command_changes_are_listed(client: Client) -> None:
    result = client.run("echo 1 > new.txt", kind="shell")
    later = client.run("true", kind="shell")
    skipped = client.run("echo 2 > other.txt", kind="shell", changes=False)

    assert [(one["path"], one["action"]) for one in result["files_changed"]] == [("new.txt", "created")]
    assert later["files_changed"] == []
    assert skipped["files_changed"] == []


def test_a_script_runs_in_a_fresh_process_with_the_systems_word_on_its_exit(client: Client) -> None:
    result = client.run("import sys; print(sys.argv[1:], __name__); sys.exit(5)", kind="script", argv=["a", "b"])

    assert result["stdout"] == "['a', 'b'] __main__\n"
    assert (result["exit_code"], result["cause"], result["state"]) == (5, "exited", "none")


def test_a_script_that_ends_at_once_is_not_missed(client: Client) -> None:
    for _ in range(20):
        assert client.run("import os; os._exit(7)", kind="script", timeout_ms=20_000)["exit_code"] == 7


def test_a_script_reads_its_standard_input(client: Client) -> None:
    stream = client.start_run("print(input() + input())", kind="script", stdin=True)
    client.send({"t": "data", "id": stream}, b"one\ntwo\n")
    client.send({"t": "eof", "id": stream})

    assert client.wait(stream).result["stdout"] == "onetwo\n"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("x = 5; x", "5\n"),
        ("print('one')\n'two'", "one\n'two'\n"),
        ("1\nNone", ""),
        ("1\nx = 2", ""),
        ("", ""),
        ("# nothing", ""),
        ("tree = ast = exec = compile = isinstance = print = {'a': 1}\ntree", "{'a': 1}\n"),
        ("from __future__ import annotations\ndef f(x: Missing): pass\nf.__annotations__", "{'x': 'Missing'}\n"),
        ("'first'\n__doc__", "'first'\n"),
        ("import sys\nsys.displayhook = lambda value: print('mine', value)\n3", "mine 3\n"),
    ],
)
def test_a_script_can_show_its_last_value_as_the_interactive_interpreter_would(
    client: Client, code: str, shown: str
) -> None:
    result = client.run(code, kind="script", echo="stdout")

    assert (result["stdout"], result["stderr"], result["exit_code"]) == (shown, "", 0)
    assert client.run("3", kind="script")["stdout"] == ""


def test_the_last_value_of_a_script_may_fail_or_exit(client: Client) -> None:
    failed = client.run("x = 0\n1 / x", kind="script", echo="stdout", file="main.py")
    wrong = client.run("print(1)\nx = (", kind="script", echo="stdout")
    left = client.run("import sys\nsys.exit(3)", kind="script", echo="stdout")

    assert failed["exit_code"] == 1
    assert failed["stderr"].endswith("line 2, in <module>\n    1 / x\n    ~~^~~\nZeroDivisionError: division by zero\n")
    assert (wrong["exit_code"], wrong["stdout"]) == (1, "")
    assert "SyntaxError" in wrong["stderr"].splitlines()[-1]
    assert left["exit_code"] == 3


def test_a_script_has_the_name_that_is_asked_for_while_it_runs(client: Client) -> None:
    code = "import os; print(os.path.relpath(__file__), open(__file__).read() == CODE, __file__ in os.sys.argv)"
    code = code.replace("CODE", "open('copy').read()")
    client.run(f"open('copy', 'w').write({code!r})", kind="script")
    result = client.run(code, kind="script", file="__main__.py")

    assert result["stdout"] == "__main__.py True True\n"
    assert result["files_changed"] == []


def test_a_script_leaves_alone_what_has_its_name(client: Client) -> None:
    client.run("echo mine > __main__.py; ln -s nowhere link.py; mkdir folder.py", kind="shell")
    for name in ("__main__.py", "link.py", "folder.py", ".."):
        result = client.run("import os; print(os.path.exists(__file__))", kind="script", file=name)
        assert result["stdout"] == "True\n"
        assert result["files_changed"] == []
    assert client.run("cat __main__.py", kind="shell")["stdout"] == "mine\n"


def test_without_a_grace_nothing_is_interrupted_before_it_is_killed(client: Client) -> None:
    code = "import time\nprint('begun')\ntry:\n    time.sleep(1000)\nexcept BaseException:\n    print('asked')"
    result = client.run(code, kind="script", timeout_ms=2000, grace_ms=0, file="killed.py")

    assert (result["cause"], result["exit_code"]) == ("timeout", -9)
    assert (result["stdout"], result["stderr"]) == ("begun\n", "")
    assert client.run("ls killed.py", kind="shell")["exit_code"] == 2


def test_a_script_obeys_variables_that_python_reads_at_its_start(client: Client) -> None:
    env = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    client.run("echo 'x = 5' > obeyed.py", kind="shell")
    code = "import obeyed, os, sys\nsys.stdout.write('out')\nsys.stderr.write('err')\nos.kill(os.getpid(), 9)"
    result = client.run(code, kind="script", env=env)

    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("out", "err", -9)
    assert result["files_changed"] == []


def test_a_script_that_runs_too_long_is_ended(client: Client) -> None:
    result = client.run("while True: pass", kind="script", timeout_ms=300, grace_ms=300)

    assert result["cause"] == "timeout"
    assert result["cpu_ms"] > 0


def test_in_a_sandbox_what_left_its_session_is_found_too() -> None:
    # Not as the last command, which takes the shell's place: then setsid forks, and ends before its child, or takes
    # the end of the first one for its own child's.
    code = "setsid setsid sleep 1000 & echo $!; setsid bash -c 'sleep 1000 & echo $!; disown'; true"
    with running_agent(contained=True) as agent:
        client = agent.connect()
        left = client.run(code, kind="shell", leftover="kill")
        late = client.run(code + "; sleep 1000", kind="shell", timeout_ms=3000, grace_ms=100)
        client.close()
        pids = [int(word) for result in (left, late) for word in result["stdout"].split()]
        assert len(pids) == 4
        until(lambda: all(map(has_ended, pids)))


def test_of_long_output_the_beginning_alone_is_kept_where_that_is_asked_for(client: Client) -> None:
    result = client.run("seq 1 200000", kind="shell", output_bytes=100, output_keep="head", stream=False)

    assert result["stdout"] == "".join(f"{number}\n" for number in range(1, 200))[:100]
    assert result["truncated"]
