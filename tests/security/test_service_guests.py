"""The service against programs in its sandboxes: what they name, show and print goes through it to a client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from e2e.serving import create, run_code
from security.attacked import Attacked, attacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

NAMES = (
    b"a\r\nX-Evil: 1",
    b'quote".txt',
    b"\xff\xfe",
    "\u202e\U0001f600".encode(),
    "\u2028".encode(),
    b"x" * 255,
    b"%0d%0aX-Evil: 1",
    b"<script>.html",
    b'";filename=evil.sh',
    b"tab\tand\x7fdel",
    b"\\..\\back",
)


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """No wall of a sandbox is attacked here: the service behind it is."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[Attacked]:
    assert python_image is not None
    with attacked(tmp_path_factory.mktemp("guests"), images_dir) as target:
        yield target


@pytest.fixture(scope="module")
def ann(target: Attacked) -> Iterator[httpx.Client]:
    with target.client("ann") as client:
        yield client


@pytest.fixture(scope="module")
def sandbox(ann: httpx.Client) -> Iterator[str]:
    sandbox_id = create(ann)
    yield sandbox_id
    assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204


@pytest.fixture(scope="module")
def named(ann: httpx.Client, sandbox: str) -> None:
    """Files with hostile names."""
    code = f"import os\nos.mkdir('names')\nfor name in {NAMES!r}:\n    open(b'names/' + name, 'wb').write(b'<b>')"
    assert run_code(ann, sandbox, code)["error"] is None


def test_a_name_becomes_no_header_and_no_page(ann: httpx.Client, sandbox: str, named: None) -> None:
    assert named is None
    files = ann.get(f"/sandboxes/{sandbox}/files", params={"path": "names"}).json()
    assert len(files) == len(NAMES)
    for file in files:
        answer = ann.get(f"/sandboxes/{sandbox}/files/{file['encoded_path']}")
        assert answer.content == b"<b>", file
        assert "x-evil" not in answer.headers
        disposition = answer.headers["content-disposition"]
        assert disposition.startswith('attachment; filename="')
        assert disposition.isascii()
        assert disposition.isprintable()
        assert disposition.count('"') == 2
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert ann.delete(f"/sandboxes/{sandbox}/files/{file['encoded_path']}").status_code == 204


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "/workspace/%2e%2e/etc/passwd",
        "out",
        "environ",
        "around/around/out",
        "%00",
        "a%00b",
        "x" * 5000,
        "pipe",
    ],
)
def test_a_path_leads_to_nothing_of_the_host(ann: httpx.Client, sandbox: str, path: str) -> None:
    code = (
        "import os\n"
        "for name, to in (('out', '/etc/passwd'), ('environ', '/proc/self/environ'), ('around', '.')):\n"
        "    os.path.lexists(name) or os.symlink(to, name)\n"
        "os.path.lexists('pipe') or os.mkfifo('pipe')"
    )
    run_code(ann, sandbox, code)
    answer = ann.get(f"/sandboxes/{sandbox}/files/{path}")
    assert answer.status_code in {400, 404, 409, 414}, answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "code",
    [
        "display({'text/plain': '\\ud800', '\\ud800': 'y'}, raw=True)",
        "display({'text/plain': 'x'}, raw=True, metadata={'nan': float('nan'), 'big': 10**400, '\\ud800': {}})",
        (
            "nested = {}\ninner = nested\nfor _ in range(5000):\n    inner['a'] = inner = {}\n"
            "display({'text/plain': 'x'}, raw=True, metadata=nested)"
        ),
        "display({'text/plain': 'x' * 50_000_000}, raw=True)",
        "for number in range(2000):\n    display(number)",
        "class Odd(Exception):\n    pass\nOdd.__name__ = '\\ud800\\x00'\nraise Odd('\\ud800' * 100_000)",
        "raise ValueError('x' * 20_000_000)",
        "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 100_000)",
        "import sys\nfor _ in range(50):\n    sys.stdout.write('x' * 1_000_000)",
        "print('\\nevent: result\\ndata: {}\\n\\n')",
    ],
    ids=["surrogates", "numbers", "depth", "size", "many", "exception", "message", "bytes", "output", "event"],
)
def test_what_a_program_says_is_answered_whatever_it_is(
    target: Attacked, ann: httpx.Client, sandbox: str, code: str
) -> None:
    before = target.memory_mb()
    answer = ann.post(f"/sandboxes/{sandbox}/exec", json={"code": f"from IPython.display import display\n{code}"})
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < 16 << 20
    recorded = ann.get(f"/sandboxes/{sandbox}/executions/{answer.json()['execution_id']}")
    assert recorded.status_code == 200
    assert target.memory_mb() < before + 150
    assert ann.get("/audit", params={"limit": 5}).status_code == 200


def test_what_a_program_prints_is_no_event_of_its_own(ann: httpx.Client, sandbox: str) -> None:
    forged = "\n\nevent: result\ndata: {}\n\n"
    names = []
    with ann.stream(
        "POST", f"/sandboxes/{sandbox}/exec", json={"code": f"print({forged!r})", "stream": True}
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                names.append(line.removeprefix("event: "))
            elif line.startswith("data: "):
                json.loads(line.removeprefix("data: "))
    assert names.count("result") == 1
    assert names[-1] == "result"


def test_secrets_of_a_run_are_in_no_log_and_no_record(target: Attacked, ann: httpx.Client, sandbox: str) -> None:
    canary = "hunter2-canary"
    body = {"code": "import os; len(os.environ['TOKEN'])", "env": {"TOKEN": canary}, "stdin": canary}
    assert ann.post(f"/sandboxes/{sandbox}/exec", json=body).json()["error"] is None
    bad = ann.post(f"/sandboxes/{sandbox}/exec", json={"code": canary, "env": {canary: canary}, "what": canary})
    assert bad.status_code == 422
    assert canary not in ann.get(f"/sandboxes/{sandbox}/executions").text
    assert canary not in ann.get("/audit", params={"limit": 1000}).text
    assert canary not in target.service.log_path.read_text()
