"""The unit that is shipped, installed as its page says: sandboxes outlive the service, the keeper and a reboot."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from vm.programs import HUNGRY, check_nothing_left

if TYPE_CHECKING:
    from vm.console import Console, Result
    from vm.machine import Machine

# docs/howto/systemd.md, and go-to-production.md, to which it points.
INSTALL = """set -e
cp /opt/warren/deploy/systemd/warren.service /etc/systemd/system/
mkdir -p /etc/warren
printf 'WARREN_DATA_DIR=/var/lib/warren\\nWARREN_IMAGE=python\\n' > /etc/warren/environment
export WARREN_ENV=production WARREN_DATA_DIR=/var/lib/warren
warren keys create operator --scope admin > /dev/null
warren config check
systemctl daemon-reload
systemctl enable --quiet --now warren"""
READY = (
    "for i in $(seq 120); do curl --silent --fail 127.0.0.1:8000/readyz >/dev/null && exit 0; sleep 0.5; done; exit 1"
)
SHUTDOWN_S = 80
"""Less than the 90 seconds after which systemd kills what does not end."""


def test_it_is_installed_as_its_page_says(root: Console) -> None:
    installed = root.run(f"bash -c {shlex.quote(INSTALL)}", 30)

    assert installed.code == 0, installed
    _wait_until_ready(root)


def test_variables_outlive_a_restart(root: Console) -> None:
    created = root.run("id=$(warren sandbox create --quiet --memory 200M); echo $id", 20)
    assert created.output.startswith("sbx_"), created
    made = _execute(root, "x = 42; open('kept.txt', 'w').write('as it was')")
    assert made.code == 0, made

    restarted = root.run("systemctl restart warren", 30)

    assert restarted.code == 0, restarted
    _wait_until_ready(root)
    _check_variable(root)


def test_variables_outlive_a_keeper_that_is_killed(root: Console) -> None:
    killed = root.run("pkill --signal KILL --full engines.local.keeper")
    assert killed.code == 0, killed

    _check_variable(root)


def test_limits_outlive_a_reload_of_systemd_and_one_that_is_reached_ends_the_program_alone(root: Console) -> None:
    before = _process_of_the_service(root)
    reloaded = root.run("systemctl daemon-reload")
    assert reloaded.code == 0, reloaded

    ended = _execute(root, HUNGRY)

    assert ended.code == 137, ended
    assert "it ran out of memory" in ended.output, ended
    _check_variable(root)
    assert _process_of_the_service(root) == before


def test_files_outlive_a_reboot_that_sandboxes_do_not_hold_up(machine: Machine) -> None:
    sandbox = machine.root.run("echo $id").output

    shutdown_s = machine.reboot()

    assert shutdown_s < SHUTDOWN_S
    _wait_until_ready(machine.root)
    machine.root.run(f"id={sandbox}")
    read = _execute(machine.root, "print(open('kept.txt').read())")
    assert (read.code, read.output) == (0, "as it was"), read


def test_nothing_is_left_when_service_and_engine_have_been_stopped(root: Console) -> None:
    stopped = root.run("systemctl disable --quiet --now warren && warren stop-engine --sandboxes", 30)

    assert stopped.code == 0, stopped
    check_nothing_left(root)


def _execute(root: Console, code: str) -> Result:
    return root.run(f"warren sandbox exec $id -c {shlex.quote(code)}", 20)


def _check_variable(root: Console) -> None:
    shown = _execute(root, "print('x is', x)")
    assert (shown.code, shown.output) == (0, "x is 42"), shown


def _process_of_the_service(root: Console) -> str:
    shown = root.run("systemctl show warren --property MainPID --property ActiveState --property NRestarts").output
    assert re.search("^ActiveState=active$", shown, re.MULTILINE), shown
    return shown


def _wait_until_ready(root: Console) -> None:
    waited = root.run(f"bash -c {shlex.quote(READY)}", 20)
    assert waited.code == 0, f"{waited}\n{root.run('systemctl status --no-pager --lines 20 warren')}"
