"""What Onyx's clients look for in the health of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from warren.core.service import Service
    from warren.gateway.ops.metrics import Metrics
    from warren.settings import Settings

VERSION = "0.5.0"
"""Of the API that is served: clients use sessions only from 0.4.0 on. Our own is in `/healthz`."""


class OnyxReport:
    """The report of one service."""

    def __init__(self, service: Service, settings: Settings) -> None: ...

    def health(self) -> Mapping[str, Any]:
        """Return the version by which clients choose what they use."""
        return {"version": VERSION}

    def details(self, reasons: list[str]) -> Mapping[str, Any]:  # noqa: ARG002 - the seam's
        """Return nothing more."""
        return {}

    def collect(self, metrics: Metrics) -> Iterator[Metric]:  # noqa: ARG002 - the seam's
        """Yield no numbers."""
        return iter(())
