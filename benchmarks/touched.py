"""What one warm execution touches: modules and functions of the service that run between request and answer.

`python -m benchmarks.touched [--list] [--data DIR]`: the real app over the bare engine, called in this process without
a socket. Counts from the request until its finish is on disk, so the writer behind the answer counts too; what runs
inside the sandbox does not. Of several calls it takes what each one touched, so that a loop that happens to wake up in
between does not count. docs/explanation/one-execution.md states the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import anyio

import warren
from warren.bootstrap.app import build_service
from warren.core.images.catalog import Catalog
from warren.gateway.app import build_app
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import FrameType

    from starlette.types import ASGIApp

_PACKAGE = os.path.dirname(warren.__file__) + os.sep
_WARM_UP = 5
_CALLS = 5


class Touched:
    """The functions of `warren` that are called inside every `with`, as module and name; in later threads too."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] | None = None
        self._now: set[tuple[str, str]] | None = None
        sys.setprofile(self._note)
        threading.setprofile(self._note)

    def __enter__(self) -> None:
        self._now = set()

    def __exit__(self, *_error: object) -> None:
        assert self._now is not None
        self.functions, self._now = self._now if self.functions is None else self.functions & self._now, None

    def close(self) -> None:
        """Stop looking."""
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self._now is None or event != "call" or not code.co_filename.startswith(_PACKAGE):
            return
        # Comprehensions are part of their function, as they are in later versions of Python.
        if code.co_name not in {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}:
            self._now.add((code.co_filename.removeprefix(_PACKAGE), code.co_qualname))


async def ask(app: ASGIApp, key: str, path: str, body: dict[str, Any]) -> Any:
    """POST to the app, which must succeed, and return the JSON of its answer."""
    content, status, answer = json.dumps(body).encode(), 0, b""
    headers = {b"host": b"localhost", b"authorization": f"Bearer {key}".encode(), b"content-type": b"application/json"}
    headers[b"content-length"] = str(len(content)).encode()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers.items()),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    given = False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:
            await anyio.sleep_forever()
        given = True
        return {"type": "http.request", "body": content}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, answer
        status = message.get("status", status)
        answer += message.get("body", b"")

    await app(scope, receive, send)
    if status >= 300:
        raise RuntimeError(f"{path} answered {status}: {answer[:400]!r}")
    return json.loads(answer)


async def measure(settings: Settings) -> Touched:
    """Run a warm `1+1` and return what it touched."""
    touched, service = Touched(), build_service(settings)
    async with service:
        _, key = await service.keys.create("bench", tenant="bench", subject="bench")
        app = build_app(service, settings)
        sandbox = (await ask(app, key, "/api/v1/sandboxes", {"storage": "ephemeral"}))["id"]
        path = f"/api/v1/sandboxes/{sandbox}/exec"
        for _ in range(_WARM_UP):
            await ask(app, key, path, {"code": "1+1"})
        await service.executions.flush()
        for _ in range(_CALLS):
            with touched:
                await ask(app, key, path, {"code": "1+1"})
                await service.executions.flush()
        touched.close()
        live = await service.sandboxes.transitions.find(sandbox)
        assert live is not None
        async with live.held():
            await service.sandboxes.transitions.destroy(live)
    return touched


def main() -> None:
    """Measure, and print the two numbers; with `--list` each module and function."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.touched", description=__doc__)
    parser.add_argument("--list", action="store_true", help="also print every module and function")
    parser.add_argument(
        "--data", metavar="DIR", default=Settings.load().data_dir, help="where images are built and kept"
    )
    options = parser.parse_args()
    image = Catalog(options.data).build("python")
    with tempfile.TemporaryDirectory(prefix="touched-") as folder:
        os.symlink(os.path.dirname(image.path), os.path.join(folder, "images"))
        chosen = {"data_dir": folder, "engine": "bare", "allow_bare": True, "image": image.name, "pool": {"size": 0}}
        touched = anyio.run(measure, Settings.model_validate(chosen))
    functions = touched.functions or set()
    modules = sorted({module for module, _ in functions})
    for module in modules if options.list else ():
        names = sorted(name for where, name in functions if where == module)
        print(f"{len(names):4} {module}: {', '.join(names)}")
    print(f"{len(modules)} modules, {len(functions)} functions")


if __name__ == "__main__":
    main()
