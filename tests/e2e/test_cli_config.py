"""`warren config`, and a service that refuses to start with what is risky."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from e2e import forked
from e2e.serving import DEADLINE_S, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.serving import RunningService

SECRET = "correct-horse-battery-staple-0123456789"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of this machine can look into."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_each_setting_is_shown_with_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "warren.toml").write_text("[serve]\nport = 9000\n\n[tenants.acme]\nactive = 7\n")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    env = {"WARREN_POOL_SIZE": "4", "WARREN_JWT_SECRET_FILE": str(tmp_path / "secret")}

    shown = run(tmp_path, env, "config", "show", "--json")
    rows = {row["name"]: row for row in json.loads(shown)["settings"]}

    toml = "./warren.toml"
    assert rows["serve.port"] == {
        "name": "serve.port", "value": 9000, "source": "file", "where": toml, "line": 2
    }  # fmt: skip
    assert (rows["tenants.acme.active"]["value"], rows["tenants.acme.active"]["line"]) == (7, 5)
    assert rows["pool.size"] == {
        "name": "pool.size", "value": 4, "source": "environment", "where": "WARREN_POOL_SIZE"
    }  # fmt: skip
    assert rows["engine"] == {"name": "engine", "value": "local", "source": "default"}
    assert rows["jwt.secret"]["value"] == "********"
    assert rows["jwt.secret"]["secret_file"] == str(tmp_path / "secret")
    assert SECRET not in shown
    assert SECRET not in run(tmp_path, env, "config", "get", "jwt")
    assert run(tmp_path, env, "config", "get", "serve.port") == "9000\n"
    given = json.loads(run(tmp_path, env, "config", "show", "--given", "--json"))["settings"]
    assert {row["name"] for row in given} == {"serve.port", "tenants.acme.active", "pool.size", "jwt.secret"}


def test_on_a_terminal_the_settings_are_a_table(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        env = {"PATH": os.defpath, "HOME": str(tmp_path), "WARREN_JWT_SECRET": SECRET, "COLUMNS": "100"}
        program = subprocess.Popen([*PROGRAM, "config"], cwd=tmp_path, env=env, stdout=theirs)
        os.close(theirs)
        shown = b""
        try:
            while piece := terminal.read(65_536):
                shown += piece
        except OSError:
            pass  # a terminal ends like this when its last writer has gone
        assert program.wait(DEADLINE_S) == 0

    lines = shown.decode().splitlines()
    assert [line.split() for line in lines if "jwt.secret" in line] == [["jwt.secret", "********", "WARREN_JWT_SECRET"]]
    assert SECRET not in shown.decode()


def test_a_name_that_is_no_setting_is_one_sentence(tmp_path: Path) -> None:
    refused = call(tmp_path, {}, "config", "get", "serve.prt")

    assert refused.returncode == 2
    assert refused.stderr == "warren: serve.prt is not a setting: did you mean serve.port?\n"


def test_a_check_starts_and_makes_nothing(tmp_path: Path) -> None:
    env = {"WARREN_DATA_DIR": str(tmp_path / "data"), "WARREN_IMAGE": "python", "WARREN_ENV": "production"}

    refused = call(tmp_path, env, "config", "check", "--json")

    assert refused.returncode == 2
    answer = json.loads(refused.stdout)
    assert [reason.partition(":")[0] for reason in answer["reasons"]] == ["no_keys", "unbuilt_image"]
    assert os.listdir(tmp_path) == []
    assert json.loads(run(tmp_path, {**env, "WARREN_ENV": ""}, "config", "check", "--json"))["starts"] is True


def test_in_production_a_service_names_every_reason_not_to_start(serve: Callable[..., RunningService]) -> None:
    service = serve("bare", env="production", jwt_secret="x" * 40, debug="true", serve_docs="true")
    service.folder.chmod(0o777)

    refused = service.run("serve", "--port", "0", "--host", "0.0.0.0", "--no-auth")

    assert refused.returncode == 2
    assert refused.stdout == ""
    first, *reasons = refused.stderr.splitlines()
    assert first == "warren: the service does not start, for 6 reasons:"
    named = [reason.strip().partition(":")[0] for reason in reasons]
    assert named == ["no_auth", "docs", "debug", "bare_engine", "plain_http", "open_data_dir"]
    assert not (service.folder / "warren.db").exists()
    assert not (service.folder / "service.lock").exists()


def test_a_secret_that_everybody_can_read_is_refused_in_production(
    serve: Callable[..., RunningService], open_folder: Path
) -> None:
    held = open_folder / "secret"
    held.write_text(SECRET)
    service = serve("local", env="production", jwt_secret_file=held, jwt_issuer="x", jwt_audience="y")

    held.chmod(0o644)
    refused = service.run("serve", "--port", "0")
    held.chmod(0o600)
    allowed = service.run("config", "check", "--json")

    assert refused.returncode == 2
    assert refused.stderr == (
        f"warren: readable_secret: {held} holds a secret and every user of this machine can read it: "
        f"run `chmod 600 {held}`\n"
    )
    assert json.loads(allowed.stdout)["starts"] is True


@pytest.mark.root
def test_a_service_in_production_starts_with_a_key_made_before_and_prints_none(
    serve: Callable[..., RunningService],
) -> None:
    service = serve("local", env="production")
    refused = service.run("serve", "--port", "0")
    made = json.loads(service.run("keys", "create", "admin", "--scope", "admin", "--json").stdout)
    service.start()

    assert refused.returncode == 2
    assert refused.stderr.startswith("warren: no_keys: ")
    assert service.key == "", "none was printed"
    service.key = made["secret"]
    with service.client() as client:
        assert client.post("/run", json={"code": "print(6 * 7)"}).json()["stdout"] == "42\n"
    for path in ("/docs", "/docs/", "/docs/api", "/openapi.json"):
        answer = httpx.get(f"http://127.0.0.1:{service.port}{path}", timeout=DEADLINE_S, trust_env=False)
        assert answer.status_code == 404, path


def call(folder: Path, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.defpath, "HOME": str(folder), **env}
    return forked.run([*arguments], cwd=folder, env=env, text=True, timeout=DEADLINE_S)


def run(folder: Path, env: dict[str, str], *arguments: str) -> str:
    done = call(folder, env, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
