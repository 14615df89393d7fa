"""AppArmor: the profile in which a keeper of an ordinary user may make user namespaces, and how the keeper enters it.

Ubuntu from 23.10 lets ordinary users make user namespaces, but removes every capability inside, unless the program runs
under a profile with `userns`. AppArmor attaches profiles by program path, and a virtual environment's Python is a link
to the system's: a profile for that path would cover every Python program. So only the keeper enters this one, by name.
"""

from __future__ import annotations

import contextlib
import os

from warren.engines.local.linux.host import PROFILE, describe

PATH = f"/etc/apparmor.d/{PROFILE}"
TEXT = """\
# Lets Warren's keeper make user namespaces as an ordinary user. `warren doctor --fix` installs it.
#
# It is entered in two ways: by its name, when an unconfined process asks for it before an exec, as Warren does; and by
# path, for an interpreter that was copied to the place below (python3 -m venv --copies /opt/warren/.venv). A link to
# the system's Python does not match: the kernel compares the path of the program itself.

abi <abi/4.0>,
include <tunables/global>

profile warren /opt/warren/.venv/bin/python{,3,3.[0-9]*} flags=(unconfined) {
  userns,

  include if exists <local/warren>
}
"""
_ENTER = f"exec {PROFILE}".encode()
_ATTRIBUTES = ("/proc/self/attr/apparmor/exec", "/proc/self/attr/exec")
"""Since Linux 5.8 AppArmor has its own folder; before, the file belongs to the first security module."""


def is_needed() -> bool:
    """Whether this process needs the profile to make usable user namespaces."""
    if os.geteuid() == 0:
        return False
    host = describe()
    return host.userns_restricted and not host.confinement.startswith(f"{PROFILE} (")


def enter_on_exec() -> None:
    """Enter the profile at the next exec of this thread; where that is refused, nothing changes.

    Runs between fork and exec, so only system calls. A refusal is not hidden: without the profile the layer `user` is
    tried, found missing, and reported with its remedy.
    """
    for path in _ATTRIBUTES:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(file, _ENTER)
            finally:
                os.close(file)
            return
