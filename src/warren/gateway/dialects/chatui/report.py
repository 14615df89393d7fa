"""ChatUI's fields of health and metrics, under the names that its operators know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from warren.core.telemetry.counters import OUTCOMES
from warren.gateway.dialects.chatui.containers import containers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import Counter, Histogram
    from prometheus_client.metrics_core import Metric

    from warren.core.service import Service
    from warren.core.slides.renders import Renders
    from warren.gateway.dialects.chatui.containers import Containers
    from warren.gateway.ops.metrics import Metrics
    from warren.settings import Settings

_LABELS = {"route": "path", "status": "status_code"}


class ChatuiReport:
    """The report of one service."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings

    def health(self) -> Mapping[str, Any]:
        """Return what its consumers read before they use it."""
        chosen = self._settings.dialects.chatui
        return {"features": {"pip_packages": chosen.allow_pip}, "execution_timeout_seconds": chosen.max_timeout_s}

    def details(self, reasons: list[str]) -> Mapping[str, Any]:
        """Return its details: what is Docker's there is the engine's here."""
        settings, service = self._settings, self._service
        chosen = settings.dialects.chatui
        is_reached = not any(reason.startswith("engine") for reason in reasons)
        return {
            "app_env": settings.env,
            "auth_mode": _name_auth(settings, service),
            "docker_connected": is_reached,
            "docker_daemon_id": None,
            "docker_daemon_name": f"warren {service.engine.name}",
            "sandbox_image_available": is_reached,
            "sandbox_image": chosen.image or settings.image,
            "sandbox_runtime": service.engine.name,
            "public_beta_mode": chosen.public_beta,
            "strong_sandbox_isolation_required": settings.env == "production",
            "state_backend": "sqlite",
            "state_backend_healthy": not any(reason.startswith("store") for reason in reasons),
            "cors_enabled": bool(settings.serve.cors_origins),
            "cors_origins_configured": len(settings.serve.cors_origins),
            "max_concurrent_executions": settings.capacity.executions,
            "max_concurrent_renders": settings.render.at_once,
            "active_rendering_version": settings.render.version,
            "render_timeout_seconds": settings.render.timeout_s,
            "latex_render_max_request_body_bytes": chosen.latex_body_bytes,
            "latex_render_timeout_seconds": chosen.latex_timeout_s,
            "default_timeout": chosen.timeout_s,
            "session_timeout_seconds": chosen.idle_timeout_s,
            "max_session_lifetime_seconds": chosen.max_lifetime_s,
            "max_executions_per_session": chosen.executions_per_container,
            "metrics": count(containers_of(service), service.renders),
        }

    def collect(self, metrics: Metrics) -> Iterator[Metric]:
        """Yield its numbers: of requests all that there were, of executions those of its own."""
        known, renders = containers_of(self._service), self._service.renders
        requests, seconds = metrics.requests()
        yield _rename(requests, "gateway_http_requests")
        yield _rename(seconds, "gateway_http_request_duration_seconds")
        yield _rename(_read(known.ended.ended), "gateway_executions")
        yield _rename(_read(known.ended.seconds), "gateway_execution_duration_seconds")
        yield GaugeMetricFamily("gateway_active_executions", "Programs that run.", known.active)
        yield _rename(_read(renders.ended.ended), "gateway_slide_renders")
        yield _rename(_read(renders.ended.seconds), "gateway_slide_render_duration_seconds")
        yield GaugeMetricFamily("gateway_active_slide_renders", "Decks that are rendered.", renders.active)


def count(known: Containers, renders: Renders) -> dict[str, int]:
    """Count executions and renders as `/metrics/json` has them."""
    counted: dict[str, int] = {}
    for what, each in (("executions", known), ("renders", renders)):
        ended = {outcome: each.ended.read(outcome) for outcome in OUTCOMES}
        counted[f"total_{what}"] = sum(ended.values())
        counted |= {f"{outcome}_{what}": number for outcome, number in ended.items()}
        counted[f"active_{what}"] = each.active
    return counted


def _name_auth(settings: Settings, service: Service) -> str:
    if not settings.serve.auth or settings.dialects.chatui.open:
        return "none"
    return "api_key" if service.tokens is None else "jwt+api_key"


def _rename(family: Metric, name: str) -> Metric:
    """Rename a metric and its labels."""
    kind = CounterMetricFamily if family.type == "counter" else HistogramMetricFamily
    renamed: Metric = kind(name, family.documentation)
    for sample in family.samples:
        if sample.name.endswith("_created"):
            continue
        labels = {_LABELS.get(label, label): value for label, value in sample.labels.items()}
        renamed.add_sample(name + sample.name.removeprefix(family.name), labels, sample.value)
    return renamed


def _read(metric: Counter | Histogram) -> Metric:
    return next(iter(metric.collect()))
