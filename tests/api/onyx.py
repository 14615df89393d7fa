"""A client of Onyx's dialect, for tests."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from api.served import read_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import httpx

    from api.served import Event, Served


class Onyx:
    """A user of the code interpreter; what it stored is deleted in the end."""

    def __init__(self, served: Served, who: str = "ann") -> None:
        self.http = served.client(who)
        self.http.base_url = served.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for file in self.files():
            self.http.delete(f"/v1/files/{file['file_id']}")
        self.http.close()

    def execute(self, code: str, **fields: Any) -> dict[str, Any]:
        answer = self.http.post("/v1/execute", json={"code": code, "timeout_ms": 30_000, **fields})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def stream(self, code: str, **fields: Any) -> list[Event]:
        body = {"code": code, "timeout_ms": 30_000, **fields}
        with self.http.stream("POST", "/v1/execute/stream", json=body) as answer:
            assert answer.status_code == 200
            return list(read_events(answer))

    def upload(self, content: bytes, name: str = "a.txt") -> str:
        answer = self.http.post("/v1/files", files={"file": (name, content)})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["file_id"])

    def fetch(self, file_id: str) -> bytes:
        answer = self.http.get(f"/v1/files/{file_id}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def files(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/v1/files").json()["files"]
        return found

    @contextlib.contextmanager
    def session(self, **fields: Any) -> Iterator[Session]:
        made = self.http.post("/v1/sessions", json=fields)
        assert made.status_code == 201, made.text
        session = Session(self.http, made.json()["session_id"], made.json()["expires_at"])
        try:
            yield session
        finally:
            self.http.delete(session.path)


class Session:
    """A session, and what is done in it."""

    def __init__(self, http: httpx.Client, session_id: str, expires_at: float) -> None:
        self._http = http
        self.path = f"/v1/sessions/{session_id}"
        self.expires_at = expires_at

    def bash(self, cmd: str, **fields: Any) -> dict[str, Any]:
        return self._post("bash", {"cmd": cmd, **fields})

    def python(self, code: str, **fields: Any) -> dict[str, Any]:
        return self._post("python", {"code": code, "timeout_ms": 30_000, **fields})

    def _post(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._http.post(f"{self.path}/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def output(events: list[Event], stream: str = "stdout") -> str:
    """Join what a stream of events says of an output."""
    return "".join(event.data["data"] for event in events if event.name == "output" and event.data["stream"] == stream)


def sandboxes_of(served: Served, who: str = "ann") -> set[str]:
    """The sandboxes that a user has now; other tests may have left some."""
    with served.client(who) as client:
        return {each["id"] for each in client.get("/sandboxes", params={"limit": 200}).json()["items"]}
