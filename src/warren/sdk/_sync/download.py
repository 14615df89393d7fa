# Made from src/warren/sdk/_async/download.py by `make sdk`: change that instead.
"""Downloads that resume where a connection broke."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from warren.sdk.content import PIECE
from warren.sdk.failures import ServiceUnreachable
from warren.sdk.io_sync import in_thread, sleep

if TYPE_CHECKING:
    from typing import IO

    import httpx

    from warren.sdk._sync.connection import Connection
    from warren.sdk.content import Progress
    from warren.sdk.request import Request

_AGAIN_S = 0.2


class Download:
    """One download. Without a tag, as for an archive that is made while it is sent, it cannot resume."""

    def __init__(self, connection: Connection, request: Request, file: IO[bytes], progress: Progress | None) -> None:
        self._connection = connection
        self._request = request
        self._file = file
        self._progress = progress
        self._done = 0
        self._total: int | None = None
        self._tag: str | None = None

    def run(self) -> int:
        """Write all of it; return its size. Raises Error, OSError."""
        failures = 0
        while True:
            before = self._done
            try:
                with self._connection.open(self._rest()) as answer:
                    self._take(answer)
            except ServiceUnreachable:
                failures = 1 if self._done > before else failures + 1
                if self._tag is None or failures > self._connection.retries.most:
                    raise
                sleep(_AGAIN_S * failures)
            else:
                return self._done

    def _rest(self) -> Request:
        if not self._done or self._tag is None:
            return self._request
        headers = {**self._request.headers, "Range": f"bytes={self._done}-", "If-Range": self._tag}
        return dataclasses.replace(self._request, headers=headers)

    def _take(self, answer: httpx.Response) -> None:
        if self._done and answer.status_code != 206:
            self._tag = None
            raise ServiceUnreachable("the connection broke, and the file was changed meanwhile: download it again")
        if self._tag is None:
            length = answer.headers.get("content-length", "")
            self._total = int(length) if length.isdigit() else None
            self._tag = answer.headers.get("etag")
        for piece in answer.iter_bytes(PIECE):
            in_thread(self._file.write, piece)
            self._done += len(piece)
            if self._progress is not None:
                self._progress(self._done, self._total)
