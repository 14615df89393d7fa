"""A client of ChatUI's gateway, as short as tests want it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Self

from api.served import Served
from warren.domain.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.settings import Settings

PLENTY = {"executions_per_minute": 0, "creates_per_minute": 0}
"""No rates: tests ask more often than people."""


def serve(make_settings: Callable[..., Settings], skip: Callable[[str], Any], **chosen: Any) -> Iterator[Served]:
    """Serve on the local engine, where /tmp is the sandbox's own."""
    # No package is anywhere, and no host outside is asked for one.
    packages = {"python_find_links": ("/nowhere",)}
    served = Served(make_settings("local", dialects={"chatui": {**PLENTY, **chosen}}, packages=packages))
    try:
        served.start()
    except EngineUnavailable as exc:
        skip(str(exc))
    yield served
    served.stop()
    assert served.left == []


class Chatui:
    """One container of a user."""

    def __init__(self, served: Served, who: str = "ann", **body: Any) -> None:
        self.http = connect(served, who)
        made = self.http.post("/containers", json=body)
        assert made.status_code == 200, made.text
        self.id: str = made.json()["container_id"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.delete(f"/containers/{self.id}")
        self.http.close()

    def post(self, code: str, **fields: Any) -> httpx.Response:
        """Run a program and return the whole answer."""
        return self.http.post("/execute", json={"container_id": self.id, "code": code, **fields})

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        """Run a program and return what it came to."""
        answer = self.post(code, **fields)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def bash(self, code: str, **fields: Any) -> dict[str, Any]:
        """Run bash and return what it came to."""
        return self.run(code, language="bash", **fields)

    def show(self) -> dict[str, Any]:
        """Return the container as the gateway shows it."""
        shown: dict[str, Any] = self.http.get(f"/containers/{self.id}").json()
        return shown


def connect(served: Served, who: str = "ann") -> httpx.Client:
    """Return a client at the root of a service."""
    client = served.client(who)
    client.base_url = served.url
    return client


def given(name: str, content: bytes) -> dict[str, str]:
    """Build an input file."""
    return {"name": name, "content": base64.b64encode(content).decode()}


def taken(answer: dict[str, Any]) -> dict[str, bytes]:
    """Return the output files that have a content."""
    return {each["name"]: base64.b64decode(each["content"]) for each in answer["files"] if each["content"] is not None}
