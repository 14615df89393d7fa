"""An image build in a process of its own: it outlives the command that needs it, and the next command finds it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from warren.cli.options import Choice, Target
from warren.cli.service.connection import is_served, prepare_image
from warren.domain.errors import BuildFailed, ConfigError, Error, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

_PROGRAM = ("-P", "-c", "import sys; from warren.cli.service.image_build import main; sys.exit(main(sys.argv[1]))")


def prepare_image_apart(target: Target, tell: Callable[[str], None]) -> None:
    """Do as `prepare_image`, and build in another process. Raises BuildFailed.

    It is not ended with us: a client that waited long enough leaves, and the work would begin anew with the next.
    """
    if target.is_remote:
        return
    settings = target.load_settings()
    if is_served(settings.data_dir):
        return
    from warren.bootstrap.app import build_catalog

    try:
        build_catalog(settings).get(settings.image)
    except NotFound:
        tell(f"the image {settings.image} is being built, once on this machine, which takes a minute or two")
        _build_apart(target.data_dir or "")


def _build_apart(data_dir: str) -> None:
    # A file, not a pipe of ours: when we are gone, the build must not fail for want of a reader.
    with tempfile.TemporaryFile() as said:
        command = [sys.executable, *_PROGRAM, data_dir]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        if child.wait() != 0:
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").splitlines()
            raise BuildFailed((lines or ["the image could not be built"])[-1].removeprefix("warren: "))


def main(data_dir: str) -> int:
    """Build the default image, unless it is built: the other process."""
    try:
        prepare_image(Target(data_dir=data_dir or None), Choice())
    except (Error, ConfigError) as error:
        print(f"warren: {error}", file=sys.stderr)
        return 1
    return 0
