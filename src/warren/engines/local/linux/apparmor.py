"""AppArmor: the profile under which a keeper of an ordinary user may make user namespaces, and the way into it.

Ubuntu from 23.10 lets ordinary users make user namespaces and takes every capability from whatever is in one, unless
the program runs under a profile with `userns`. A profile finds its programs by their path, and a virtual environment's
Python is a link to the system's: a profile for that path would be one for every Python program. So ours is entered by
its name, by the keeper alone.
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
"""Since Linux 5.8 AppArmor has a folder of its own; before, the file is whichever module's is first."""


def is_needed() -> bool:
    """Whether this process could not make user namespaces that are of use to it without the profile."""
    if os.geteuid() == 0:
        return False
    host = describe()
    return host.userns_restricted and not host.confinement.startswith(f"{PROFILE} (")


def enter_on_exec() -> None:
    """Ask that the next exec of this thread enters the profile; where that is refused, nothing changes.

    Between fork and exec, so only system calls. Nothing is hidden by a refusal: without the profile the layer `user`
    is tried, found missing, and comes with its remedy.
    """
    for path in _ATTRIBUTES:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(file, _ENTER)
            finally:
                os.close(file)
            return
