"""An interpreter of the few BPF instructions that a system-call filter has, written from the kernel's description."""

from __future__ import annotations

import struct

KILL = 0x80000000
ALLOW = 0x7FFF0000
ERRNO = 0x00050000


def run(program: bytes, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """Return what the program answers for one system call."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, arch, 0, *padded)
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator = position = 0
    while True:
        code, if_true, if_false, constant = instructions[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif code == 0x54:
            accumulator &= constant
        elif code == 0x05:
            position += constant
        elif code == 0x06:
            return int(constant)
        else:
            holds = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: bool(accumulator & constant)}
            position += if_true if holds[code] else if_false


def steps(program: bytes, number: int, arch: int) -> int:
    """Count the instructions that one system call costs, for a call without argument rules."""
    instructions = list(struct.iter_unpack("<HBBI", program))
    position = count = 0
    accumulator = arch
    while True:
        code, if_true, if_false, constant = instructions[position]
        position += 1
        count += 1
        if code == 0x06:
            return count
        if code == 0x20:
            accumulator = arch if constant == 4 else number
        elif code == 0x05:
            position += constant
        else:
            position += if_true if (accumulator == constant if code == 0x15 else accumulator >= constant) else if_false
