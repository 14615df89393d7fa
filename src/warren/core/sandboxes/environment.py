"""The environment that all sandboxes of an image share: where the egress proxy and the package index are.

It says nothing of one sandbox, so a pooled one has it before it has an owner.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from warren.domain.egress import PACKAGES_HOST, PROXY_PORT

if TYPE_CHECKING:
    from warren.domain.values import Image
    from warren.engines.base import Engine

WORKSPACE = "/workspace"
FOLDER = f"{WORKSPACE}/.packages"
"""The sandbox's own Python environment, made by the first install; it stays with the workspace."""
OWN_PYTHON = "/opt/image/bin/own-python"
"""Runs the interpreter of the environment that a program installs into: see `guest/own_environment.py`."""
SITE = f"{FOLDER}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
"""Where modules are found. Images stand on the interpreter that runs Warren, so they have its version."""
_LIBRARY = "/tmp/.warren/lib"
"""Outside the workspace, on Python's path: modules that the service writes, such as that of tool callbacks."""
_INDEX = f"http://{PACKAGES_HOST}"
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
# WHY `http` for all: httpx does not start where ALL_PROXY names SOCKS, unless a package more is installed.
_VARIABLES = {"HTTP_PROXY": _PROXY, "HTTPS_PROXY": _PROXY, "ALL_PROXY": _PROXY, "NO_PROXY": _LOCAL}


def build_common_env(engine: Engine, image: Image) -> dict[str, str]:
    """Build the shared environment; a variable that the image sets keeps the image's value."""
    if not engine.has_own_network:
        return {}
    return {name: value for name, value in _ENV.items() if name not in image.env}


def build_package_env() -> dict[str, str]:
    """Build the variables of pip, uv and npm: packages come from our index and go into the workspace."""
    return {
        "WARREN_PACKAGES": SITE,
        "PIP_INDEX_URL": f"{_INDEX}/pypi/simple/",
        "PIP_TRUSTED_HOST": PACKAGES_HOST,
        "PIP_PYTHON": OWN_PYTHON,
        # The service caches downloads, and modules are compiled when they are first imported.
        "PIP_NO_CACHE_DIR": "1",
        # Not PIP_NO_COMPILE, which set to 1 means to compile: pip reads it as the value of `compile`.
        "PIP_COMPILE": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_DEFAULT_INDEX": f"{_INDEX}/pypi/simple/",
        "UV_INSECURE_HOST": PACKAGES_HOST,
        "UV_PYTHON": OWN_PYTHON,
        "UV_PYTHON_DOWNLOADS": "never",
        # On the same file system, so that files are linked from the cache and not copied.
        "UV_CACHE_DIR": f"{FOLDER}/cache/uv",
        "UV_LINK_MODE": "hardlink",
        "npm_config_registry": f"{_INDEX}/npm/",
        "npm_config_cache": f"{FOLDER}/cache/npm",
        "npm_config_prefix": f"{FOLDER}/npm",
        "npm_config_audit": "false",
        "npm_config_fund": "false",
        "npm_config_update_notifier": "false",
    }


_ENV = {
    "SANDBOX_WORKSPACE": WORKSPACE,
    "PYTHONPATH": _LIBRARY,
    **_VARIABLES,
    # Programs disagree about the case.
    **{name.lower(): value for name, value in _VARIABLES.items()},
    # Without it, Node.js ignores the variables above.
    "NODE_USE_ENV_PROXY": "1",
    **build_package_env(),
}
