"""What pip, uv and npm in a sandbox are told: where packages come from, and that they go into the workspace."""

from __future__ import annotations

import sys

from warren.domain.egress import PACKAGES_HOST

FOLDER = "/workspace/.packages"
"""The sandbox's own environment, made when something is first installed: it stays with the workspace."""
OWN_PYTHON = "/opt/image/bin/own-python"
"""Runs the interpreter of the environment that a program installs into: see `guest/own_environment.py`."""
SITE = f"{FOLDER}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
"""Where modules are found. Images stand on the interpreter that runs Warren, so they have its version."""
_INDEX = f"http://{PACKAGES_HOST}"


def build_package_env() -> dict[str, str]:
    """Build the variables. They say nothing of the sandbox, so that pooled ones can have them before they are one."""
    return {
        "WARREN_PACKAGES": SITE,
        "PIP_INDEX_URL": f"{_INDEX}/pypi/simple/",
        "PIP_TRUSTED_HOST": PACKAGES_HOST,
        "PIP_PYTHON": OWN_PYTHON,
        # The service keeps what is downloaded, and modules are compiled when they are first imported.
        "PIP_NO_CACHE_DIR": "1",
        # Not PIP_NO_COMPILE, which set to 1 means to compile: pip reads it as the value of `compile`.
        "PIP_COMPILE": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_DEFAULT_INDEX": f"{_INDEX}/pypi/simple/",
        "UV_INSECURE_HOST": PACKAGES_HOST,
        "UV_PYTHON": OWN_PYTHON,
        "UV_PYTHON_DOWNLOADS": "never",
        # On the same file system, so that what is unpacked there is what is installed, and not copied.
        "UV_CACHE_DIR": f"{FOLDER}/cache/uv",
        "UV_LINK_MODE": "hardlink",
        "npm_config_registry": f"{_INDEX}/npm/",
        "npm_config_cache": f"{FOLDER}/cache/npm",
        "npm_config_prefix": f"{FOLDER}/npm",
        "npm_config_audit": "false",
        "npm_config_fund": "false",
        "npm_config_update_notifier": "false",
    }
