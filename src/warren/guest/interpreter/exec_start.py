"""Cold starts: a kernel or script that starts by exec instead of by fork, with nothing imported before."""

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
    "import sys; sys.path.insert(0, sys.argv[1]); from warren.guest.interpreter import {module}; "
    "{module}.start_after_exec()"
)


def find_reason(env: dict[str, str]) -> str | None:
    """Return why a fork of the warm imports would be wrong in this environment; None when it is right."""
    shadowed = search_path.find_shadowed(search_path.search_path(env))
    if shadowed is None:
        return None
    return f"the sandbox has its own {shadowed}, in place of the one that is imported already"


def restart(env: dict[str, str], module: str, *arguments: str, keep_fds: Iterable[int]) -> NoReturn:
    """Exec this process anew, with these descriptors, and call `start_after_exec` of that module beside this one."""
    for fd in keep_fds:
        os.set_inheritable(fd, True)
    argv = [sys.executable, "-P", "-c", _CODE.format(module=module), _ROOT, *arguments]
    os.execve(sys.executable, argv, env)  # noqa: S606  # our own interpreter, no shell


def take_arguments() -> list[str]:
    """Return the arguments of `restart` after the exec, and remove every trace of them that user code would see."""
    sys.path.remove(_ROOT)
    arguments, sys.argv = sys.argv[2:], [""]
    return arguments
