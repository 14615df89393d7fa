"""What we compare with, in the same run: the image's own interpreter as a plain process, and under bubblewrap."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.domain.values import Image

IMPORTS = "import numpy, pandas, matplotlib.pyplot"


@dataclass(frozen=True, slots=True)
class Peers:
    """Starts the peers. They run on the host, with nothing in their way."""

    python: str

    @classmethod
    def of(cls, image: Image, folder: str) -> Peers:
        """Make, in `folder`, a virtual environment for the host of the interpreter and the packages of an image.

        The image's own names its interpreter as sandboxes see it; and the interpreter alone would see, and slowly, what
        else is installed with it on this host.
        """
        (library,) = glob.glob(os.path.join(image.path, "venv", "lib", "python3.*"))
        name = os.path.basename(library)
        place = os.path.join(folder, "peers")
        if not os.path.isdir(place):
            os.makedirs(os.path.join(place, "bin"))
            os.makedirs(os.path.join(place, "lib", name))
            os.symlink(os.path.join(library, "site-packages"), os.path.join(place, "lib", name, "site-packages"))
            os.symlink(os.path.join(image.interpreter_prefix, "bin", name), os.path.join(place, "bin", "python"))
            with open(os.path.join(place, "pyvenv.cfg"), "w", encoding="utf-8") as file:
                file.write(f"home = {image.interpreter_prefix}/bin\ninclude-system-site-packages = false\n")
        return cls(os.path.join(place, "bin", "python"))

    def bare(self) -> float:
        """Start Python and import nothing; milliseconds."""
        return self._clock([self.python, "-c", "pass"])

    def cold(self) -> float:
        """Start Python and import the data stack; milliseconds."""
        return self._clock([self.python, "-c", IMPORTS])

    def bubblewrap(self) -> float:
        """Start Python in namespaces made by bubblewrap and import nothing; milliseconds."""
        binds = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
        return self._clock(["bwrap", "--unshare-all", *binds, self.python, "-c", "pass"])

    def why_no_bubblewrap(self) -> str | None:
        """Say why bubblewrap cannot be measured here, or None when it can."""
        if shutil.which("bwrap") is None:
            return "bwrap is not installed (Debian: apt install bubblewrap)"
        try:
            self.bubblewrap()
        except subprocess.CalledProcessError as error:
            return f"bwrap does not work here: {error.stderr.decode(errors='replace').strip()}"
        return None

    def _clock(self, argv: Sequence[str]) -> float:
        # MPLBACKEND as the image sets it; otherwise pyplot would look for a window system, and be slower.
        env = {"PATH": os.defpath, "HOME": "/tmp", "MPLBACKEND": "agg"}
        began = time.perf_counter()
        subprocess.run(
            argv, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        return (time.perf_counter() - began) * 1000
