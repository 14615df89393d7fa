"""A client outlives the service: what it follows goes on when another process takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.sdk.breaking import BreakingProxy
from warren import Client, Output, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService

COUNT = "import time\nfor number in range(60):\n    print(number, flush=True)\n    time.sleep(0.05)\nnumber"


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_stream_goes_on_when_the_service_is_ended_and_started_again(
    serve: Callable[..., RunningService], end: str
) -> None:
    service = serve().start()
    first, seen = service.pid, list[str]()
    with BreakingProxy(service.port) as proxy, Client(proxy.url, service.key) as client:
        sandbox = client.sandboxes.create()
        for event in sandbox.stream(COUNT):
            if isinstance(event, Output):
                seen += event.text.split()
                if "3" in seen and service.pid == first:
                    if end == "stopped":
                        assert service.stop() == 0
                    else:
                        service.kill()
                    proxy.to = service.start().port
        sandbox.delete()

    assert isinstance(event, Result)
    assert (event.ok, event.value) == (True, "59")
    assert seen == [str(number) for number in range(60)]
