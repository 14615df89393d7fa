"""Egress against the same requests made directly, and what large transfers cost everybody else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench, median
from benchmarks.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.served import Client

SPACING_S = 0.05
_ASK = """
import http.client, json, statistics, time
def once(connection):
    began = time.perf_counter()
    connection.request("GET", "http://127.0.0.1:{port}/small")
    connection.getresponse().read()
    return (time.perf_counter() - began) * 1000
def fresh():
    connection = http.client.HTTPConnection("127.0.0.1", {via})
    try:
        return once(connection)
    finally:
        connection.close()
kept = http.client.HTTPConnection("127.0.0.1", {via})
times = {{"kept": [], "fresh": []}}
for turn in range({times}):
    time.sleep(0.01)
    times["kept"].append(once(kept))
    times["fresh"].append(fresh())
print(json.dumps({{name: statistics.median(each[5:]) for name, each in times.items()}}))
"""
_LOAD = """
import http.client, json, time
buffer = memoryview(bytearray(1 << 20))
def load(megabytes):
    connection = http.client.HTTPConnection("127.0.0.1", {via})
    connection.request("GET", "http://127.0.0.1:{port}/%d" % megabytes)
    answer = connection.getresponse()
    while answer.readinto(buffer):
        pass
    connection.close()
"""
_RATE = (
    _LOAD
    + """
load(20)
began = time.perf_counter()
load({size})
print(json.dumps({size} / (time.perf_counter() - began)))
"""
)
_TUNNEL = _LOAD.replace(
    'connection.request("GET", "http', 'connection.set_tunnel("127.0.0.1", {port})\n    connection.request("GET", "http'
) + _RATE.removeprefix(_LOAD)
_UPLOAD = """
import http.client, json, time
piece = bytes(1_000_000)
def load(megabytes):
    connection = http.client.HTTPConnection("127.0.0.1", {via})
    connection.putrequest("PUT", "http://127.0.0.1:{port}/%d" % megabytes)
    connection.putheader("Content-Length", str(megabytes * len(piece)))
    connection.endheaders()
    for _ in range(megabytes):
        connection.sock.sendall(piece)
    assert connection.getresponse().status == 200
    connection.close()
""" + _RATE.removeprefix(_LOAD)
_UPLOAD_TUNNEL = _UPLOAD.replace(
    'connection.putrequest("PUT", "http',
    'connection.set_tunnel("127.0.0.1", {port})\n    connection.putrequest("PUT", "http',
)
_FOREVER = (
    _LOAD
    + """
print("loading", flush=True)
while True:
    load(1000)
"""
)


async def measure(bench: Bench) -> None:
    """Ask and load directly and through egress, in turn."""
    with outside() as port, served(bench.image, bench.folder, pool_size=0, tenant_egress_hosts="127.0.0.1") as service:
        client = service.client()
        rules = {"mode": "rules", "rules": [{"host": "127.0.0.1", "ports": [port]}]}
        sandbox = client.get("POST", "/api/v1/sandboxes", {"egress": rules})["id"]
        _compare_requests(bench, client, sandbox, port)
        _compare_rates(bench, client, sandbox, port, what="download", ways=(_RATE, _TUNNEL))
        _compare_rates(bench, client, sandbox, port, what="upload", ways=(_UPLOAD, _UPLOAD_TUNNEL))
        _compare_others(bench, client, sandbox, port)


@contextlib.contextmanager
def outside() -> Iterator[int]:
    """Run the server for the length of a block; yields its port."""
    path = os.path.join(os.path.dirname(__file__), "egress_server.py")
    with subprocess.Popen([sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def _compare_requests(bench: Bench, client: Client, sandbox: str, port: int) -> None:
    times = bench.times(200, 40)
    direct = _run_here(_ASK.format(port=port, via=port, times=times))
    ours = _run_inside(client, sandbox, _ASK.format(port=port, via=3128, times=times))
    bench.note("yardstick: a small request, directly", direct["kept"], "ms")
    bench.at_most("egress adds to a request", ours["kept"] - direct["kept"], 5, "ms")
    bench.note("yardstick: the same on a new connection, directly", direct["fresh"], "ms")
    bench.at_most("egress adds to one on a new connection", ours["fresh"] - direct["fresh"], 5, "ms")


def _compare_rates(bench: Bench, client: Client, sandbox: str, port: int, *, what: str, ways: tuple[str, str]) -> None:
    """Compare how fast something large passes: directly, as plain HTTP and in a tunnel, by the programs in `ways`."""
    plain, tunnel = ways
    size, rates = bench.times(1000, 300), {"direct": [0.0], "http": [0.0], "tunnel": [0.0]}
    for _ in range(bench.times(3, 1)):
        rates["direct"].append(_run_here(plain.format(port=port, via=port, size=size)))
        rates["http"].append(_run_inside(client, sandbox, plain.format(port=port, via=3128, size=size)))
        rates["tunnel"].append(_run_inside(client, sandbox, tunnel.format(port=port, via=3128, size=size)))
    bench.note(f"yardstick: a large {what}, directly", median(rates["direct"][1:]), "MB/s")
    bench.at_least(f"a large {what} through egress", median(rates["http"][1:]), 150, "MB/s")
    bench.at_least(f"the same {what} through a tunnel (CONNECT)", median(rates["tunnel"][1:]), 150, "MB/s")


def _compare_others(bench: Bench, client: Client, sandbox: str, port: int) -> None:
    """Measure another sandbox's calls while nothing else happens, and while this one loads all the time."""
    other = client.get("POST", "/api/v1/sandboxes", {})["id"]
    times = bench.times(60, 20)
    quiet = _clock_calls(client, other, times)
    body = {"code": _FOREVER.format(port=port, via=3128), "language": "python", "background": True}
    loading = client.get("POST", f"/api/v1/sandboxes/{sandbox}/exec", body)["execution_id"]
    busy = _clock_calls(client, other, times)
    client.get("POST", f"/api/v1/sandboxes/{sandbox}/executions/{loading}/kill")
    bench.note("yardstick: another sandbox's 1+1 while no other loads", quiet, "ms")
    bench.at_most("the same while one sandbox loads all it can", busy, 3 * quiet, "ms")


def _clock_calls(client: Client, sandbox: str, times: int) -> float:
    for _ in range(10):
        client.run(sandbox, "1+1")
    took: list[float] = []
    for _ in range(times):
        time.sleep(SPACING_S)
        took.append(client.clock(lambda: client.run(sandbox, "1+1")))
    return median(took)


def _run_here(code: str) -> Any:
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def _run_inside(client: Client, sandbox: str, code: str) -> Any:
    return json.loads(client.run(sandbox, code)["stdout"])
