"""The pages of the service: its own, the API page, and the documentation site."""

from __future__ import annotations

import functools
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from api.served import DEADLINE_S, Served
from api.terminal_client import open_terminal
from warren import __version__
from warren.gateway.openapi.problems import explain_codes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

    from warren.settings import Settings

MISUNDERSTOOD = {400, 401, 403, 404, 405, 415, 422}
"""Statuses of requests that were never what they should have been."""
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def ask(served: Served, path: str, **headers: str) -> httpx.Response:
    with served.client("anonymous") as anonymous:
        return anonymous.get(f"{served.url}{path}", headers=headers)


def test_a_browser_at_the_root_gets_a_page_of_ours_and_a_program_the_json_of_its_dialect(bare: Served) -> None:
    page = ask(bare, "/", **BROWSER)
    programs = [ask(bare, "/", Accept=accept) for accept in ("*/*", "application/json")]

    assert page.headers["content-type"].startswith("text/html")
    assert "script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert __version__ in page.text
    for path in re.findall(r'href="(/[^"]*)"', page.text):
        assert ask(bare, path).status_code == 200, path
    assert {"/docs/", "/docs/api", "/healthz"} <= set(re.findall(r'href="(/[^"]*)"', page.text))
    assert "/api/v1/run" in page.text
    for answer in programs:
        assert answer.json()["message"] == "Code Execution Gateway"


def test_without_that_dialect_and_without_documentation_the_page_is_still_there(
    make_settings: Callable[..., Settings],
) -> None:
    served = Served(make_settings("bare", dialects={"chatui": {"enabled": False}}, serve={"docs": False}))
    served.start()
    try:
        page = ask(served, "/")
        with served.client("anonymous") as anonymous:
            head, posted = anonymous.head(f"{served.url}/"), anonymous.post(f"{served.url}/")
        hidden = [ask(served, path).status_code for path in ("/docs", "/docs/", "/docs/api", "/openapi.json")]
    finally:
        served.stop()

    assert page.headers["content-type"].startswith("text/html")
    assert "/docs" not in page.text
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(page.content)))
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
    assert hidden == [404] * 4


def test_the_addresses_of_before_lead_to_the_api_page(bare: Served) -> None:
    with bare.client("anonymous") as anonymous:
        lost = anonymous.get("/sandbox").json()["detail"]

    assert ask(bare, "/docs").headers["location"] == "/docs/api"
    assert ask(bare, "/docs/otari").headers["location"] == "/docs/api/otari"
    assert "/docs" in lost


def test_the_type_of_every_problem_leads_to_a_row_of_the_page(bare: Served) -> None:
    where = ask(bare, "/api/v1/sandboxes").json()["type"]
    page = ask(bare, "/docs/api").text

    assert where == "/docs#unauthenticated"
    for code in explain_codes():
        assert f'<tr id="{code}">' in page, code


def test_the_api_page_loads_scripts_and_styles_of_ours_alone(bare: Served) -> None:
    page = ask(bare, "/docs/api")
    loaded = re.findall(r'<(?:script src|link rel="stylesheet" href)="([^"]*)"', page.text)
    policy = page.headers["content-security-policy"]

    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy.split("; "))
    assert "unsafe" not in policy
    assert "<script>" not in page.text
    assert len(loaded) == 4
    for path in loaded:
        kind = "text/javascript" if path.endswith(".js") else "text/css"
        packed, plain = ask(bare, path), ask(bare, path, **{"Accept-Encoding": "identity"})
        again = ask(bare, path, **{"If-None-Match": packed.headers["etag"]})
        assert packed.headers["content-type"].startswith(kind)
        assert packed.content == plain.content
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.skipif(shutil.which("chromium-headless-shell") is None, reason="chromium-headless-shell is not installed")
def test_a_browser_shows_every_operation_under_that_policy(bare: Served, tmp_path: Path) -> None:
    document = ask(bare, "/openapi.json").json()
    options = ("--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", f"--user-data-dir={tmp_path}")
    done = subprocess.run(
        ["chromium-headless-shell", *options, "--dump-dom", f"{bare.url}/docs/api"],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )

    summaries = {each["summary"] for methods in document["paths"].values() for each in methods.values()}
    assert [each for each in summaries if each not in done.stdout] == []


def _turn(operation: tuple[str, str, Any]) -> int:
    """Say when an operation has its turn: a file is written first, what is deleted goes last, and then its sandbox."""
    method, path, _ = operation
    if method == "delete":
        return 3 if path.endswith("/{sandbox_id}") else 2
    return 0 if method == "put" else 1


def _build_content(operation: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """Build the body of a request from the example of the document."""
    content = operation.get("requestBody", {}).get("content", {})
    if "example" in content.get("application/json", {}):
        return {"json": content["application/json"]["example"]}
    if "multipart/form-data" in content:
        name = content["multipart/form-data"].get("example", {}).get("file", "file")
        return {"files": {"file": (name, files[name])}}
    if content and "application/json" not in content:
        return {"content": files["file"], "headers": {"Content-Type": next(iter(content))}}
    return {}


def test_every_example_of_the_document_works(served: Served) -> None:
    document = ask(served, "/openapi.json").json()
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/api/v1/")
    ]
    tags = [tag["name"] for tag in document["tags"]]
    operations.sort(key=lambda each: (_turn(each), tags.index(each[2]["tags"][0])))
    adam = served.client("adam")
    sandbox = adam.post("/sandboxes", json={"egress": "packages"}).json()["id"]
    adam.put(f"/sandboxes/{sandbox}/files/draft.txt", content=b"a draft")
    for _ in range(2):
        execution = adam.post(f"/sandboxes/{sandbox}/exec", json={"code": "x = 1"}).json()["execution_id"]
    text = {"name": "kept", "description": "One.", "skill_md_content": "# One"}
    skill = adam.post("/skills", json=text).json()["id"]
    granted = adam.post(f"/sandboxes/{sandbox}/egress/grants", json={"host": "example.org"}).json()["id"]
    render = adam.post("/renders", json={"html": "<p class=slide>x</p>", "background": True}).json()["id"]
    archive, package = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w"):
        pass
    with zipfile.ZipFile(package, "w") as writer:
        writer.writestr("SKILL.md", "---\nname: packed\ndescription: Two.\n---\n")
    files = {"file": archive.getvalue(), "skill.zip": package.getvalue()}
    ids = {"sandbox_id": sandbox, "execution_id": execution, "skill_id": skill, "render_id": render}
    examples = {
        '"image": "data"': '"image": "python"',
        "skl_0123456789abcdef01234567": skill,
        "grt_0123456789abcdef01234567": granted,
    }

    for method, path, operation in operations:
        if path.endswith("/terminals/{terminal}") and method == "delete":
            # What was there before ended when the sandbox was stopped.
            with open_terminal(served.port, sandbox, key=served.keys["adam"]):
                pass
        real = json.loads(
            functools.reduce(lambda text, each: text.replace(*each), examples.items(), json.dumps(operation))
        )
        for parameter in real["parameters"]:
            if parameter["in"] == "path":
                name = parameter["name"]
                path = path.replace(f"{{{name}}}", ids.get(name) or str(parameter.get("example", "")))  # noqa: PLW2901
        with adam.stream(method.upper(), f"{served.url}{path}", **_build_content(real, files)) as answer:
            is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
            said = b"" if is_stream else answer.read()

        assert answer.status_code not in MISUNDERSTOOD or b"image office is not built yet" in said, (method, path, said)
    for item in adam.get("/sandboxes", params={"session_key": "agent-session-abc"}).json()["items"]:
        adam.delete(f"/sandboxes/{item['id']}")
    for item in adam.get("/skills").json()["items"]:
        adam.delete(f"/skills/{item['id']}")
    adam.close()
