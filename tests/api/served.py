"""A real service on a real socket, in a thread, for one engine."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx
import uvicorn

from warren.bootstrap.app import build_engine, build_service
from warren.domain.records import Scope
from warren.domain.values import Handle
from warren.engines.local.engine import LocalEngine
from warren.gateway.app import build_app
from warren.gateway.server.protocol import Guard, build_protocol
from warren.gateway.server.websocket_protocol import MESSAGE_BYTES, build_websocket_protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.core.service import Service
    from warren.settings import Settings

T = TypeVar("T")

DEADLINE_S = 60.0


class Served:
    """A service that runs, keys for it, and clients with them."""

    def __init__(self, settings: Settings, build: Callable[[Settings], Service] = build_service) -> None:
        self.settings = settings
        self._build = build
        self.port = 0
        self.keys: dict[str, str] = {}
        self.left: list[str] = []
        """Sandboxes that were still there when the service had ended."""
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=self._run, name="service")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def client(self, who: str = "ann", **options: Any) -> httpx.Client:
        """Return a client: ann and bob run, rita reads, adam administers, anonymous has no key."""
        headers = {} if who == "anonymous" else {"Authorization": f"Bearer {self.keys[who]}"}
        return httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers=headers | options.pop("headers", {}),
            timeout=DEADLINE_S,
            trust_env=False,
            **options,
        )

    def send_raw(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own and return everything that comes back until it is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65_536):
                    received += piece
            return received

    def _run(self) -> None:
        try:
            anyio.run(self._serve, backend_options={"use_uvloop": True})
            anyio.run(self._clean)
        except BaseException as exc:  # noqa: BLE001 - it is raised again in the thread of the tests
            self._failure = exc
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        service = self._build(self.settings)
        async with service:
            await self._make_keys(service)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.port = listener.getsockname()[1]
                config = uvicorn.Config(
                    build_app(service, self.settings),
                    http=build_protocol(Guard()),
                    ws=build_websocket_protocol(Guard()),
                    ws_max_size=MESSAGE_BYTES,
                    ws_per_message_deflate=False,
                    log_config=None,
                    access_log=False,
                    lifespan="off",
                    proxy_headers=False,
                )
                self._server = server = uvicorn.Server(config)
                self._ready.set()
                await server.serve(sockets=[listener])

    async def _clean(self) -> None:
        """End what the engine keeps, and note the sandboxes that were left."""
        engine = build_engine(self.settings)
        await engine.open()
        self.left = [handle.sandbox_id async for handle in engine.handles()]
        for sandbox_id in self.left:
            await engine.destroy(Handle(engine.name, sandbox_id))
        await engine.close()
        if isinstance(engine, LocalEngine):
            await engine.retire()

    async def _make_keys(self, service: Service) -> None:
        grants = {"ann": Scope.RUN, "bob": Scope.RUN, "rita": Scope.READ, "adam": Scope.ADMIN}
        for name, scope in grants.items():
            _, self.keys[name] = await service.keys.create(name, tenant="tests", subject=name, scope=scope)


def wait_for(look: Callable[[], T | None]) -> T:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


class Event:
    """One server-sent event."""

    def __init__(self, name: str, data: Any, id: str | None) -> None:  # noqa: A002 - the field's name
        self.name = name
        self.data = data
        self.id = id

    def __repr__(self) -> str:
        return f"{self.id} {self.name}: {self.data}"


def read_events(response: httpx.Response) -> Iterator[Event]:
    """Yield the events of a stream, as a browser would read them."""
    name, data, number = "message", "", None
    for line in response.iter_lines():
        if line == "":
            if data:
                yield Event(name, json.loads(data), number)
            name, data, number = "message", "", None
            continue
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif field == "id":
            number = value
