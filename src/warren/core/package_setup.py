"""What the service needs to know of packages to begin with; everything else is made when somebody asks for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.core.package_sources import PackageSources

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.core.package_index import PackageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSetup:
    """Where packages come from, and where they are kept."""

    folder: str
    load: Callable[[], PackageSources] = PackageSources
    """Called in a thread, once."""
    timeout_s: float = 300.0
    """Of an installation, when the caller does not say."""

    def build_index(self) -> PackageIndex:
        """Build the index; it is not open yet."""
        from warren.core.package_index import PackageIndex

        return PackageIndex(self.load, self.folder)
