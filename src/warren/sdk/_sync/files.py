# Made from src/warren/sdk/_async/files.py by `make sdk`: change that instead.
"""The files of a sandbox: whole, in parts and as folders, streamed both ways, resumed where a connection broke."""

from __future__ import annotations

import contextlib
import dataclasses
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from warren.domain.errors import NotFound
from warren.sdk import folders
from warren.sdk.address import encode_path
from warren.sdk.content import PIECE, Content, build_form
from warren.sdk.failures import ServiceUnreachable
from warren.sdk.io_sync import in_thread, sleep
from warren.sdk.request import api
from warren.sdk.values import build
from warren.sdk.values_files import Entry, FileInfo, Found, Listing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from typing import IO

    import httpx

    from warren.sdk._sync.connection import Connection
    from warren.sdk.content import Progress, Uploadable
    from warren.sdk.request import Request

COMPLETE = "warren-complete"
_AGAIN_S = 0.2


class Files:
    """The workspace of a sandbox. Paths are relative to it, or absolute below it.

    `progress` is called with the bytes that are done, and the bytes in all where that is known.
    """

    def __init__(self, connection: Connection, sandbox_id: str) -> None:
        self._connection = connection
        self._parts = ("sandboxes", sandbox_id)

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it. Raises NotFound, OutOfRange and other Errors."""
        headers = {}
        if start or length is not None:
            if length == 0:
                return b""
            headers["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        return (self._connection.ask(self._file("GET", path, headers=headers))).content

    def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        """Read a file as text. Raises NotFound and other Errors."""
        return (self.read(path)).decode(encoding)

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[Iterator[bytes]]:
        """Stream a file in pieces, in a `with` block. Raises NotFound and other Errors."""
        with self._connection.open(self._file("GET", path)) as answer:
            yield answer.iter_bytes(PIECE)

    def download(self, path: str, to: str | os.PathLike[str] | IO[bytes], *, progress: Progress | None = None) -> int:
        """Copy a file to one of this machine, or into an open one; returns its size. Raises Error, OSError.

        A file of this machine is replaced once all of it is here.
        """
        return self._save(self._file("GET", path), to, progress)

    def write(
        self,
        path: str,
        content: Uploadable,
        *,
        mode: str = "644",
        parents: bool = True,
        overwrite: bool = True,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Write a file, whole or not at all; returns its tag. Raises Error.

        `if_match` is the tag that the file must still have, and `overwrite=False` wants none there:
        PreconditionFailed says that it is not so.
        """
        headers = {} if if_match is None else {"If-Match": if_match}
        if not overwrite:
            headers["If-None-Match"] = "*"
        request = self._file(
            "PUT",
            path,
            params={"mode": mode, "parents": parents},
            headers={**headers, "Content-Type": "application/octet-stream"},
            content=in_thread(Content.of, content),
            # A retry after a lost answer would fail its own condition.
            repeatable=overwrite and if_match is None,
        )
        return str((self._connection.ask(request, progress=progress)).headers.get("etag", ""))

    def upload(
        self,
        local: str | os.PathLike[str],
        to: str | None = None,
        *,
        mode: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Copy a file of this machine, with its permissions; returns its path. Raises Error, OSError."""
        source = in_thread(folders.find_file, local, to, mode)
        self.write(source.target, source.path, mode=source.mode, progress=progress)
        return source.target

    def write_many(
        self,
        files: Mapping[str, Uploadable],
        *,
        path: str = ".",
        mode: str = "644",
        parents: bool = True,
        progress: Progress | None = None,
    ) -> tuple[Entry, ...]:
        """Write several files in one request, one by one: when one fails, those before it are there. Raises Error."""
        content, content_type = in_thread(build_form, files)
        params = {"path": path, "mode": mode, "parents": parents}
        headers = {"Content-Type": content_type}
        request = api("POST", *self._parts, "files", params=params, content=content, headers=headers, repeatable=True)
        return tuple(build(Entry, each) for each in self._connection.ask_json(request, progress=progress))

    def upload_folder(self, local: str | os.PathLike[str], to: str = ".", *, progress: Progress | None = None) -> int:
        """Copy what is in a folder of this machine into one of the sandbox; returns how much. Raises Error, OSError."""
        with in_thread(folders.pack, local) as packed:
            return self.unpack(packed, to, progress=progress)

    def download_folder(self, path: str, to: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
        """Copy what is in a folder into one of this machine; returns how much. Raises Error, OSError."""
        with folders.spool() as packed:
            self._save(self._archive("GET", path, "tar"), packed, progress)
            return in_thread(folders.unpack, packed, to)

    def archive(
        self,
        path: str = ".",
        to: str | os.PathLike[str] | IO[bytes] = "workspace.tar",
        *,
        format: str = "tar",  # noqa: A002 - the API's word
        progress: Progress | None = None,
    ) -> int:
        """Save a folder as an archive: `tar`, `tar.gz` or `zip`; returns its size. Raises Error, OSError."""
        return self._save(self._archive("GET", path, format), to, progress)

    def unpack(
        self,
        archive: Uploadable,
        path: str = ".",
        *,
        format: str = "tar",  # noqa: A002 - the API's word
        progress: Progress | None = None,
    ) -> int:
        """Unpack an archive into a folder, all of it or nothing; returns how many entries came out. Raises Error."""
        content = in_thread(Content.of, archive)
        request = self._archive("PUT", path, format, content=content)
        return int((self._connection.ask_json(request, progress=progress))["entries"])

    def stat(self, path: str) -> FileInfo:
        """Get a file's size, tag and time. Raises NotFound, Conflict for a folder, and other Errors."""
        headers = (self._connection.ask(self._file("HEAD", path))).headers
        changed = headers.get("last-modified")
        return FileInfo(
            path=path,
            size=int(headers.get("content-length", 0)),
            content_type=headers.get("content-type", ""),
            etag=headers.get("etag", ""),
            modified_at=None if changed is None else parsedate_to_datetime(changed),
        )

    def exists(self, path: str) -> bool:
        """Whether there is a file, folder or anything else of that name. Raises Error."""
        try:
            self._connection.ask(self._file("HEAD", path, accepts=(409,)))
        except NotFound:
            return False
        return True

    def list(self, path: str = ".", *, recursive: bool = False, hidden: bool = True, limit: int = 10_000) -> Listing:
        """List a folder, sorted by path. Raises NotFound and other Errors."""
        params = {"path": path, "recursive": recursive, "hidden": hidden, "limit": limit}
        answer = self._connection.ask(api("GET", *self._parts, "files", params=params))
        entries = tuple(build(Entry, each) for each in answer.json())
        return Listing(entries, answer.headers.get(COMPLETE) != "false")

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, or a folder with everything in it. Raises NotFound and other Errors."""
        self._connection.ask(self._file("DELETE", path, params={"recursive": recursive}))

    def mkdir(self, path: str, *, parents: bool = True) -> Entry:
        """Make a folder, and those above it; with `parents` it may be there already. Raises Error."""
        request = api("POST", *self._parts, "mkdir", json={"path": path, "parents": parents}, repeatable=parents)
        return self._connection.ask_for(Entry, request)

    def move(self, path: str, to: str, *, overwrite: bool = False, parents: bool = False) -> Entry:
        """Give a file or folder another name. Raises NotFound, Conflict and other Errors."""
        body = {"path": path, "to": to, "overwrite": overwrite, "parents": parents}
        return self._connection.ask_for(Entry, api("POST", *self._parts, "move", json=body))

    def search(
        self,
        path: str = ".",
        *,
        name: str | None = None,
        text: str | None = None,
        regex: str | None = None,
        limit: int = 1000,
    ) -> Found:
        """Find files by a glob of their `name`, lines by `text` or `regex`, or both. Raises Error."""
        asked = {"path": path, "name": name, "text": text, "regex": regex, "limit": limit}
        body = {word: value for word, value in asked.items() if value is not None}
        request = api("POST", *self._parts, "search", json=body, repeatable=True)
        return self._connection.ask_for(Found, request)

    def _save(self, request: Request, to: str | os.PathLike[str] | IO[bytes], progress: Progress | None) -> int:
        with folders.saving(to) as file:
            return _Download(self._connection, request, file, progress).run()

    def _file(self, method: str, path: str, **rest: object) -> Request:
        return api(method, *self._parts, "files", encode_path(path), **rest)

    def _archive(self, method: str, path: str, kind: str, content: Content | None = None) -> Request:
        return api(method, *self._parts, "archive", params={"path": path, "format": kind}, content=content)


class _Download:
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
