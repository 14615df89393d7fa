# Made from src/warren/sdk/_async/connection.py by `make sdk`: change that instead.
"""Requests over HTTP: sent, retried where that is safe, and answered with a value or an error."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from warren.sdk.address import Address
from warren.sdk.environment import default_key, default_url
from warren.sdk.failures import NotUnderstood, ServiceUnreachable, build_error, explain, explain_moved
from warren.sdk.io_sync import HTTPTransport, send_pieces, sleep
from warren.sdk.values import build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.sdk.content import Progress
    from warren.sdk.request import Request
    from warren.sdk.retries import Retries

T = TypeVar("T")

_CONNECT_S = 10.0
_KEEP_S = 60.0
"""Less than the 75 seconds for which a service keeps an idle connection, so that it is not closed in use."""
_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), seconds)
        for name, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
"""A run may be silent for hours: only TCP keep-alive distinguishes a silent service from a dead one."""


class Connection:
    """Sends the requests of a client."""

    def __init__(
        self,
        url: str | None,
        api_key: str | None,
        *,
        timeout: float,
        retries: Retries,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = Address.parse(url or default_url())
        self.api_key = api_key or default_key()
        self.timeout = timeout
        self.retries = retries
        self._http = httpx.Client(
            base_url=self.address.url,
            headers=self.headers,
            trust_env=False,
            transport=transport or _build_transport(self.address),
        )

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        from warren import __version__

        # A compressing proxy would change the meaning of ranges and sizes of files.
        named = {"User-Agent": f"warren-python/{__version__}", "Accept-Encoding": "identity"}
        return named if self.api_key is None else {**named, "Authorization": f"Bearer {self.api_key}"}

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def ask(self, request: Request, *, progress: Progress | None = None) -> httpx.Response:
        """Return the whole answer. Raises Error."""
        return self._send(request, progress, is_whole=True)

    def ask_json(self, request: Request, *, progress: Progress | None = None) -> Any:
        """Return the answer's JSON. Raises Error."""
        answer = self.ask(request, progress=progress)
        try:
            return answer.json()
        except ValueError as error:
            raise NotUnderstood(f"what answers at {self.address} is no Warren service: see WARREN_URL") from error

    def ask_for(self, kind: type[T], request: Request, *, progress: Progress | None = None) -> T:
        """Return the answer as a value. Raises Error."""
        return build(kind, self.ask_json(request, progress=progress))

    def ask_all(self, kind: type[T], request: Request) -> tuple[T, ...]:
        """Return the items of the answer as values. Raises Error."""
        return tuple(build(kind, each) for each in (self.ask_json(request))["items"])

    @contextlib.contextmanager
    def open(self, request: Request) -> Iterator[httpx.Response]:
        """Open an answer whose body is streamed. Raises Error, also when the body breaks off."""
        answer = self._send(request, None, is_whole=False)
        try:
            yield answer
        except httpx.TransportError as error:
            raise explain(error, self.address) from error
        finally:
            answer.close()

    def _send(self, request: Request, progress: Progress | None, *, is_whole: bool) -> httpx.Response:
        tried = 0
        while True:
            tried += 1
            try:
                answer = self._send_once(request, progress, is_whole=is_whole)
            except httpx.TransportError as error:
                wait = self.retries.after_break(request, error, tried)
                if wait is None:
                    raise explain(error, self.address, was_sending=request.content is not None) from error
                sleep(wait)
                continue
            if answer.is_success or answer.status_code in request.accepts:
                return answer
            if answer.is_redirect:
                raise explain_moved(answer.headers.get("location", ""), self.address)
            if tried > 1 and request.method == "DELETE" and answer.status_code == 404:
                # An earlier try succeeded, and only its answer was lost.
                return answer
            status, has_key = answer.status_code, self.api_key is not None
            problem = build_error(status, answer.headers, answer.content, has_key=has_key)
            wait = self.retries.after_answer(request, problem, tried)
            if wait is None:
                raise problem
            sleep(wait)

    def check_socket(self) -> None:
        """Raise ConnectError where the socket file does not exist: libraries leak a socket of theirs then."""
        if self.address.socket is not None and not os.path.exists(self.address.socket):
            raise httpx.ConnectError("there is no such socket")

    def _send_once(self, request: Request, progress: Progress | None, *, is_whole: bool) -> httpx.Response:
        if self._http.is_closed:
            raise ServiceUnreachable("this client was closed: make another")
        self.check_socket()
        headers = dict(request.headers)
        if request.content is not None and request.content.size is not None:
            headers["Content-Length"] = str(request.content.size)
        limit = request.read_timeout_s
        built = self._http.build_request(
            request.method,
            request.path,
            params=[*request.params] or None,
            json=request.json,
            content=None if request.content is None else send_pieces(request.content, progress),
            headers=headers,
            timeout=httpx.Timeout(
                self.timeout,
                connect=min(self.timeout, _CONNECT_S),
                read=self.timeout if limit is not None and limit < 0 else limit,
            ),
        )
        answer = self._http.send(built, stream=True)
        if is_whole or not (answer.is_success or answer.status_code in request.accepts):
            try:
                answer.read()
            finally:
                answer.close()
        return answer


def _build_transport(address: Address) -> HTTPTransport:
    # WHY no verification without TLS: loading the certificates takes longer than a warm call.
    return HTTPTransport(
        verify=address.is_secure,
        uds=address.socket,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=_KEEP_S),
        socket_options=_ALIVE if address.socket is None else None,
    )
