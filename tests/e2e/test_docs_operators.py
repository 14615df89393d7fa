"""The pages for operators, followed as they stand: production, backup and restore, upgrade; and their numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from e2e import forked
from e2e.serving import DEADLINE_S, create, run_code
from e2e.test_docs_run import ROOT, blocks
from warren.bootstrap.guardrails import GUARDRAILS
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.serving import RunningService

PAGES = (
    "backup-and-restore",
    "capacity-planning",
    "go-to-production",
    "reverse-proxy-with-tls",
    "systemd",
    "traces",
    "upgrade",
)


def read(name: str) -> str:
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def follow(service: RunningService, home: Path, *scripts: str, **env: str) -> str:
    """Run scripts one after the other in one shell, as an operator of this service."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(scripts)],
        env=service.env | {"PATH": forked.search_path(), "HOME": str(home)} | env,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_that_the_pages_show_are_settings(page: str, tmp_path: Path) -> None:
    for text in blocks(f"docs/howto/{page}.md", "toml"):
        (tmp_path / "warren.toml").write_text(text)
        Settings.load({}, str(tmp_path))


@pytest.mark.root
def test_the_way_to_production_leads_there(serve: Callable[..., RunningService], tmp_path: Path) -> None:
    service = serve("local")
    (toml,) = blocks("docs/howto/go-to-production.md", "toml")
    (tmp_path / "warren.toml").write_text(toml)

    said = follow(service, tmp_path, *blocks("docs/howto/go-to-production.md"))

    assert "A service would start with these settings" in said
    assert "serve.trusted_proxies" in said
    assert said.endswith("********\n")


def test_the_page_has_each_guardrail_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (yes|no) \|$", read("docs/howto/go-to-production.md"), re.MULTILINE)

    assert rows == [(rail.name, "yes" if rail.can_be_allowed else "no") for rail in GUARDRAILS]


@pytest.mark.root
def test_what_was_backed_up_can_be_restored(serve: Callable[..., RunningService], tmp_path: Path) -> None:
    service = serve("local").start()
    set_up, while_it_runs, everything, restore = blocks("docs/howto/backup-and-restore.md")
    paths = {"DATA": str(service.folder), "BACKUP": str(tmp_path / "backup")}
    with service.client() as client:
        kept = create(client, storage="persistent")
        run_code(client, kept, "x = 1; open('kept.txt', 'w').write('kept')")
        follow(service, tmp_path, set_up, while_it_runs, **paths)
        run_code(client, kept, "open('later.txt', 'w').write('later')")
    follow(service, tmp_path, set_up, everything, **paths)
    assert service.wait() == 0

    images = os.readlink(service.folder / "images")
    shutil.rmtree(service.folder)
    said = follow(service, tmp_path, set_up, restore, **paths)
    os.symlink(images, service.folder / "images")
    service.start()

    assert "The audit record is whole" in said
    noted = json.loads((tmp_path / "backup" / "head.json").read_text())["head"]
    assert service.run("audit", "verify", "--known", noted).returncode == 0
    with service.client() as client:
        assert client.get(f"/sandboxes/{kept}").json()["status"] == "stopped"
        assert run_code(client, kept, "print(open('kept.txt').read(), open('later.txt').read())")["stdout"] == (
            "kept later\n"
        )
    assert os.stat(tmp_path / "backup" / "warren.db").st_mode & 0o077 == 0
    service.check_books()


@pytest.mark.root
def test_from_the_records_alone_the_keys_and_the_audit_record_come_back(
    serve: Callable[..., RunningService], tmp_path: Path
) -> None:
    service = serve("local").start()
    set_up, while_it_runs, _, _ = blocks("docs/howto/backup-and-restore.md")
    with service.client() as client:
        lost = create(client, storage="persistent")
        follow(service, tmp_path, set_up, while_it_runs, DATA=str(service.folder), BACKUP=str(tmp_path / "backup"))
    service.stop()

    other = serve("local", folder=tmp_path / "other")
    for name in ("warren.db", "audit.key"):
        shutil.copy(tmp_path / "backup" / name, other.folder / name)
    other.start()
    other.key = service.key

    with other.client() as client:
        assert client.delete(f"/sandboxes/{lost}").status_code == 409
        assert client.delete(f"/sandboxes/{lost}", params={"forget": True}).status_code == 204
        actions = [row["action"] for row in client.get("/audit").json()["items"]]
    assert "sandbox.forget" in actions
    with service.start().client() as client:
        assert client.delete(f"/sandboxes/{lost}").status_code == 204
    assert other.run("audit", "verify").returncode == 0


@pytest.mark.root
def test_an_upgrade_loses_no_sandbox_and_no_variable(serve: Callable[..., RunningService], tmp_path: Path) -> None:
    service = serve("local").start()
    stop, start = blocks("docs/howto/upgrade.md")
    with service.client() as client:
        sandbox = create(client)
        run_code(client, sandbox, "x = 41")

    follow(service, tmp_path, stop)
    assert service.wait() == 0
    said = follow(service, tmp_path, start, "warren run -c 'print(1)' >/dev/null", WARREN_SERVE_PORT="0")
    service.port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", said)[-1])
    with service.client() as client:
        stdout = run_code(client, sandbox, "print(x + 1)")["stdout"]
    follow(service, tmp_path, "warren stop")

    assert stdout == "42\n"
    assert "wrn_" not in said
    before, after = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("before", "after"))
    assert [(row["id"], row["status"]) for row in before] == [(row["id"], row["status"]) for row in after]


def test_the_numbers_to_plan_with_are_those_that_were_measured() -> None:
    """Within a half: the same run comes out a third better or worse an hour later."""
    rows = {row["promise"]: row["measured"] for row in json.loads(read("benchmarks/results.json"))["rows"]}
    page = read("docs/howto/capacity-planning.md")
    shown = {
        "memory of the machine for one more idle sandbox": r"idle sandbox, as the machine sees it \| ([\d.]+) MB",
        "create and first result over HTTP, from the pool": r"from the pool \| ([\d.]+) ms",
        "create and first result over HTTP, pool empty": r"pool empty \| ([\d.]+) ms",
        "warm 1+1 over HTTP, checkpoints, 50 ms apart": r"warm kernel, over HTTP \| ([\d.]+) ms",
        "one-shot runs over HTTP": r"sustained \| ([\d.]+) a second",
        "write a 100 MB file through the agent": r"([\d.]+) MB/s in",
        "read a 100 MB file through the agent": r"([\d.]+) MB/s out",
    }

    for promise, pattern in shown.items():
        found = re.search(pattern, page)
        assert found is not None, pattern
        assert 2 / 3 < float(found[1]) / rows[promise] < 3 / 2, promise
