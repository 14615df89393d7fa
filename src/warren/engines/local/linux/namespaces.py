"""Namespaces: their seven flags, their id maps, and the loopback device."""

from __future__ import annotations

import fcntl
import functools
import operator
import socket
import struct

from warren.engines.local.linux import control_files

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

EACH = (CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP)
ALL = functools.reduce(operator.or_, EACH)

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def write_id_maps(pid: int, inside_id: int, outside_id: int) -> None:
    """Map exactly one user and one group id into the user namespace of process `pid`."""
    control_files.write(f"/proc/{pid}/uid_map", f"{inside_id} {outside_id} 1")
    # WHY: without CAP_SETGID in the parent namespace, the kernel takes a gid_map only after this; and dropping a
    # supplementary group could otherwise open a file that its mode closes to that group.
    control_files.write(f"/proc/{pid}/setgroups", "deny")
    control_files.write(f"/proc/{pid}/gid_map", f"{inside_id} {outside_id} 1")


def bring_up_loopback() -> None:
    """Set `lo` of this network namespace up, so that 127.0.0.1 and ::1 answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        request = struct.pack("16sH22x", b"lo", 0)
        reply = fcntl.ioctl(control, _SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("H", reply, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))
