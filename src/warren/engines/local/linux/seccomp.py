"""The system-call filter: a small BPF program that the kernel runs before every call of a sandbox.

1. Every call that syscall_table.py does not allow is refused: known calls with EPERM, unknown ones with ENOSYS.
2. A rule compares arguments that are numbers, never memory behind a pointer: the program can change that meanwhile.
3. Where the kernel takes an `int`, only the lower half of the argument counts, so only that half is compared.
"""

from __future__ import annotations

import ctypes
import errno
import stat
import struct

from warren.engines.local.linux import syscall_table, syscalls

ALLOW = 0x7FFF0000
KILL = 0x80000000
_ERRNO = 0x00050000
_MODE_FILTER = 2

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OFFSET_NUMBER = 0
_OFFSET_ARCH = 4

_LOAD = 0x20
_AND = 0x54
_JUMP = 0x05
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

_NAMESPACE_FLAGS = 0x7E020000
_FAMILIES = (1, 2, 10)
"""UNIX, INET, INET6."""
_SOCKET_FLAGS = 0x80800
"""CLOEXEC and NONBLOCK, beside the type."""
_UNIX_TYPES = (1, 2, 5)
"""STREAM, DGRAM, SEQPACKET: browsers use the last one between their own processes."""
_INET_TYPES = (1, 2)
_RAW = 3
_PROTOCOLS = (0, 1, 6, 17, 58)
"""The default, ICMP, TCP, UDP, ICMPv6. WHY: SCTP, DCCP, SMC and the like load kernel modules on first use."""
_SOCKET_OPTIONS = {6: (31,), 17: (100,)}
"""TCP_ULP puts TLS or another protocol of the kernel's on a connection, UDP_ENCAP makes a tunnel of IPsec or L2TP."""
_OUT_OF_BAND = 1
"""MSG_OOB: urgent bytes, also of UNIX sockets. WHY: a rare path with a record of holes (CVE-2025-38236)."""
_TERMINAL_TRICKS = (0x5412, 0x541C, 0x5423)
"""TIOCSTI and TIOCLINUX type into a terminal; TIOCSETD loads line disciplines, a bug-rich corner."""
_FILE_TYPES = (0, 0x8000, 0x1000, 0xC000)
"""Default and regular, fifo, socket: no devices."""
_PERSONALITIES = (0, 0xFFFFFFFF)
"""The ordinary one, and the query of the current one."""

_AGENT = 1
"""The agent's pid, as a sandbox sees it."""
_PRIO_PROCESS = 0
_IOPRIO_WHO_PROCESS = 1

_Code = list[tuple[int, int, int, int]]
"""Instructions: operation, how many to skip if true, how many if false, constant."""


def build_filter(arch: str | None = None, *, zygote: bool = False) -> bytes:
    """Assemble the filter for an architecture, by default this machine's. Raises RuntimeError for an unknown one.

    A zygote may also make the calls of a containment plan: its children perform that under their parent's filter.
    """
    arch = arch or syscalls.MACHINE
    if arch not in _AUDIT_ARCH:
        raise RuntimeError(f"no system-call table for {arch}: Warren's local engine needs x86_64 or aarch64")
    program = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[arch]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        *_search(_segments(arch, zygote=zygote)),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def install(program: bytes) -> None:
    """Put this process and all its descendants under the filter, for good."""
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    pointer = ctypes.create_string_buffer(header, len(header))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(pointer))


def _segments(arch: str, *, zygote: bool) -> list[tuple[int, _Code]]:
    """Divide all numbers into runs with one answer: the first number of each, and its code."""
    refused = _answer(_ERRNO | errno.EPERM)
    unknown = _answer(_ERRNO | errno.ENOSYS)
    answers = dict.fromkeys(syscall_table.denied(arch).values(), refused)
    for name, number in syscall_table.allowed(arch).items():
        answers[number] = _RULES[name] if name in _RULES else _answer(ALLOW)
    if zygote:
        answers |= dict.fromkeys(syscall_table.for_containment(arch).values(), _answer(ALLOW))
    runs = [(0, answers.get(0, unknown))]
    for number in range(1, max(answers) + 2):
        code = answers.get(number, unknown)
        if code != runs[-1][1]:
            runs.append((number, code))
    return runs


def _search(runs: list[tuple[int, _Code]]) -> _Code:
    """Build a binary search over the runs, so that every call costs only a few comparisons."""
    if len(runs) == 1:
        return runs[0][1]
    middle = len(runs) // 2
    below, above = _search(runs[:middle]), _search(runs[middle:])
    bound = runs[middle][0]
    if len(below) <= 255:
        return [(_JUMP_AT_LEAST, len(below), 0, bound), *below, *above]
    # WHY: a conditional jump reaches 255 instructions, an unconditional one anywhere.
    return [(_JUMP_AT_LEAST, 0, 1, bound), (_JUMP, 0, 0, len(below)), *below, *above]


def _answer(action: int) -> _Code:
    return [(_RETURN, 0, 0, action)]


def _argument(index: int) -> tuple[int, int, int, int]:
    # Both architectures are little-endian: the lower half comes first.
    return (_LOAD, 0, 0, 16 + 8 * index)


def _one_of(values: tuple[int, ...], then: _Code, otherwise: _Code) -> _Code:
    """Compare the loaded value: `then` if it is one of `values`, else `otherwise`."""
    compares = [
        (_JUMP_EQUAL, len(values) - 1 - position + len(otherwise), 0, value) for position, value in enumerate(values)
    ]
    return [*compares, *otherwise, *then]


def _refuse(number: int) -> _Code:
    return _answer(_ERRNO | number)


_ALLOWED = _answer(ALLOW)
_REFUSED = _refuse(errno.EPERM)
_TYPE = (_argument(1), (_AND, 0, 0, 0xFFFFFFFF ^ _SOCKET_FLAGS))
# As kernels answer: raw sockets need a right, the other types do not exist.
_NO_TYPE = _one_of((_RAW,), _REFUSED, _refuse(errno.ESOCKTNOSUPPORT))
_PLAIN_PROTOCOL = [_argument(2), *_one_of(_PROTOCOLS, _ALLOWED, _refuse(errno.EPROTONOSUPPORT))]
_SOCKET = [
    _argument(0),
    *_one_of(
        _FAMILIES[:1],
        [*_TYPE, *_one_of(_UNIX_TYPES, _ALLOWED, _NO_TYPE)],
        _one_of(
            _FAMILIES[1:],
            [*_TYPE, *_one_of(_INET_TYPES, _PLAIN_PROTOCOL, _NO_TYPE)],
            _refuse(errno.EAFNOSUPPORT),
        ),
    ),
]
_NOT_AGENT = [_argument(0), *_one_of((_AGENT,), _REFUSED, _ALLOWED)]
"""WHY: the agent has the uid of the programs it times, and a slow agent stretches their timeouts."""


def _one_process(kind: int) -> _Code:
    """Allow a call on one process that is not the agent. A group or a user would include it."""
    not_agent = [_argument(1), *_one_of((_AGENT,), _REFUSED, _ALLOWED)]
    return [_argument(0), *_one_of((kind,), not_agent, _REFUSED)]


def _socket_option() -> _Code:
    """Refuse options by level and name, with the answer of a kernel that does not have them."""
    code = _ALLOWED
    for level, names in _SOCKET_OPTIONS.items():
        is_refused = [_argument(2), *_one_of(names, _refuse(errno.ENOPROTOOPT), _ALLOWED)]
        code = _one_of((level,), is_refused, code)
    return [_argument(1), *code]


def _in_band(flags: int) -> _Code:
    """Refuse MSG_OOB in the flags, the argument of that index."""
    refused = _refuse(errno.EOPNOTSUPP)
    return [_argument(flags), (_JUMP_ANY_BIT, 0, len(refused), _OUT_OF_BAND), *refused, *_ALLOWED]


_RULES: dict[str, _Code] = {
    # WHY only the lower half: the kernel itself drops the upper half of clone's flags.
    "clone": [_argument(0), (_JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), *_REFUSED, *_ALLOWED],
    "socket": _SOCKET,
    "socketpair": _SOCKET,
    "setsockopt": _socket_option(),
    **dict.fromkeys(("sendto", "recvfrom", "sendmmsg", "recvmmsg"), _in_band(3)),
    **dict.fromkeys(("sendmsg", "recvmsg"), _in_band(2)),
    "ioctl": [_argument(1), *_one_of(_TERMINAL_TRICKS, _REFUSED, _ALLOWED)],
    "prlimit64": [_argument(0), *_one_of((0,), _ALLOWED, _REFUSED)],
    "mknod": [_argument(1), (_AND, 0, 0, stat.S_IFMT(0xFFFF)), *_one_of(_FILE_TYPES, _ALLOWED, _REFUSED)],
    "mknodat": [_argument(2), (_AND, 0, 0, stat.S_IFMT(0xFFFF)), *_one_of(_FILE_TYPES, _ALLOWED, _REFUSED)],
    "personality": [_argument(0), *_one_of(_PERSONALITIES, _ALLOWED, _REFUSED)],
    "sched_setscheduler": _NOT_AGENT,
    "sched_setparam": _NOT_AGENT,
    "sched_setattr": _NOT_AGENT,
    "sched_setaffinity": _NOT_AGENT,
    "setpriority": _one_process(_PRIO_PROCESS),
    "ioprio_set": _one_process(_IOPRIO_WHO_PROCESS),
}
