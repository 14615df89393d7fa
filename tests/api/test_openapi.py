"""The OpenAPI document is true: it validates, it has everything, and schemathesis finds no fault in what it says."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

from api.served import Served
from warren.gateway.app import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from warren.settings import Settings

PROGRAM = os.path.join(sysconfig.get_path("scripts"), "schemathesis")

CONFIG = """
[checks]
# An engine that cannot do something says so: documented, and no failure of the service.
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501"]

[[operations]]
include-tag = ["Executions", "One-shot"]
# No schema can say which folders there are to run in.
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "429"]

[[operations]]
include-tag = "Files"
# No schema can say which paths, archives and conditions fit what is there.
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "400", "404", "409", "412", "414", "416", "429"]
checks.negative_data_rejection.expected-statuses = ["4xx"]

[[operations]]
include-tag = "Links"
# How long a link may last at most is the operator's to say.
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "403", "404", "429"]

[[operations]]
include-tag = "Egress"
# What a tenant may reach is the operator's to say, and which names a sandbox's variables have, its owner's.
checks.positive_data_acceptance.expected-statuses = ["2xx", "403", "404", "409", "429"]

[[operations]]
include-tag = "Packages"
# No schema can say which names are packages of which ecosystem.
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "403", "404", "409", "429", "501"]

[[operations]]
include-tag = "Slides"
# No schema can say which pages have slides, and that the names of their assets differ.
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "422", "429", "503"]

[[operations]]
include-tag = "Terminals"
# What opens a WebSocket is no request that this program can make.
checks.positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "426", "429"]
checks.negative_data_rejection.expected-statuses = ["4xx"]

[[operations]]
include-tag = "Skills"
# No schema can say which files are packages, and which texts say the name that is beside them.
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "429"]

[parameters]
# The images of this service are those of other tests too: none may be built, or removed.
"path.image" = "nothing"
"""

REAL = """
"path.sandbox_id" = "{sandbox}"
"path.execution_id" = "{execution}"
"path.kernel" = "main"
"""


@pytest.fixture(scope="module")
def small(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    """A service where few sandboxes are allowed: most creates are then refused, which is fast and documented."""
    # Without maxima: the description is of any machine, and those of this one refuse what it allows.
    maximum = dict.fromkeys(("memory_bytes", "cpus", "pids", "disk_bytes"), 0)
    quota = {"active": 4, "sandboxes": 6}
    served = Served(make_settings("bare", quota=quota, limits={"pids": 200}, maximum=maximum))
    served.start()
    yield served
    with served.client("adam") as adam:
        for item in adam.get("/sandboxes", params={"everybody": "true", "limit": 200}).json()["items"]:
            adam.delete(f"/sandboxes/{item['id']}")
    served.stop()


@pytest.fixture(scope="module")
def document(small: Served) -> dict[str, Any]:
    with small.client("anonymous", headers={}) as anonymous:
        loaded: dict[str, Any] = anonymous.get(f"{small.url}/openapi.json").json()
    return loaded


def check(served: Served, folder: Path, *options: str, config: str = CONFIG) -> None:
    (folder / "schemathesis.toml").write_text(config)
    done = subprocess.run(
        [
            *(PROGRAM, "run", f"{served.url}/openapi.json", "--checks", "all", "--seed", "1", "--no-color"),
            *("-H", f"Authorization: Bearer {served.keys['adam']}", "--request-timeout", "60"),
            *("--suppress-health-check", "all", "--warnings", "off"),
            # No description covers what a server inside a sandbox answers; on the bare engine it is one of this host.
            *("--exclude-tag", "Ports"),
            *options,
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
@pytest.mark.rest("Schemathesis tries every operation: a minute and a half of processor time")
def test_every_bound_and_its_other_side_is_answered_as_documented(small: Served, tmp_path: Path) -> None:
    """All operations but the two that make a sandbox each time: those are below, with fewer examples."""
    makers = ("--exclude-operation-id", "create_sandbox", "--exclude-operation-id", "run_once")

    check(small, tmp_path, "--phases", "coverage", *makers)


@pytest.mark.timeout(600)
@pytest.mark.rest("Schemathesis tries every operation: a minute and a half of processor time")
def test_nothing_is_found_in_a_real_sandbox(small: Served, tmp_path: Path) -> None:
    with small.client("adam") as adam:
        sandbox = adam.post("/sandboxes").json()["id"]
        execution = adam.post(f"/sandboxes/{sandbox}/exec", json={"code": "print(1)"}).json()["execution_id"]
    config = CONFIG + REAL.format(sandbox=sandbox, execution=execution)

    check(
        small,
        tmp_path,
        *("--phases", "examples,fuzzing", "-n", "8", "--exclude-operation-id", "delete_sandbox"),
        config=config,
    )


@pytest.mark.timeout(600)
@pytest.mark.rest("Schemathesis tries every operation: a minute and a half of processor time")
def test_nothing_is_found_along_the_life_of_a_sandbox(small: Served, tmp_path: Path) -> None:
    """Follows the ids in answers: what was made is used, and after its end it is gone."""
    check(small, tmp_path, "--phases", "stateful", "-n", "4")


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    # What takes all methods, and what is a WebSocket, is described as a GET at least.
    methods_of = {"*": "GET", "WEBSOCKET": "GET"}
    served = {
        (methods_of.get(each.method, each.method), "/api/v1" + each.path.replace("{path:path}", "{path}"))
        for each in OPERATIONS
    }
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]

    assert document["openapi"].startswith("3.1")
    assert served <= described
    assert len(names) == len(set(names))


def test_every_operation_says_what_it_needs_and_what_can_go_wrong(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            problems = {status for status in operation["responses"] if status >= "400"}
            assert problems, path
            for status in problems - ({"503"} if path.startswith(("/readyz", "/healthz", "/health/")) else set()):
                assert operation["responses"][status] == {"$ref": f"#/components/responses/Problem{status}"}, path
    for response in document["components"]["responses"].values():
        assert list(response["content"]) == ["application/problem+json"]
