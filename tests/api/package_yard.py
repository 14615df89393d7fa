"""A service with a shelf of packages, and sandboxes that install from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from api.package_server import Shelf
    from api.served import Served


class Yard:
    """A service, the shelf it takes packages from, and sandboxes in it."""

    def __init__(self, served: Served, shelf: Shelf) -> None:
        self.served = served
        self.shelf = shelf
        self.http = served.client()

    def create(self, egress: str = "packages") -> str:
        """Make a sandbox."""
        made = self.http.post("/sandboxes", json={"egress": egress})
        assert made.status_code == 201, made.text
        found: str = made.json()["id"]
        return found

    def install(self, sandbox: str, *names: str, **body: Any) -> httpx.Response:
        """Ask for packages."""
        return self.http.post(f"/sandboxes/{sandbox}/packages", json={"packages": names, **body})

    def run(self, sandbox: str, **body: Any) -> dict[str, Any]:
        """Run something to its end."""
        answer = self.http.post(f"/sandboxes/{sandbox}/exec", json=body)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def python(self, sandbox: str, code: str, **body: Any) -> str:
        """Run a cell, and return what it printed."""
        done = self.run(sandbox, code=code, **body)
        assert done["exit_code"] == 0, done
        return str(done["stdout"])

    def bash(self, sandbox: str, code: str) -> dict[str, Any]:
        """Run a line of bash."""
        return self.run(sandbox, code=code, language="bash")
