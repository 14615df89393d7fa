"""An ordinary user: in a session, with a user manager alone, and with neither."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from vm.programs import check_memory, check_nothing_left, check_the_rest, warren_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vm.console import Console
    from vm.machine import Machine

AS_USER = (
    "setpriv --reuid=u1 --regid=u1 --init-groups "
    "env --chdir=/home/u1 --ignore-environment HOME=/home/u1 USER=u1 PATH=$PATH WARREN_IMAGE=python"
)
"""Becomes the user as a job by the clock does: no session, and nothing in the environment that says where it is."""


@pytest.fixture(scope="module", autouse=True)
def nothing_of_root(machine: Machine) -> None:
    """What is left at the end is the user's then, whichever tests ran before."""
    stopped = machine.root.run("warren stop-engine --sandboxes", 30)
    assert stopped.code == 0, stopped


def test_the_doctor_finds_every_layer_in_a_session(user: Console) -> None:
    said = user.run("warren doctor", 30)

    assert said.code == 0, said


def test_a_program_runs_within_its_limits_in_a_session(user: Console) -> None:
    ran = warren_run(user, "print(1)")

    assert (ran.code, ran.output) == (0, "1"), ran
    check_memory(user)
    check_the_rest(user)


def test_a_shell_reads_what_is_typed(user: Console) -> None:
    user.type("warren shell; echo left-with-$?\n")
    user.expect(r"[$#] ", 30)
    user.type("echo $((6 * 7))-typed; exit 3\n")

    user.expect(r"42-typed", 10)
    # What is typed before that, the terminal of the sandbox gets.
    user.expect(r"left-with-3\r?\n", 20)


def test_a_service_of_ones_own_makes_sandboxes(user: Console) -> None:
    served = user.run("warren serve --daemon", 30)
    assert served.code == 0, served
    try:
        created = user.run("id=$(warren sandbox create --quiet --ephemeral); echo $id", 20)
        assert created.output.startswith("sbx_"), created
        executed = user.run("warren sandbox exec $id -c 'x = 42' && warren sandbox exec $id -c 'print(x)'", 20)
        assert (executed.code, executed.output) == (0, "42"), executed
    finally:
        stopped = user.run("warren stop", 20)
    assert stopped.code == 0, stopped


@pytest.mark.parametrize("layers", ["cpu", "cpu,pids"])
def test_a_limit_of_memory_holds_without(layers: str, user: Console) -> None:
    user.run("warren stop-engine")

    check_memory(user, f"WARREN_OPTIONAL_LAYERS={layers} systemd-run --user --quiet --scope -p Delegate=yes")


def test_nothing_is_left_when_the_engine_has_been_stopped(user: Console, root: Console) -> None:
    stopped = user.run("warren stop-engine --sandboxes", 30)

    assert stopped.code == 0, stopped
    check_nothing_left(root)


@pytest.fixture
def logged_out(root: Console, user: Console) -> Iterator[None]:
    """The user has left, and comes back afterwards."""
    root.run("systemctl stop serial-getty@ttyS1")
    _wait_until(root, "! loginctl list-sessions --no-legend | grep u1")
    yield
    root.run("loginctl disable-linger u1; systemctl start serial-getty@ttyS1")
    user.settle(30)


@pytest.mark.usefixtures("logged_out")
def test_a_user_manager_that_lingers_is_enough(root: Console) -> None:
    root.run("loginctl enable-linger u1")
    _wait_until(root, "systemctl is-active --quiet user@1000")

    ran = warren_run(root, "print(1)", before=AS_USER)

    assert (ran.code, ran.output) == (0, "1"), ran
    check_memory(root, AS_USER)
    assert root.run(f"{AS_USER} warren stop-engine --sandboxes").code == 0
    check_nothing_left(root)


@pytest.mark.usefixtures("logged_out")
def test_without_a_user_manager_a_sentence_names_the_command_that_helps(root: Console) -> None:
    root.run("systemctl stop user@1000")

    refused = warren_run(root, "print(1)", before=AS_USER)

    assert refused.code not in {0, 137}, refused
    assert len(refused.output.splitlines()) == 1, refused
    assert "loginctl enable-linger" in refused.output, refused
    check_nothing_left(root)


def _wait_until(root: Console, condition: str) -> None:
    loop = f"for i in $(seq 60); do if {condition}; then exit 0; fi; sleep 0.5; done; exit 1"
    waited = root.run(f"bash -c {shlex.quote(loop)}")
    assert waited.code == 0, waited
