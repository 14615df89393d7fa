"""Namespaces, entered for real by forked children."""

from __future__ import annotations

import errno
import os
import socket

from unit.local.forked import UNPRIVILEGED, enter_namespaces, errno_of, needs_root, run_in_child
from warren.engines.local.linux import namespaces, syscalls


def test_the_named_ones_are_all_of_them() -> None:
    combined = 0
    for flag in namespaces.EACH:
        combined |= flag

    assert combined == namespaces.ALL


def test_one_id_is_mapped_and_no_group_can_be_dropped() -> None:
    def attempt() -> list[object]:
        enter_namespaces(namespaces.CLONE_NEWUSER, inside_id=1000)
        return [os.getuid(), os.getgid(), errno_of(os.setgroups, []), errno_of(os.setuid, 0)]

    assert run_in_child(attempt) == [1000, 1000, errno.EPERM, errno.EINVAL]


@needs_root
def test_a_privileged_process_maps_another_host_id_for_its_child() -> None:
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(done[1])
        syscalls.unshare(namespaces.CLONE_NEWUSER)
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0 if (os.getuid(), os.getgid()) == (65534, 65534) else 1)
    os.read(ready[0], 1)
    namespaces.write_id_maps(pid, 1000, 1_879_048_200)
    with open(f"/proc/{pid}/uid_map", encoding="utf-8") as file:
        mapped = file.read().split()
    for descriptor in (*ready, *done):
        os.close(descriptor)

    # It is still host root, which is not mapped, until it takes the mapped id.
    assert os.waitpid(pid, 0)[1] == 0
    assert mapped == ["1000", "1879048200", "1"]


@needs_root
def test_an_ordinary_user_cannot_map_the_id_of_another() -> None:
    def attempt() -> int:
        syscalls.unshare(namespaces.CLONE_NEWUSER)
        return errno_of(namespaces.write_id_maps, os.getpid(), 0, 0)

    assert run_in_child(attempt, uid=UNPRIVILEGED) == errno.EPERM


def test_the_loopback_answers_once_it_is_up() -> None:
    def attempt() -> list[object]:
        enter_namespaces(namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWNET)
        before = errno_of(socket.create_connection, ("127.0.0.1", 1), 1)
        namespaces.bring_up_loopback()
        namespaces.bring_up_loopback()
        after = errno_of(socket.create_connection, ("127.0.0.1", 1), 1)
        return [before, after, [name for _, name in socket.if_nameindex()][:1]]

    assert run_in_child(attempt) == [errno.ENETUNREACH, errno.ECONNREFUSED, ["lo"]]
