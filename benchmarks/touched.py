"""What one warm execution touches: modules and functions of the service that run between request and answer.

`python -m benchmarks.touched [--list] [--data DIR]`: the real app over the bare engine, called in this process without
a socket. Counts from the request until its finish is on disk, so the writer behind the answer counts too; what runs
inside the sandbox does not. docs/explanation/one-execution.md states the numbers.
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


class Touched:
    """Counts the functions of `warren` that are called inside `with`, by module; in threads too that start later."""

    def __init__(self) -> None:
        self.functions: dict[str, set[str]] = {}
        self._is_counting = False
        sys.setprofile(self._note)
        threading.setprofile(self._note)

    def __enter__(self) -> None:
        self._is_counting = True

    def __exit__(self, *_error: object) -> None:
        self._is_counting = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._is_counting and event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            # By its line too: a module may have several lambdas.
            name = f"{frame.f_code.co_qualname}:{frame.f_code.co_firstlineno}"
            self.functions.setdefault(frame.f_code.co_filename.removeprefix(_PACKAGE), set()).add(name)


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
        with touched:
            await ask(app, key, path, {"code": "1+1"})
            await service.executions.flush()
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
    for module, functions in sorted(touched.functions.items()) if options.list else ():
        print(f"{len(functions):4} {module}: {', '.join(sorted(one.split(':')[0] for one in functions))}")
    print(f"{len(touched.functions)} modules, {sum(map(len, touched.functions.values()))} functions")


if __name__ == "__main__":
    main()
