"""What `warren doctor --fix` would change, and that it does what it shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from unit.local.fake_host import DELEGATED, DOCKER, MANAGER, SYSTEMD, UBUNTU, USER, V1, found
from warren.engines.local.linux import apparmor
from warren.engines.local.probe import remedies
from warren.engines.local.probe.layers import Layer
from warren.engines.local.probe.repairs import PROGRAM_FOLDERS, Repair, apply, plan_repairs

ROOT = Path(__file__).parents[3]


def _missing(**details: str) -> list[Layer]:
    return [Layer(name, holds=False, detail=detail, fix="…") for name, detail in details.items()]


def _plan(root: Path, files: dict[str, str], layers: list[Layer], *, uid: int = USER) -> tuple[Repair, ...]:
    return plan_repairs(layers, found(root, files, uid=uid), root=str(root))


def _program(folder: Path, name: str, log: Path, then: str = "") -> None:
    """Put a program into `folder` that says how it was called."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n{then}\n')
    (folder / name).chmod(0o755)


def test_a_host_on_which_everything_holds_is_left_alone(tmp_path: Path) -> None:
    held = [Layer("user", holds=True, detail="…", fix="")]

    assert _plan(tmp_path, UBUNTU, held) == ()


def test_apparmor_gets_a_profile_and_keeps_its_setting(tmp_path: Path) -> None:
    write, load = _plan(tmp_path, UBUNTU, _missing(user="write uid_map: Operation not permitted"))

    assert write.text == apparmor.TEXT
    assert write.argv[-1] == load.argv[-1] == f"{tmp_path}/etc/apparmor.d/warren"
    assert load.argv[:2] == ("apparmor_parser", "-r")


def test_the_profile_that_is_shipped_is_the_one_that_is_installed() -> None:
    assert (ROOT / "deploy" / "apparmor" / "warren").read_text() == apparmor.TEXT


@pytest.mark.parametrize(
    ("files", "uid"),
    [({**UBUNTU, "sys/kernel/security/apparmor/profiles": "warren (unconfined)\n"}, USER), (UBUNTU, 0)],
)
def test_a_profile_that_is_loaded_or_not_needed_is_not_installed(
    tmp_path: Path, files: dict[str, str], uid: int
) -> None:
    assert _plan(tmp_path, files, _missing(user="no"), uid=uid) == ()


def test_a_program_starts_also_where_there_is_no_profile_to_enter() -> None:
    ended = subprocess.run(["/bin/true"], preexec_fn=apparmor.enter_on_exec, check=False)

    assert ended.returncode == 0


def test_a_user_without_a_manager_gets_one_that_stays(tmp_path: Path) -> None:
    linger, wait = _plan(tmp_path, SYSTEMD, _missing(memory="no"))

    assert linger.argv == ("loginctl", "enable-linger", remedies.user_name(USER))
    assert wait.argv == ("systemctl", "start", f"user@{USER}.service")


def test_cpu_is_delegated_by_a_drop_in_where_systemd_does_not(tmp_path: Path) -> None:
    files = {**SYSTEMD, MANAGER: "", DELEGATED: "memory pids"}
    write, reload = _plan(tmp_path, files, _missing(cpu="no"))

    assert write.argv[-1].endswith("/etc/systemd/system/user@.service.d/delegate.conf")
    assert "Delegate=cpu memory pids\n" in write.text
    assert reload.argv == ("systemctl", "daemon-reload")


def test_a_foreign_drop_in_is_not_replaced(tmp_path: Path) -> None:
    theirs = "etc/systemd/system/user@.service.d/delegate.conf"
    files = {**SYSTEMD, MANAGER: "", DELEGATED: "memory pids", theirs: "[Service]\nDelegate=io\n"}
    write, _ = _plan(tmp_path, files, _missing(cpu="no"))

    assert write.argv[-1].endswith("/user@.service.d/warren.conf")


def test_a_drop_in_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    files = {**SYSTEMD, MANAGER: "", DELEGATED: "memory pids"}
    write, _ = _plan(tmp_path, files, _missing(cpu="no"))
    apply([write])

    assert _plan(tmp_path, files, _missing(cpu="no")) == ()


@pytest.mark.parametrize("files", [{**SYSTEMD, "proc/self/mountinfo": V1}, {"proc/self/mountinfo": V1}, DOCKER])
def test_where_systemd_delegates_nothing_to_users_nothing_is_changed(tmp_path: Path, files: dict[str, str]) -> None:
    assert _plan(tmp_path, files, _missing(memory="no", cpu="no")) == ()


def test_a_kernel_setting_is_changed_where_nothing_narrower_helps(tmp_path: Path) -> None:
    files = {**SYSTEMD, "proc/sys/user/max_user_namespaces": "0", "proc/sys/user/max_net_namespaces": "0"}
    write, reload = _plan(tmp_path, files, _missing(user="No space left on device", net="no", nesting="no"))

    assert write.text == "user.max_net_namespaces = 15000\nuser.max_user_namespaces = 15000\n"
    assert reload.argv == ("sysctl", "-p", write.argv[-1])


@pytest.mark.parametrize(
    ("program", "argv"),
    [
        ("usr/bin/apt-get", ("apt-get", "install", "--yes", "e2fsprogs")),
        ("usr/bin/dnf", ("dnf", "install", "--assumeyes", "e2fsprogs")),
        ("usr/bin/pacman", ("pacman", "-S", "--noconfirm", "e2fsprogs")),
    ],
)
def test_a_missing_tool_is_installed(tmp_path: Path, program: str, argv: tuple[str, ...]) -> None:
    (install,) = _plan(tmp_path, {program: ""}, _missing(disk="mkfs.ext4 is not installed"), uid=0)

    assert install.argv == argv


def test_the_driver_of_loop_devices_is_loaded_now_and_at_every_boot(tmp_path: Path) -> None:
    load, keep = _plan(tmp_path, SYSTEMD, _missing(disk="open /dev/loop-control: No such file"), uid=0)

    assert load.argv == ("modprobe", "-a", "loop", "ext4")
    assert keep.text == "loop\next4\n"


def test_what_is_shown_is_a_script_that_does_the_same(tmp_path: Path) -> None:
    write, _ = _plan(tmp_path, UBUNTU, _missing(user="no"))

    assert str(write) == (
        f"# {write.why}\ninstall -D -m 644 /dev/stdin {tmp_path}/etc/apparmor.d/warren <<'END'\n{apparmor.TEXT}END"
    )


def test_repairs_write_their_files_and_run_their_commands_through_sudo(tmp_path: Path) -> None:
    programs, log = tmp_path / "programs", tmp_path / "log"
    _program(programs, "apparmor_parser", log)
    _program(programs, "sudo", log, then='exec "$@"')
    repairs = _plan(tmp_path, UBUNTU, _missing(user="no"))

    apply(repairs, sudo=str(programs / "sudo"), path=f"{programs}:{PROGRAM_FOLDERS}")

    file = tmp_path / "etc/apparmor.d/warren"
    assert file.read_text() == apparmor.TEXT
    assert file.stat().st_mode & 0o777 == 0o644
    called = log.read_text().splitlines()
    assert called[0].endswith(f"install -D -m 644 /dev/stdin {file}")
    assert called[1:] == [f"sudo {programs}/apparmor_parser -r {file}", f"apparmor_parser -r {file}"]
    # The file is there by now, so that loading it is all that is left.
    assert len(_plan(tmp_path, UBUNTU, _missing(user="no"))) == 1


def test_a_step_that_fails_is_named_and_ends_the_repair(tmp_path: Path) -> None:
    programs, log = tmp_path / "programs", tmp_path / "log"
    _program(programs, "first", log, then="exit 3")
    _program(programs, "second", log)
    steps = [Repair("…", ("first", "a b")), Repair("…", ("second",))]

    with pytest.raises(RuntimeError, match="`first 'a b'` failed with exit code 3"):
        apply(steps, path=f"{programs}:{PROGRAM_FOLDERS}")
    assert log.read_text() == "first a b\n"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="apparmor_parser is not installed"):
        apply([Repair("…", ("apparmor_parser", "-r", "x"))], path=str(tmp_path))


def test_a_second_repair_of_settings_keeps_the_first_and_lowers_nothing(tmp_path: Path) -> None:
    settings = "kernel.unprivileged_userns_clone = 1\nuser.max_user_namespaces = 7\n# ours\nvm.swappiness = 1\n"
    files = {
        "etc/sysctl.d/60-warren.conf": settings,
        "proc/sys/user/max_net_namespaces": "0",
        "proc/sys/user/max_user_namespaces": "63000",
    }
    write, _ = _plan(tmp_path, files, _missing(net="no", user="unshare: No space left on device"))

    assert write.text == (
        "kernel.unprivileged_userns_clone = 1\n# ours\nvm.swappiness = 1\n"
        "user.max_net_namespaces = 15000\nuser.max_user_namespaces = 126000\n"
    )
