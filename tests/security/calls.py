"""System calls that no program in a sandbox may make, with arguments that an ordinary program could get away with."""

from __future__ import annotations

import os
from typing import Any

_COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]

Call = tuple[str, int, list[Any]]
"""A name for the report, the number, the arguments; words stand for pointers (see programs/calls.py)."""

_NEW_USER = 0x10000000
NAMESPACES = {
    "time": 0x00000080,
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": _NEW_USER,
    "pid": 0x20000000,
    "net": 0x40000000,
}

# Each: numbers on x86_64 and aarch64 (None: there is none), and the arguments.
_TABLE: dict[str, tuple[int | None, int | None, list[Any]]] = {
    "mount": (165, 40, ["text", "text", "text", 4096, 0]),
    "umount2": (166, 39, ["text", 2]),
    "pivot_root": (155, 41, ["text", "text"]),
    "chroot": (161, 51, ["text"]),
    "open_tree": (428, 428, [-100, "text", 1]),
    "open_tree without a copy": (428, 428, [-100, "text", 0]),
    "open_tree_attr": (467, 467, [-100, "text", 0, 0, 0]),
    "move_mount": (429, 429, [-100, "text", -100, "text", 0]),
    "fsopen": (430, 430, ["text", 0]),
    "fsconfig": (431, 431, [0, 0, 0, 0, 0]),
    "fsmount": (432, 432, [0, 0, 0]),
    "fspick": (433, 433, [-100, "text", 0]),
    "mount_setattr": (442, 442, [-100, "text", 0, "buffer", 32]),
    "statmount": (457, 457, ["buffer", "buffer", 512, 0]),
    "listmount": (458, 458, ["buffer", "buffer", 8, 0]),
    "unshare files": (272, 97, [0x400]),
    "unshare user": (272, 97, [_NEW_USER]),
    "setns": (308, 268, [0, 0]),
    "clone3": (435, 435, ["buffer", 88]),
    "bpf": (321, 280, [0, "buffer", 128]),
    "bpf program": (321, 280, [5, "buffer", 128]),
    "perf_event_open": (298, 241, ["buffer", 0, -1, -1, 0]),
    "keyctl": (250, 219, [0, -4, 1]),
    "add_key": (248, 217, ["text", "text", "buffer", 8, -4]),
    "request_key": (249, 218, ["text", "text", 0, 0]),
    "userfaultfd": (323, 282, [1]),
    "io_uring_setup": (425, 425, [8, "buffer"]),
    "io_uring_enter": (426, 426, [0, 0, 0, 0, 0, 0]),
    "io_uring_register": (427, 427, [0, 0, 0, 0]),
    "io_setup": (206, 0, [8, "buffer"]),
    "name_to_handle_at": (303, 264, [-100, "text", "buffer", "buffer", 0]),
    "open_by_handle_at": (304, 265, [-100, "buffer", 0]),
    "fanotify_init": (300, 262, [0, 0]),
    "ptrace me": (101, 117, [0, 0, 0, 0]),
    "ptrace the agent": (101, 117, [16, 1, 0, 0]),
    "ptrace the agent gently": (101, 117, [0x4206, 1, 0, 0]),
    "process_vm_readv self": (310, 270, ["self", "iovec", 1, "iovec", 1, 0]),
    "process_vm_readv the agent": (310, 270, [1, "iovec", 1, "iovec", 1, 0]),
    "process_vm_writev the agent": (311, 271, [1, "iovec", 1, "iovec", 1, 0]),
    "process_madvise": (440, 440, [0, 0, 0, 0, 0]),
    "process_mrelease": (448, 448, [0, 0]),
    "pidfd_getfd": (438, 438, [0, 0, 0]),
    "kcmp": (312, 272, ["self", "self", 0, 0, 0]),
    "kexec_load": (246, 104, [0, 0, 0, 0]),
    "kexec_file_load": (320, 294, [0, 0, 0, "text", 0]),
    "init_module": (175, 105, ["buffer", 8, "text"]),
    "finit_module": (313, 273, [0, "text", 0]),
    "delete_module": (176, 106, ["text", 0]),
    "reboot, harmless if allowed": (169, 142, [0, 0, 0, 0]),
    "swapon": (167, 224, ["text", 0]),
    "swapoff": (168, 225, ["text"]),
    "clock_settime": (227, 112, [0, "buffer"]),
    "settimeofday": (164, 170, ["buffer", 0]),
    "adjtimex": (159, 171, ["buffer"]),
    "clock_adjtime": (305, 266, [0, "buffer"]),
    "syslog": (103, 116, [10, 0, 0]),
    "syslog read": (103, 116, [3, "buffer", 4096]),
    "acct": (163, 89, [0]),
    "quotactl": (179, 60, [0, 0, 0, 0]),
    "sethostname": (170, 161, ["text", 4]),
    "setdomainname": (171, 162, ["text", 4]),
    "iopl": (172, None, [3]),
    "ioperm": (173, None, [0, 8, 1]),
    "modify_ldt": (154, None, [0, "buffer", 16]),
    "vhangup": (153, 58, []),
    "personality without randomness": (135, 92, [0x0040000]),
    "personality reading implies executing": (135, 92, [0x0400000]),
    "mknod character device": (133, None, ["text", 0o020666, 0x103]),
    "mknodat character device": (259, 33, [-100, "text", 0o020666, 0x103]),
    "mknodat block device": (259, 33, [-100, "text", 0o060666, 0x700]),
    "prlimit of the agent": (302, 261, [1, 7, 0, "buffer"]),
    "move_pages": (279, 239, [0, 0, 0, 0, 0, 0]),
    "mbind": (237, 235, [0, 0, 0, 0, 0, 0]),
    "vmsplice": (278, 75, [1, "iovec", 1, 0]),
    "lookup_dcookie": (212, 18, [0, "buffer", 16]),
    "msgget": (68, 186, [0, 0o1600]),
    "msgsnd": (69, 189, [0, "buffer", 8, 0o4000]),
    "semget": (64, 190, [0, 1, 0o1600]),
    "memfd_secret": (447, 447, [0]),
    "a number that no kernel has": (499, 499, []),
    "a number out of all range": (0x7FFFFFFF, 0x7FFFFFFF, []),
    "a negative number": (-7, -7, []),
    "mount, by the 32-bit-pointer table": (0x40000000 | 165, None, ["text", "text", "text", 4096, 0]),
    "read, by the 32-bit-pointer table": (0x40000000, None, [0, "buffer", 0]),
    "setns, by the 32-bit-pointer table": (0x40000000 | 308, None, [0, 0]),
}

_CLONE = (56, 220)[_COLUMN]
_SOCKET = (41, 198)[_COLUMN]
_SOCKETPAIR = (53, 199)[_COLUMN]
_UPPER_HALF = 1 << 32


def refused_calls() -> list[Call]:
    """List every call of the table that this machine has."""
    here = [(name, (x86, arm)[_COLUMN], arguments) for name, (x86, arm, arguments) in _TABLE.items()]
    return [(name, number, arguments) for name, number, arguments in here if number is not None]


def namespace_clones() -> list[Call]:
    """Clone into each kind of namespace, also together with bits that a filter might stumble over."""
    return [
        (f"clone {name} {extra:#x}", _CLONE, [flag | extra | 17, 0, 0, 0, 0])
        for name, flag in NAMESPACES.items()
        # clone takes the lowest byte as a signal, so a time namespace cannot be asked for this way.
        if name != "time"
        for extra in (0, _NEW_USER, _UPPER_HALF)
    ]


def sockets() -> list[Call]:
    """Ask for every family but UNIX and IP, and for odd protocols of IP."""
    families = [number for number in range(64) if number not in (1, 2, 10)]
    calls: list[Call] = [
        (f"socket family {number | extra:#x} type {kind}", _SOCKET, [number | extra, kind, 0])
        for number in families
        for extra in (0, _UPPER_HALF)
        for kind in (2, 3)
    ]
    calls += [(f"socketpair family {number}", _SOCKETPAIR, [number, 1, 0, "buffer"]) for number in families]
    # SCTP, DCCP, UDP-Lite, MPTCP, SMC, L2TP and raw ones.
    for kind, protocol in ((1, 132), (6, 33), (2, 136), (1, 262), (1, 256), (2, 115), (3, 255), (3, 1), (3, 17)):
        calls += [
            (f"socket IP type {kind} protocol {protocol}", _SOCKET, [domain, kind, protocol]) for domain in (2, 10)
        ]
    return calls
