"""Inside: make each system call given by number, each in a process of its own; report how each was answered."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_buffer = ctypes.create_string_buffer(4096)
_WORD = (1 << 64) - 1
_iovec = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(_buffer), 16))
_text = ctypes.create_string_buffer(b"/tmp")
_SPECIAL = {
    "buffer": ctypes.addressof(_buffer),
    "iovec": ctypes.addressof(_iovec),
    "text": ctypes.addressof(_text),
    "self": os.getpid(),
}


def call(number: int, arguments: list[Any]) -> int:
    """Make it here and give the errno, 0 when it was done."""
    numbers = [_SPECIAL[value] if isinstance(value, str) else value for value in arguments]
    values = [ctypes.c_ulong(number & _WORD) for number in numbers]
    ctypes.set_errno(0)
    me = os.getpid()
    result = _libc.syscall(ctypes.c_long(number), *values)
    if os.getpid() != me:
        os._exit(0)
    return ctypes.get_errno() if result == -1 else 0


def answer(number: int, arguments: list[Any]) -> int:
    """Make it in a child and give its errno, or minus the signal that it died from."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        os.write(writer, bytes([call(number, arguments)]))
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 1)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return said[0] if said else os.waitstatus_to_exitcode(status)


(calls,) = globals()["ARGUMENTS"]
print(json.dumps([[name, answer(number, arguments)] for name, number, arguments in calls]))
