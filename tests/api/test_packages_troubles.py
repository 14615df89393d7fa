"""Packages with obstacles: connection limits, an index that lies, and one that does not answer."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from api.package_server import shelving
from api.package_yard import Yard
from api.served import Served, wait_for
from warren.domain.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.settings import Settings

pytestmark = pytest.mark.root
MANY = tuple(f"part{number}" for number in range(60))


@pytest.fixture(scope="module")
def yard(make_settings: Callable[..., Settings]) -> Iterator[Yard]:
    """One service, which lets a sandbox make few connections."""
    with shelving() as shelf:
        packages = {"python_index": shelf.url, "npm_registry": shelf.npm_url}
        served = Served(make_settings("local", packages=packages, egress={"per_minute": 240}))
        try:
            served.start()
        except EngineUnavailable as exc:
            pytest.skip(str(exc))
        yard = Yard(served, shelf)
        yield yard
        yard.http.close()
        served.stop()


def connections(yard: Yard, sandbox: str, count: int) -> list[dict[str, Any]]:
    """Return what is written down of a sandbox's connections, the newest first, once there are so many.

    Each is written down when it is over, which the program inside may know first.
    """

    def look() -> list[dict[str, Any]] | None:
        asked: dict[str, str | int] = {"action": "egress.connect", "sandbox_id": sandbox, "limit": 500}
        rows = adam.get("/audit", params=asked).json()["items"]
        return [{**row["details"], "outcome": row["outcome"]} for row in rows] if len(rows) >= count else None

    with yard.served.client("adam") as adam:
        return wait_for(look)


def test_packages_with_many_parts_are_installed_within_the_limits(yard: Yard) -> None:
    """uv takes more connections than a sandbox may make at once here: it is told when to come again."""
    commands = ["uv pip install -q whole"]
    if shutil.which("npm") is not None:
        commands.append("npm install --silent whole")
    for name in MANY:
        yard.shelf.put(name, "1.0", with_metadata=True)
        yard.shelf.put_npm(name, "1.0.0")
    yard.shelf.put("whole", "1.0", requires=MANY, with_metadata=True)
    yard.shelf.put_npm("whole", "1.0.0", requires=MANY)
    sandbox = yard.create()
    done = {command: yard.bash(sandbox, command) for command in commands}
    seen = yard.bash(sandbox, "python -c 'import part0, part59'; test ! -e package.json || ls node_modules | wc -l")

    assert {command: (each["exit_code"], each["hint"]) for command, each in done.items()} == dict.fromkeys(
        commands, (0, None)
    )
    assert seen["exit_code"] == 0, seen
    assert seen["stdout"] in {"", f"{len(MANY) + 1}\n"}
    # Of what npm did, what a person would look for: its packages are no files that anybody wrote.
    changed = {each["path"] for each in done[commands[-1]]["files_changed"]}
    assert changed <= {"package.json", "package-lock.json"}


def test_connections_to_the_index_count_as_any_do(yard: Yard) -> None:
    code = """
import http.client
told = set()
for _ in range(200):
    connection = http.client.HTTPConnection("127.0.0.1", 3128)
    connection.request("GET", "http://packages.warren.internal/npm/-/ping")
    answer = connection.getresponse()
    told.add((answer.status, answer.headers.get("retry-after"), answer.read().decode()))
    connection.close()
for each in sorted(told):
    print(*each, sep="|", end="")
raise SystemExit(1)
"""
    sandbox = yard.create()
    done = yard.bash(sandbox, f"python - <<'E'\n{code}E")

    sentence = "this sandbox makes more than 240 connections a minute: wait a moment (egress.per_minute)."
    assert done["stdout"] == f"200|None|{{}}429|1|{sentence}\n"
    assert done["hint"].startswith(f"A connection failed: {sentence} ")


def test_a_file_that_has_not_its_hash_breaks_off_and_is_written_down_as_that(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    path = yard.shelf.put("false-thing", "1.0", pad=1 << 20)
    honest = yard.shelf.files[path]
    yard.shelf.files[path] = honest[:-1] + b"!"
    sandbox = yard.create()
    url = yard.bash(
        sandbox,
        "curl -s -H 'Accept: application/vnd.pypi.simple.v1+json' http://packages.warren.internal/pypi/simple/false-thing/"
        """ | python -c 'import json, sys; print(json.load(sys.stdin)["files"][0]["url"])'""",
    )["stdout"].strip()
    caplog.clear()
    done = yard.bash(sandbox, f"curl -sS -o got {url}; code=$?; stat -c %s got; exit $code")
    rows = connections(yard, sandbox, 2)

    assert done["exit_code"] == 18, done
    assert int(done["stdout"]) < len(honest)
    why = "false_thing-1.0-py3-none-any.whl does not have the hash that its index names: it was not taken."
    assert done["hint"].startswith(f"A connection failed: {why} ")
    assert [row["outcome"] for row in rows] == ["mismatch", "ok"]
    [line] = [record for record in caplog.records if record.name.startswith("warren.core.egress.control")]
    assert (line.message, line.levelname, line.exc_info) == ("egress.response_failed", "WARNING", None)


def test_what_cannot_be_reached_is_said_in_one_sentence(yard: Yard) -> None:
    sandbox, free = yard.create(), yard.create("open")
    yard.shelf.down = True
    try:
        by_pip = yard.bash(sandbox, "pip install --retries 0 never-seen")
    finally:
        yard.shelf.down = False
    nowhere = yard.bash(free, "curl -sf http://nothing.invalid/")
    tunnel = yard.bash(free, "curl -s https://nothing.invalid/")
    shrugged = yard.bash(free, "curl -sf http://nothing.invalid/ || true")

    sentence = "A connection failed: the package index at 127.0.0.1 answers 503: try again later."
    assert by_pip["hint"].startswith(sentence)
    sentence = "A connection failed: nothing.invalid cannot be found: check its spelling."
    assert [each["hint"][: len(sentence)] for each in (nowhere, tunnel)] == [sentence] * 2
    assert (shrugged["exit_code"], shrugged["hint"]) == (0, None)
