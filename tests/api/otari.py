"""A client of the otari dialect, as short as tests want it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import httpx

    from api.served import Served


class Otari:
    """One session of a user."""

    def __init__(self, served: Served, who: str = "ann", **body: Any) -> None:
        self.http = connect(served, who)
        made = self.http.post("/sessions", json=body)
        assert made.status_code == 201, made.text
        self.id: str = made.json()["session_id"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.delete(f"/sessions/{self.id}")
        self.http.close()

    def use(self, tool: str, timeout: int = 30, **given: Any) -> dict[str, Any]:
        """Use a tool and return the whole answer."""
        body = {"tool": tool, "input": given, "timeout_seconds": timeout}
        answer = self.http.post(f"/sessions/{self.id}/exec", json=body)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def python(self, code: str, timeout: int = 30) -> dict[str, Any]:
        """Run Python and return the inner block."""
        content: dict[str, Any] = self.use("code_execution", timeout, code=code)["result_block"]["content"]
        return content

    def bash(self, command: str, timeout: int = 30) -> dict[str, Any]:
        """Run a command and return the inner block."""
        content: dict[str, Any] = self.use("bash_code_execution", timeout, command=command)["result_block"]["content"]
        return content

    def edit(self, command: str, path: str, **more: Any) -> dict[str, Any]:
        """Use the editor and return the inner block."""
        answer = self.use("text_editor_code_execution", command=command, path=path, **more)
        content: dict[str, Any] = answer["result_block"]["content"]
        return content

    def upload(self, content: bytes, name: str = "f.bin", **fields: str) -> httpx.Response:
        """Upload a file."""
        return self.http.post(f"/sessions/{self.id}/files", files={"file": (name, content)}, data=fields)

    def upload_path_last(self, content: bytes, path: str | None) -> httpx.Response:
        """Upload a file as some clients do: where it goes comes after it."""
        parts: list[tuple[str, tuple[str | None, bytes]]] = [("file", ("large.bin", content))]
        if path is not None:
            parts.append(("path", (None, path.encode())))
        return self.http.post(f"/sessions/{self.id}/files", files=parts)

    def download(self, path: str) -> httpx.Response:
        """Download a file."""
        return self.http.get(f"/sessions/{self.id}/files", params={"path": path})


def connect(served: Served, who: str = "ann") -> httpx.Client:
    """Return a client whose paths begin at the root."""
    client = served.client(who)
    client.base_url = served.url
    return client
