"""One trace from the client's request down to its execution in the kernel, received by a real OTLP receiver."""

from __future__ import annotations

import gzip
import itertools
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from e2e.serving import DEADLINE_S, create, read_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from e2e.serving import RunningService

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = ({"traceparent": f"00-{TRACE}-{PARENT}-{flag}"} for flag in ("01", "00"))
CANARY = "canary-5d1c"


class Receiver:
    """Takes OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_packed = self.headers.get("Content-Encoding") == "gzip"
                receiver.bodies.append(gzip.decompress(body) if is_packed else body)
                receiver.headers.append(dict(self.headers))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[Span]:
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def attributes(span: Span) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        assert kind is not None
        found[each.key] = getattr(each.value, kind)
    return found


@pytest.mark.parametrize("engine", ["bare", pytest.param("local", marks=pytest.mark.root)])
def test_one_trace_goes_from_the_client_to_the_kernel(
    serve: Callable[..., RunningService], receiver: Receiver, engine: str
) -> None:
    service = serve(engine, tracing_endpoint=receiver.endpoint, tracing_headers="x-token=abc").start()
    code = f"import os; print(os.environ['TRACEPARENT'], '{CANARY}'); x = '{CANARY}'"
    with service.client() as client:
        sandbox = create(client, metadata={"about": CANARY}, env={"SECRET": CANARY})
        answer = client.post(f"/sandboxes/{sandbox}/exec", json={"code": code}, headers=SAMPLED)
        said = answer.json()["stdout"].split()[0]
        client.get(f"/sandboxes/{CANARY}", headers=SAMPLED)
    service.stop()

    joined = [span for span in receiver.spans() if span.trace_id.hex() == TRACE]
    by_name = {span.name: span for span in joined}
    assert set(by_name) == {
        "POST /sandboxes/{sandbox_id}/exec",
        "execution",
        "link.run",
        "kernel",
        "GET /sandboxes/{sandbox_id}",
    }
    chain = [by_name[name] for name in ("POST /sandboxes/{sandbox_id}/exec", "execution", "link.run", "kernel")]
    assert [span.parent_span_id.hex() for span in chain] == [PARENT, *(span.span_id.hex() for span in chain[:-1])]
    assert said == f"00-{TRACE}-{chain[2].span_id.hex()}-01", "a program inside can join the trace"
    for outer, inner in itertools.pairwise(chain):
        assert outer.start_time_unix_nano <= inner.start_time_unix_nano
        assert inner.end_time_unix_nano <= outer.end_time_unix_nano
    request, execution, _, kernel = map(attributes, chain)
    assert request["http.response.status_code"] == 200
    assert request["warren.request_id"] == answer.headers["x-request-id"]
    assert execution["warren.sandbox_id"] == sandbox
    assert (kernel["warren.cause"], kernel["warren.exit_code"]) == ("exited", 0)
    assert receiver.headers[0]["x-token"] == "abc"
    line = next(line for line in service.log() if line.get("route") == "/sandboxes/{sandbox_id}/exec")
    assert line["trace_id"] == TRACE


def test_nothing_that_a_caller_wrote_is_in_a_trace(serve: Callable[..., RunningService], receiver: Receiver) -> None:
    service = serve("bare", tracing_endpoint=receiver.endpoint).start()
    with service.client() as client:
        sandbox = create(client, metadata={"about": CANARY}, env={"SECRET": CANARY}, session_key=CANARY)
        client.post(f"/sandboxes/{sandbox}/exec", json={"code": f"raise ValueError('{CANARY}')"})
        client.post(f"/sandboxes/{CANARY}/exec", json={"code": "1"})
        client.post("/sandboxes", json={"image": CANARY})
        client.put(f"/sandboxes/{sandbox}/files/{CANARY}.txt?x={CANARY}", content=CANARY)
        client.request(f"X{CANARY}".upper(), f"/{CANARY}", headers={"x-canary": CANARY})
    key = service.key
    service.stop()

    sent = b"".join(receiver.bodies)
    assert len(receiver.spans()) >= 10
    assert CANARY.encode() not in sent
    assert CANARY.upper().encode() not in sent
    assert key.encode() not in sent


def test_what_is_followed_or_runs_in_the_background_is_traced_too(
    serve: Callable[..., RunningService], receiver: Receiver
) -> None:
    service = serve("bare", tracing_endpoint=receiver.endpoint).start()
    with service.client() as client:
        sandbox = create(client)
        body = {"code": "print(1)", "background": True}
        started = client.post(f"/sandboxes/{sandbox}/exec", json=body, headers=SAMPLED).json()
        assert [name for name, _ in read_events(client, sandbox, started["execution_id"])][-1] == "result"
    service.stop()

    joined = {span.name: span for span in receiver.spans() if span.trace_id.hex() == TRACE}
    assert attributes(joined["execution"])["warren.execution_id"] == started["execution_id"]
    assert joined["kernel"].parent_span_id == joined["link.run"].span_id


def test_the_caller_and_the_operator_may_both_want_less(
    serve: Callable[..., RunningService], receiver: Receiver
) -> None:
    service = serve("bare", tracing_endpoint=receiver.endpoint).start()
    with service.client() as client:
        client.get("/sandboxes", headers=UNSAMPLED)
        client.get("/images")
    service.stop()
    assert [span.name for span in receiver.spans()] == ["GET /images"]

    receiver.bodies.clear()
    service.choose(tracing_sample_ratio="0")
    service.start()
    with service.client() as client:
        client.get("/sandboxes", headers=SAMPLED)
    service.stop()
    assert receiver.spans() == []


@pytest.mark.parametrize("is_there", [False, True])
def test_a_receiver_that_does_not_answer_delays_nothing(serve: Callable[..., RunningService], is_there: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if is_there else 9
        check_it_is_not_held_up(serve("bare", tracing_endpoint=f"http://127.0.0.1:{port}/v1/traces").start())


def check_it_is_not_held_up(service: RunningService) -> None:
    with service.client() as client:
        assert client.get("/sandboxes").status_code == 200

    assert service.stop() == 0, "and within its deadline"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"tracing_endpoint": "nowhere"},
            "tracing.endpoint must be an address such as http://127.0.0.1:4318/v1/traces",
        ),
        (
            {"tracing_endpoint": "http://127.0.0.1:9", "tracing_headers": CANARY},
            "tracing.headers must be name=value, with commas between them",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    serve: Callable[..., RunningService], settings: dict[str, str], sentence: str
) -> None:
    refused = serve("bare", **settings).run("serve", "--port", "0")

    assert (refused.returncode, refused.stderr) == (2, f"warren: {sentence}\n")


def test_without_the_extra_it_is_said_how_to_get_it(serve: Callable[..., RunningService]) -> None:
    service = serve("bare", tracing_endpoint="http://127.0.0.1:9/v1/traces")
    program = "import sys; sys.modules['opentelemetry'] = None; from warren.cli.main import main; main()"
    refused = subprocess.run(
        [sys.executable, "-c", program, "serve", "--port", "0"],
        env=service.env,
        cwd=os.sep,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert refused.returncode == 2
    assert ".whl[otel]'" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_without_tracing_nothing_of_it_is_imported() -> None:
    program = "import sys, warren.bootstrap.app, warren.gateway.app; print('opentelemetry' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert said.stdout == "False\n"
