"""What programs in every sandbox are told of the way out: they are the same for all, so that pooled ones have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.core.sandboxes.package_environment import build_package_env
from warren.domain.egress import PROXY_PORT

if TYPE_CHECKING:
    from warren.domain.values import Image
    from warren.engines.base import Engine

_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
# WHY `http` for all: httpx does not start where ALL_PROXY names SOCKS, unless a package more is installed.
_VARIABLES = {"HTTP_PROXY": _PROXY, "HTTPS_PROXY": _PROXY, "ALL_PROXY": _PROXY, "NO_PROXY": _LOCAL}
_ENV = {
    **_VARIABLES,
    # Programs disagree about the case.
    **{name.lower(): value for name, value in _VARIABLES.items()},
    # Node.js looks at them when it is told to.
    "NODE_USE_ENV_PROXY": "1",
    **build_package_env(),
}


def build_common_env(engine: Engine, image: Image) -> dict[str, str]:
    """Build what all sandboxes of an image have in their environment: where the way out is, if it does not say."""
    if not engine.has_own_network:
        return {}
    return {name: value for name, value in _ENV.items() if name not in image.env}
