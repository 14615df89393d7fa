"""The typical call of each dialect against the native API's own equivalent, interleaved in one run."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench, median
from benchmarks.served import served

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.served import Client

FACTOR = 1.5
SPACING_S = 0.05
TABLE = "a,b\n" + "".join(f"{number},{number * number}\n" for number in range(1000))
PANDAS = "import pandas as pd\ndata = pd.read_csv('in.csv')\ndata.describe().to_csv('out.csv')\nprint(len(data))"
PLOT = "import matplotlib.pyplot as plt\nplt.figure(figsize=(6, 4))\nplt.plot([1, 4, 9, 16])\n"


async def measure(bench: Bench) -> None:
    """Compare on a service with a pool, as clients of the originals would find it."""
    with served(bench.image, bench.folder, pool_size=4, quota_creates_per_minute=0) as service:
        client = service.client()
        _otari(bench, client)
        _onyx(bench, client)
        _chatui(bench, client)


def _otari(bench: Bench, client: Client) -> None:
    session = client.get("POST", "/sessions", {})["session_id"]
    sandbox = client.get("POST", "/api/v1/sandboxes", {"storage": "ephemeral"})["id"]
    asked = {"tool": "code_execution", "input": {"code": "print(1+1)"}}
    _compare(
        bench,
        "otari: exec of 1+1",
        lambda: client.get("POST", f"/sessions/{session}/exec", asked),
        lambda: client.run(sandbox, "print(1+1)"),
        times=60,
    )
    client.get("DELETE", f"/sessions/{session}")
    client.get("DELETE", f"/api/v1/sandboxes/{sandbox}")


def _onyx(bench: Bench, client: Client) -> None:
    boundary = "warren"
    form = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="in.csv"\r\n'
        f"Content-Type: text/csv\r\n\r\n{TABLE}\r\n--{boundary}--\r\n"
    )
    file_id = client.send_form("/v1/files", form.encode(), boundary)["file_id"]
    asked = {"code": PANDAS, "timeout_ms": 30_000, "files": [{"path": "in.csv", "file_id": file_id}]}
    ours = {"code": PANDAS, "language": "python", "fresh": True, "files": [{"path": "in.csv", "text": TABLE}]}
    _compare(
        bench,
        "Onyx: execute of a pandas script with a file",
        lambda: _check(client.get("POST", "/v1/execute", asked)),
        lambda: _check(client.get("POST", "/api/v1/run", ours)),
        times=40,
    )


def _chatui(bench: Bench, client: Client) -> None:
    container = client.get("POST", "/containers", {})["container_id"]
    sandbox = client.get("POST", "/api/v1/sandboxes", {"storage": "ephemeral"})["id"]
    asked = {"container_id": container, "code": f"{PLOT}plt.show()"}
    save = f"{PLOT}plt.savefig('figure.png', dpi=150, bbox_inches='tight')"

    def native() -> None:
        body = {"code": save, "language": "python", "fresh": True}
        client.get("POST", f"/api/v1/sandboxes/{sandbox}/exec", body)
        status, content = client.ask("GET", f"/api/v1/sandboxes/{sandbox}/files/figure.png")
        if status != 200 or not content.startswith(b"\x89PNG"):
            raise RuntimeError(f"no figure, but {status}")

    def dialect() -> None:
        answer = client.get("POST", "/execute", asked)
        if not base64.b64decode(answer["files"][0]["content"]).startswith(b"\x89PNG"):
            raise RuntimeError(f"no figure, but {answer}")

    _compare(bench, "ChatUI: execute with a plot", dialect, native, times=20)
    client.get("DELETE", f"/containers/{container}")
    client.get("DELETE", f"/api/v1/sandboxes/{sandbox}")


def _check(answer: Any) -> None:
    if answer["stdout"] != "1000\n":
        raise RuntimeError(f"a script answered {answer}")


def _compare(
    bench: Bench, what: str, dialect: Callable[[], object], native: Callable[[], object], *, times: int
) -> None:
    theirs: list[float] = []
    ours: list[float] = []
    for number in range(bench.times(times, 8) + 3):
        for work, took in ((dialect, theirs), (native, ours)):
            time.sleep(SPACING_S)
            began = time.perf_counter()
            work()
            # The first find nothing warm.
            if number >= 3:
                took.append((time.perf_counter() - began) * 1000)
    bench.note(f"yardstick: native equivalent of {what.partition(':')[0]}", median(ours), "ms")
    bench.at_most(what, median(theirs), FACTOR * median(ours), "ms")
