"""Device filter: the devices that processes of a control group may open. A BPF program on cgroup v2, a list on v1.

mknod is refused, every block device is refused, and character devices are allowed by name only.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from warren.engines.local.linux import control_files, syscalls

if TYPE_CHECKING:
    from collections.abc import Iterable

_BPF = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_TYPE_CGROUP_DEVICE, _ATTACH_CGROUP_DEVICE = 15, 6
_ALLOW_MULTI = 2
"""WHY: filters that systemd or a container runtime attached to parents stay in force."""
_LICENSE = b"Apache-2.0\0"
_NAME = b"warren_devices"

_LOAD_WORD, _MOVE, _SHIFT_RIGHT, _AND = 0x61, 0xBF, 0x77, 0x57
_SET, _EXIT = 0xB7, 0x95
_JUMP, _UNLESS_EQUAL, _IF_ANY_BIT = 0x05, 0x55, 0x45
_CONTEXT, _TYPE, _ACCESS, _MAJOR, _MINOR = 1, 2, 3, 4, 5
_CHARACTER, _MKNOD = 2, 1


class Rule(NamedTuple):
    """A character device that may be opened; a minor of None means all."""

    major: int
    minor: int | None


STANDARD = (
    *(Rule(1, minor) for minor in (3, 5, 7, 8, 9)),  # null, zero, full, random, urandom
    Rule(5, 0),  # tty
    Rule(5, 2),  # ptmx
    Rule(136, None),  # pts
)
"""The devices of every sandbox."""


def build_program(rules: Iterable[Rule]) -> bytes:
    """Assemble the program: it returns 1 to allow, 0 to refuse."""
    refuse = [_instruction(_SET, 0, constant=0), _instruction(_EXIT)]
    allow = [_instruction(_SET, 0, constant=1), _instruction(_EXIT)]
    code = [
        _instruction(_LOAD_WORD, _TYPE, _CONTEXT, offset=0),
        _instruction(_MOVE, _ACCESS, _TYPE),
        _instruction(_AND, _TYPE, constant=0xFFFF),
        _instruction(_SHIFT_RIGHT, _ACCESS, constant=16),
        _instruction(_LOAD_WORD, _MAJOR, _CONTEXT, offset=4),
        _instruction(_LOAD_WORD, _MINOR, _CONTEXT, offset=8),
        _instruction(_UNLESS_EQUAL, _TYPE, offset=2, constant=_CHARACTER),
        _instruction(_IF_ANY_BIT, _ACCESS, offset=1, constant=_MKNOD),
        _instruction(_JUMP, offset=len(refuse)),
        *refuse,
    ]
    for rule in dict.fromkeys(rules):
        is_minor = (
            [_instruction(_UNLESS_EQUAL, _MINOR, offset=len(allow), constant=rule.minor)]
            if rule.minor is not None
            else []
        )
        found = [*is_minor, *allow]
        code += [_instruction(_UNLESS_EQUAL, _MAJOR, offset=len(found), constant=rule.major), *found]
    return b"".join([*code, *refuse])


def attach(folder: str, rules: Iterable[Rule]) -> None:
    """Restrict the v2 group at `folder`, and groups below, to these devices, for its lifetime. Raises OSError."""
    program = _load(build_program(rules))
    try:
        group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            values = struct.pack("=5I", group, program, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI, 0)
            _call(_PROG_ATTACH, values, f"bpf attach to {folder}")
        finally:
            os.close(group)
    finally:
        # SAFE BECAUSE: the group keeps its attached programs.
        os.close(program)


def write_list(folder: str, rules: Iterable[Rule]) -> None:
    """Do the same for the v1 group of the devices controller at `folder`. Raises OSError."""
    control_files.write(f"{folder}/devices.deny", "a")
    for rule in dict.fromkeys(rules):
        minor = "*" if rule.minor is None else rule.minor
        control_files.write(f"{folder}/devices.allow", f"c {rule.major}:{minor} rw")


def _load(program: bytes) -> int:
    code = ctypes.create_string_buffer(program, len(program))
    license_text = ctypes.create_string_buffer(_LICENSE, len(_LICENSE))
    values = struct.pack(
        "=IIQQIIQII16sII",
        _TYPE_CGROUP_DEVICE,
        len(program) // 8,
        ctypes.addressof(code),
        ctypes.addressof(license_text),
        *(0, 0, 0),
        *(0, 0),
        _NAME,
        *(0, 0),
    )
    # SAFE BECAUSE: `code` and `license_text` outlive the call, and the kernel copies both.
    return _call(_PROG_LOAD, values, "bpf load of a device filter")


def _call(command: int, values: bytes, what: str) -> int:
    number = _BPF.get(syscalls.MACHINE)
    if number is None:
        raise OSError(f"{what}: not known on {syscalls.MACHINE}")
    return syscalls.syscall(number, what, command, values, len(values))


def _instruction(code: int, target: int = 0, source: int = 0, *, offset: int = 0, constant: int = 0) -> bytes:
    return struct.pack("<BBhi", code, target | source << 4, offset, constant)
