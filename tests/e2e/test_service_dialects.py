"""The dialects of a service that was started as people start it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService


def test_what_the_service_says_of_itself_has_the_words_of_its_dialects(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    with service.client() as client:
        numbers = client.get(f"http://127.0.0.1:{service.port}/metrics").text
    health = service.probe("/health").json()

    assert 'gateway_executions_total{outcome="successful"} 0.0' in numbers
    assert "warren_info" in numbers
    assert (health["status"], health["version"]) == ("ok", "0.5.0")
    assert health["features"] == {"pip_packages": False}
