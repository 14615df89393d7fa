"""Kernels and scripts that start by exec instead of by fork: slower, with nothing imported before."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from warren.guest.packages import search_path

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
# Not -m: that would make this module, and not the user's, `__main__`. -P: nothing in the current folder is ours.
_CODE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from warren.guest.interpreter import exec_start; exec_start.main()"
)


def find_reason(env: dict[str, str]) -> str | None:
    """Say why a fork of the warm imports would be wrong in this environment; None when it is right."""
    shadowed = search_path.find_shadowed(search_path.search_path(env))
    if shadowed is None:
        return None
    return f"the sandbox has its own {shadowed}, in place of the one that is imported already"


def build_argv(what: str, *arguments: str) -> list[str]:
    """Build the command of a cold start: `kernel WHY`, its control socket as 3, or `script SOURCE MANNER ARGS`."""
    return [sys.executable, "-P", "-c", _CODE, _ROOT, what, *arguments]


def restart(env: dict[str, str], what: str, *arguments: str, keep_fds: Iterable[int]) -> NoReturn:
    """Become a cold start of `what`, in this process."""
    for fd in keep_fds:
        os.set_inheritable(fd, True)
    os.execve(sys.executable, build_argv(what, *arguments), env)  # noqa: S606  # our own interpreter, no shell


def main() -> NoReturn:
    """Serve after the exec; the command line is that of `build_argv`."""
    sys.path.pop(0)
    _, what, *arguments = sys.argv
    sys.argv = [""]
    if what == "script":
        from warren.guest.interpreter import script  # a script needs nothing of a kernel

        script.start_cold(int(arguments[0]), arguments[1], arguments[2:])
    from warren.guest.interpreter import kernel_main  # as above

    kernel_main.start_cold(arguments[0])
