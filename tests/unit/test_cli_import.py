"""Configurations of other products become a warren.toml that means the same, and what cannot is listed."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from warren.cli.commands.config_import import import_file, render
from warren.cli.imports.originals import ORIGINALS
from warren.cli.main import main
from warren.domain.errors import InvalidRequest
from warren.settings import Settings
from warren.settings.root import names

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent / "originals"
EXPECTED: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "otari.env": (
        "otari",
        {
            "dialects.otari.idle_timeout_s": 600,
            "dialects.otari.max_lifetime_s": 3600,
            "dialects.otari.memory_bytes": 2 << 30,
            "dialects.otari.output_bytes": 512 << 10,
            "limits.open_files": 512,
        },
        {
            "SANDBOX_SESSIONS_ROOT",
            "SANDBOX_SESSION_GC_INTERVAL",
            "SANDBOX_RUNNER_CPU_SECONDS",
            "SANDBOX_RUNNER_FSIZE_MB",
            "SANDBOX_RUNNER_WALL_CLOCK_SECONDS",
        },
    ),
    "onyx-compose.yml": (
        "onyx",
        {
            "serve.host": "0.0.0.0",
            "serve.port": 8001,
            "dialects.onyx.max_timeout_ms": 30_000,
            "dialects.onyx.output_bytes": 1_000_000,
            "dialects.onyx.file_bytes": 50 << 20,
            "dialects.onyx.file_ttl_s": 7200,
            "dialects.onyx.memory_bytes": 256 << 20,
            "log.level": "info",
            "log.format": "text",
        },
        {"CPU_TIME_LIMIT_SEC", "FILE_STORAGE_DIR", "EXECUTOR_BACKEND", "PYTHON_EXECUTOR_DOCKER_IMAGE"},
    ),
    "onyx-values.yaml": (
        "onyx",
        {"dialects.onyx.max_timeout_ms": 45_000, "capacity.executions": 8, "log.format": "json"},
        {"EXECUTOR_BACKEND", "KUBERNETES_EXECUTOR_NAMESPACE"},
    ),
    "chatui.env": (
        "chatui",
        {
            "env": "production",
            "serve.port": 8010,
            "serve.auth": True,
            "serve.docs": False,
            "serve.cors_origins": ("https://chat.example.com", "https://beta.example.com"),
            "log.level": "warning",
            "jwt.algorithms": ("HS256",),
            "jwt.issuer": ("https://id.example.com",),
            "jwt.tenant_claim": "tenant_id",
            "jwt.tenant": "default",
            "jwt.default_scope": "run",
            "capacity.executions": 10,
            "jwt.max_age_s": 366 * 86_400,
            "dialects.chatui.executions_per_minute": 15,
            "dialects.chatui.executions_window_s": 30,
            "dialects.chatui.creates_per_minute": 10,
            "dialects.chatui.memory_bytes": 768 << 20,
            "limits.cpus": 1.5,
            "limits.pids": 128,
            "limits.tmp_bytes": 512 << 20,
            "limits.disk_bytes": 2 << 30,
            "dialects.chatui.allow_pip": True,
            "render.version": "v2",
            "render.timeout_s": 90,
            "render.wait_s": 0.75,
            "render.cpus": 2.0,
        },
        {
            "API_KEYS",
            "CORS_ALLOW_METHODS",
            "GATEWAY_DOCKER_HOST",
            "REDIS_URL",
            "REQUIRE_SHARED_STATE",
            "SANDBOX_IMAGE",
            "SANDBOX_UID",
            "SANDBOX_HOME_TMPFS_SIZE",
            "RENDER_SANDBOX_SHM_SIZE",
        },
    ),
    "onit.yaml": (
        "onit",
        {"serve.port": 18_205, "limits.memory_bytes": 512 << 20, "limits.cpus": 2.0, "limits.pids": 100},
        {"server.name", "server.transport", "docker.sandbox_image"},
    ),
    "onit.env": (
        "onit",
        {"limits.memory_bytes": 1 << 30, "limits.cpus": 1.0, "limits.pids": 100, "timeout_s": 60},
        {"SANDBOX_IMAGE", "FALLBACK_IMAGE", "SANDBOX_INSTALL_TIMEOUT"},
    ),
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command, and return how it left and what it said."""

    def run(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["config", "import", *argv])
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return run


@pytest.mark.parametrize("name", EXPECTED)
def test_a_configuration_becomes_settings_that_a_service_can_read(name: str, tmp_path: Path) -> None:
    original, wanted, left = EXPECTED[name]
    found = import_file(str(FOLDER / name))
    (tmp_path / "warren.toml").write_text(render(found, name))
    settings = Settings.load({}, str(tmp_path))
    values = dict(settings.values())

    assert found.original.name == original
    assert {setting: values[setting] for setting in wanted} == wanted
    assert set(found.left) == left
    assert all(settings.origin_of(setting).source == "file" for setting in found.values)


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda original: original.name)
def test_every_rule_leads_to_a_setting_or_says_why_not(original: Any) -> None:
    known = set(names())
    for name, rule in original.rules.items():
        assert (rule.setting in known) != bool(rule.why or rule.is_part), name
        assert set(rule.also) <= known, name


def test_it_prints_toml_and_says_beside_it_what_was_not_taken(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run(str(FOLDER / "chatui.env"))

    assert code == 0
    assert tomllib.loads(out)["dialects"]["chatui"]["max_timeout_s"] == 240
    assert "This is ChatUI's code execution gateway. 41 settings are above." in err
    assert "REDIS_URL " in err
    assert "replace-with-a-long" not in out + err


def test_a_file_is_written_for_its_owner_alone_and_never_over_another(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    target = tmp_path / "warren.toml"
    code, out, _ = run(str(FOLDER / "chatui.env"), "-o", str(target))
    assert (code, stat.S_IMODE(target.stat().st_mode)) == (0, 0o600)
    assert f"41 settings are in {target}" in out
    assert "0123456789abcdef" in target.read_text()
    assert "0123456789abcdef" not in out

    code, _, err = run(str(FOLDER / "otari.env"), "-o", str(target))
    assert code != 0
    assert "exists already" in err
    assert run(str(FOLDER / "otari.env"), "-o", str(target), "--force")[0] == 0
    assert "otari" in target.read_text()


def test_json_has_the_same_and_no_secret(run: Callable[..., tuple[int, str, str]]) -> None:
    found = json.loads(run(str(FOLDER / "chatui.env"), "--json")[1])

    assert found["original"] == "chatui"
    assert found["settings"]["serve.port"] == {"value": 8010, "from": "GATEWAY_PORT"}
    assert found["settings"]["jwt.secret"]["value"] == "********"
    assert "API_KEYS" in found["left"]


def test_what_cannot_be_told_apart_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("SANDBOX_CPU_QUOTA=50000\nSANDBOX_PIDS_LIMIT=64\n")
    with pytest.raises(InvalidRequest, match="add --from"):
        import_file(str(path))
    with pytest.raises(InvalidRequest, match="choose one of otari, onyx, chatui, onit"):
        import_file(str(path), "other")

    assert import_file(str(path), "onit").values["limits.cpus"] == (0.5, "SANDBOX_CPU_QUOTA")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("all", "auto"),
        ("none", "none"),
        ("0", "nvidia.com/gpu=0"),
        ("0,GPU-a", "nvidia.com/gpu=0,nvidia.com/gpu=GPU-a"),
    ],
)
def test_gpus_of_the_original_are_those_of_its_tools_here(tmp_path: Path, said: str, meant: str) -> None:
    path = tmp_path / ".env"
    path.write_text(f"SANDBOX_GPU_DEVICES={said}\n")

    assert import_file(str(path), "onit").values["mcp.gpus"] == (meant, "SANDBOX_GPU_DEVICES")
    assert Settings.load({"WARREN_MCP_GPUS": meant}, str(tmp_path)).mcp.gpus == meant


def test_values_that_mean_nothing_here_are_listed_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(
        "MAX_EXEC_TIMEOUT_MS=soon\nPORT=99999\nMAX_OUTPUT_BYTES=5000000000\nLOG_FORMAT=xml\n"
        "FILE_TTL_SEC=${TTL}\nMEMORY_LIMIT_MB=$MEMORY\nMEMORY=128\nSOMETHING_ELSE=1\nMAX_FILE_SIZE_MB=\n"
    )
    found = import_file(str(path), "onyx")

    assert set(found.left) == {
        "MAX_EXEC_TIMEOUT_MS",
        "PORT",
        "MAX_OUTPUT_BYTES",
        "LOG_FORMAT",
        "FILE_TTL_SEC",
        "MEMORY",
        "SOMETHING_ELSE",
    }
    assert "cannot have that value" in found.left["PORT"]
    assert found.values == {"dialects.onyx.memory_bytes": (128 << 20, "MEMORY_LIMIT_MB")}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (".env", b"NAME=1\nno name\n", "line 2: a name, = and a value"),
        (".env", b"NAME='1\n", "line 1: the quotes do not close"),
        (".env", b"\xff\xfe", "is not UTF-8"),
        ("a.yml", b"a: *anchor\n", "line 1: the alias"),
        (".env", b"#" * (1 << 20) + b"\n#", "is larger than"),
        (".env", b"", "does not show which product it belongs to"),
    ],
)
def test_what_cannot_be_read_is_said(name: str, content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidRequest, match=why):
        import_file(str(tmp_path / name))


def import_text(tmp_path: Path, text: str, name: str = ".env", original: str | None = "chatui") -> Any:
    (tmp_path / name).write_text(text)
    return import_file(str(tmp_path / name), original)


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ('["8080:8000"]', 8080),
        ("\n      - 127.0.0.1:8081:8000/tcp\n      - 9000:9000", 8081),
        ('\n      - "${GATEWAY_PORT:-8082}:8000"', 8082),
        ("\n      - target: 8000\n        published: 8083", 8083),
    ],
)
def test_a_port_that_a_compose_file_publishes_is_the_services(tmp_path: Path, ports: str, port: int) -> None:
    text = f"services:\n  gateway:\n    environment:\n      MAX_TIMEOUT: 60\n    ports: {ports}\n"
    found = import_text(tmp_path, text, "compose.yml", None if "[" not in ports else "chatui")

    assert found.values["serve.port"] == (port, "ports.8000")


def test_a_rate_of_an_hour_stays_one_of_an_hour(tmp_path: Path) -> None:
    text = "CONTAINER_RATE_LIMIT_REQUESTS_PER_WINDOW=10\nCONTAINER_RATE_LIMIT_WINDOW_SECONDS=3600\n"
    chosen = import_text(tmp_path, text).values

    assert chosen["dialects.chatui.creates_per_minute"][0] == 10
    assert chosen["dialects.chatui.creates_window_s"][0] == 3600


def test_a_stronger_isolation_than_here_is_warned_of(tmp_path: Path) -> None:
    left = import_text(tmp_path, "SANDBOX_RUNTIME=runsc\nREQUIRE_STRONG_SANDBOX_ISOLATION=true\n").left

    assert set(left) == {"SANDBOX_RUNTIME", "REQUIRE_STRONG_SANDBOX_ISOLATION"}
    assert all("isolates less than gVisor" in why for why in left.values())


def test_modes_of_the_original_are_modes_here(tmp_path: Path) -> None:
    chosen = import_text(tmp_path, "PUBLIC_BETA_MODE=true\nMETRICS_AUTH_REQUIRED=false\n").values

    assert {name: value for name, (value, _) in chosen.items()} == {
        "dialects.chatui.public_beta": True,
        "env": "production",
        "serve.open_metrics": True,
    }


@pytest.mark.parametrize(
    "name",
    [
        "ALLOWED_HOSTS",
        "RENDER_ALLOWED_HOSTS",
        "RENDER_SANDBOX_CPU_PERIOD",
        "RENDER_SANDBOX_HOME_TMPFS_SIZE",
        "LATEX_MAX_TEX_CHARS",
    ],
)
def test_a_setting_that_the_original_has_is_known(tmp_path: Path, name: str) -> None:
    assert "has no such setting" not in import_text(tmp_path, f"{name}=1000m\n").left.get(name, "")
