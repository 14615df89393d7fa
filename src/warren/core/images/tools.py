"""What Warren itself puts into every image: uv, and the way to the packages that a sandbox installs for itself."""

from __future__ import annotations

import os
import shutil

_OWN_PYTHON = """\
#!/opt/image/bin/python -IS
import sys
sys.path.insert(0, "/opt/warren")
from warren.guest import own_environment
own_environment.main()
"""
# One line, because only lines that begin with `import` are run. Before the image's own packages, and after the
# standard library, as in any environment that stands on another.
_PTH = (
    "import os, sys; own = os.environ.get('WARREN_PACKAGES'); own and own not in sys.path and "
    "sys.path.insert(next((at for at, path in enumerate(sys.path) if path.endswith('site-packages')), "
    "len(sys.path)), own)\n"
)


def add_tools(venv: str, python_name: str) -> None:
    """Add them to the environment of an image that is otherwise done; `python_name` is like `python3.11`."""
    import uv

    own = f"{venv}/bin/own-python"
    with open(own, "w", encoding="utf-8") as file:
        file.write(_OWN_PYTHON)
    os.chmod(own, 0o755)  # noqa: S103 - sandboxes run it as users of their own
    with open(f"{venv}/lib/{python_name}/site-packages/warren-own.pth", "w", encoding="utf-8") as file:
        file.write(_PTH)
    target = f"{venv}/bin/uv"
    if not os.path.lexists(target):
        shutil.copyfile(uv.find_uv_bin(), target)
        os.chmod(target, 0o755)  # noqa: S103 - as above
