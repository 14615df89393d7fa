"""The products whose configuration is read, name by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cli.imports.rules import (
    PART,
    Original,
    Rule,
    flag,
    gpu_devices,
    left,
    mebibytes,
    nothing,
    number,
    one_of,
    per_minute,
    processors,
    published,
    size,
    thousandths,
    to,
    whole,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEVEL = one_of(
    debug="debug", info="info", warning="warning", warn="warning", error="error", critical="error", fatal="error"
)
_ONE_PROCESS = "Warren is one process with a store of its own, and needs nothing beside it"
_NO_DOCKER = "sandboxes are made from the kernel of this host, without Docker or Kubernetes"
_NO_NETWORK = "no sandbox has a network device: what it reaches goes through the service"
_NETWORK = one_of(none="none", bridge="open", host="open")
_OWN_IMAGES = "images are built here: `warren image list` shows them, and docs/howto/images.md how to make one"
_TIMES = "it is done when it is due, and not every so often"
_FIXED = "it is fixed here"
_CPU_TIME = "a sandbox is not used up: each execution has a timeout, and `limits.cpus` says how fast it is"

_WEAKER = "sandboxes share this host's kernel, which isolates less than gVisor or a virtual machine: see SECURITY.md"
_YEAR_S = 366 * 86_400
_PORTS = {"ports.8000": to("serve.port", published)}
"""What a compose file publishes of the container's port."""


def _window(setting: str) -> Rule:
    return Rule(setting=setting, convert=whole, fine=frozenset({"60"}))


_OTARI: Mapping[str, Rule] = {
    "ports.8080": to("serve.port", published),
    "SANDBOX_SESSION_IDLE_TIMEOUT": to("dialects.otari.idle_timeout_s", whole),
    "SANDBOX_SESSION_MAX_LIFETIME": to("dialects.otari.max_lifetime_s", whole),
    "SANDBOX_RUNNER_MEMORY_MB": to("dialects.otari.memory_bytes", mebibytes),
    "SANDBOX_RUNNER_MAX_OUTPUT_BYTES": to("dialects.otari.output_bytes", whole),
    "SANDBOX_RUNNER_NOFILE": to("limits.open_files", whole),
    "SANDBOX_RUNNER_FSIZE_MB": nothing("a file may be as large as the workspace, which `limits.disk_bytes` bounds"),
    "SANDBOX_RUNNER_CPU_SECONDS": nothing(_CPU_TIME),
    "SANDBOX_RUNNER_WALL_CLOCK_SECONDS": nothing("the original does not use it either"),
    "SANDBOX_SESSION_GC_INTERVAL": nothing(_TIMES),
    "SANDBOX_SESSIONS_ROOT": nothing("all that Warren keeps is in `data_dir`; sessions do not move over"),
    "TELEMETRY_ENABLED": nothing("traces are sent where `tracing.endpoint` says", "false", "0"),
}

_ONYX: Mapping[str, Rule] = {
    **_PORTS,
    "HOST": to("serve.host"),
    "PORT": to("serve.port", whole),
    "MAX_EXEC_TIMEOUT_MS": to("dialects.onyx.max_timeout_ms", whole),
    "MAX_OUTPUT_BYTES": to("dialects.onyx.output_bytes", whole),
    "MAX_FILE_SIZE_MB": to("dialects.onyx.file_bytes", mebibytes),
    "FILE_TTL_SEC": to("dialects.onyx.file_ttl_s", number),
    "MEMORY_LIMIT_MB": to("dialects.onyx.memory_bytes", mebibytes),
    "MAX_CONCURRENT_EXECUTIONS": to("capacity.executions", whole),
    "LOG_LEVEL": to("log.level", _LEVEL),
    "LOG_FORMAT": to("log.format", one_of(plain="text", text="text", json="json")),
    "CPU_TIME_LIMIT_SEC": nothing(_CPU_TIME),
    "FILE_STORAGE_DIR": nothing("files are in `data_dir`; `quota.file_bytes` and `capacity.file_bytes` bound them"),
    "EXECUTOR_BACKEND": nothing(_NO_DOCKER),
    "PYTHON_EXECUTOR_DOCKER_IMAGE": nothing(_OWN_IMAGES),
    "PYTHON_EXECUTOR_DOCKER_NETWORK": to("dialects.onyx.network", _NETWORK),
    **left(_NO_DOCKER, "PYTHON_EXECUTOR_DOCKER_BIN", "PYTHON_EXECUTOR_DOCKER_RUN_ARGS"),
    "KUBERNETES_EXECUTOR_IMAGE": nothing(_OWN_IMAGES),
    **left(_NO_DOCKER, "KUBERNETES_EXECUTOR_NAMESPACE", "KUBERNETES_EXECUTOR_SERVICE_ACCOUNT"),
    "KUBERNETES_EXECUTOR_NET_ADMIN_LOCKDOWN": nothing(_NO_NETWORK),
}

_ONIT: Mapping[str, Rule] = {
    "SANDBOX_MEMORY_LIMIT": to("limits.memory_bytes", size),
    "SANDBOX_CPU_QUOTA": to("limits.cpus", processors("SANDBOX_CPU_PERIOD")),
    "SANDBOX_PIDS_LIMIT": to("limits.pids", whole),
    "SANDBOX_DEFAULT_TIMEOUT": to("timeout_s", number),
    "SANDBOX_REAPER_IDLE_TIMEOUT": to("mcp.idle_timeout_s", whole),
    **left(_OWN_IMAGES, "SANDBOX_IMAGE", "FALLBACK_IMAGE"),
    "SANDBOX_INSTALL_TIMEOUT": nothing("installing has 300 seconds, as it had"),
    "SANDBOX_MAX_TIMEOUT": nothing("`mcp.max_timeout_s` is at most a day; what takes longer runs in the background"),
    "SANDBOX_REAPER_INTERVAL": nothing(_TIMES),
    "SANDBOX_SHM_SIZE": nothing("shared memory counts as memory, which `limits.memory_bytes` bounds"),
    "SANDBOX_GPU_DEVICES": to("mcp.gpus", gpu_devices),
    "SANDBOX_DATA_MOUNTS": nothing("no folder of this host is seen inside: files are uploaded"),
    "SANDBOX_MAX_OUTPUT_BYTES": to("mcp.output_chars", whole),
    "SANDBOX_PIP_CACHE_PATH": nothing("the service keeps a cache of packages by itself"),
    "docker.memory_limit": to("limits.memory_bytes", size),
    "docker.cpu_quota": to("limits.cpus", processors()),
    "docker.pids_limit": to("limits.pids", whole),
    "docker.sandbox_image": nothing(_OWN_IMAGES),
    "docker.network_disabled_default": to("egress.default", one_of(true="none", false="open")),
    "server.host": to("serve.host"),
    "server.port": to("serve.port", whole),
    "server.name": nothing(_FIXED),
    "server.transport": nothing("every transport is served, and `warren mcp` is the one over standard input"),
}

_ENV = one_of(
    **dict.fromkeys(("development", "dev", "local", "test"), "development"),
    **dict.fromkeys(("staging", "production", "prod", "public_beta", "beta"), "production"),
)


def _origins(text: str, everything: Mapping[str, str]) -> list[str]:
    is_on = everything.get("ENABLE_CORS", "true").strip().lower() not in {"0", "false", "no", "off"}
    return words(text, everything) if is_on else []


_CHATUI: Mapping[str, Rule] = {
    "APP_ENV": to("env", _ENV),
    "PUBLIC_BETA_MODE": Rule(
        setting="dialects.chatui.public_beta", convert=flag, also={"env": "production"}, fine=frozenset({"false", "0"})
    ),
    **_PORTS,
    "GATEWAY_PORT": to("serve.port", whole),
    "LOG_LEVEL": to("log.level", _LEVEL),
    "ENABLE_DOCS": to("serve.docs", flag),
    "PYTHON_BASE_IMAGE": nothing(_OWN_IMAGES),
    "REQUIRE_AUTH": to("serve.auth", flag),
    "METRICS_AUTH_REQUIRED": Rule(
        setting="serve.open_metrics", convert=one_of(false=True, **{"0": True}), fine=frozenset({"true", "1"})
    ),
    "ALLOWED_HOSTS": nothing("the proxy before the service checks the names that clients call it by"),
    **left("keys are made here, and kept as hashes: `warren keys create NAME` for each client", "API_KEYS", "API_KEY"),
    # The original takes a token until it expires, however old it is.
    "JWT_SECRET": to("jwt.secret", None, jwt__default_scope="run", jwt__tenant="default", jwt__max_age_s=_YEAR_S),
    "JWT_ALGORITHMS": to("jwt.algorithms", words),
    "JWT_ISSUER": to("jwt.issuer", words),
    "JWT_AUDIENCE": to("jwt.audience", words),
    "JWT_TENANT_CLAIM": to("jwt.tenant_claim"),
    "ENABLE_CORS": PART,
    "CORS_ALLOW_ORIGINS": to("serve.cors_origins", _origins),
    **left(_FIXED, "CORS_ALLOW_METHODS", "CORS_ALLOW_HEADERS", "CORS_ALLOW_CREDENTIALS"),
    **left(
        _NO_DOCKER,
        "GATEWAY_DOCKER_HOST",
        "DOCKER_HOST",
        "DOCKER_CLIENT_TIMEOUT",
    ),
    "SANDBOX_RUNTIME": nothing(_WEAKER, "runc"),
    "STRONG_SANDBOX_RUNTIMES": nothing(_WEAKER),
    "REQUIRE_STRONG_SANDBOX_ISOLATION": nothing(_WEAKER, "false", "0"),
    "USE_DOCKER_DEFAULT_SECCOMP": nothing("Warren has a filter of system calls of its own", "true", "1"),
    **left("Warren has a filter of system calls of its own", "SECCOMP_PROFILE_DAEMON_PATH", "SECCOMP_PROFILE_PATH"),
    **left(
        _ONE_PROCESS,
        "REDIS_URL",
        "REQUIRE_SHARED_STATE",
        "REDIS_SOCKET_CONNECT_TIMEOUT",
        "REDIS_SOCKET_TIMEOUT",
        "REDIS_HEALTH_CHECK_INTERVAL",
    ),
    "MAX_REQUEST_BODY_SIZE": to("dialects.chatui.body_bytes", size),
    "MAX_INPUT_FILES": to("dialects.chatui.input_files", whole),
    "MAX_INPUT_FILE_SIZE": to("dialects.chatui.input_file_bytes", size),
    "MAX_INPUT_TOTAL_SIZE": to("dialects.chatui.input_bytes", size),
    "MAX_FILE_NAME_LENGTH": nothing(_FIXED, "128"),
    "DEFAULT_TIMEOUT": to("dialects.chatui.timeout_s", whole),
    "MAX_TIMEOUT": to("dialects.chatui.max_timeout_s", whole),
    "MAX_CONCURRENT_EXECUTIONS": to("capacity.executions", whole),
    "FILE_PROVISION_TIMEOUT": nothing("files are part of the request, and need no time of their own"),
    "RATE_LIMIT_REQUESTS_PER_WINDOW": to("dialects.chatui.executions_per_minute", whole),
    "RATE_LIMIT_WINDOW_SECONDS": _window("dialects.chatui.executions_window_s"),
    "CONTAINER_RATE_LIMIT_REQUESTS_PER_WINDOW": to("dialects.chatui.creates_per_minute", whole),
    "CONTAINER_RATE_LIMIT_WINDOW_SECONDS": _window("dialects.chatui.creates_window_s"),
    "MAX_ACTIVE_SESSIONS": to("dialects.chatui.containers", whole),
    "MAX_CONTAINERS_PER_PRINCIPAL": to("dialects.chatui.containers_per_principal", whole),
    "CONTAINER_CREATE_GUARD_TIMEOUT": nothing("`capacity.wait_s` says how long a request waits for its place"),
    "SESSION_TIMEOUT_SECONDS": to("dialects.chatui.idle_timeout_s", whole),
    "MAX_SESSION_LIFETIME_SECONDS": to("dialects.chatui.max_lifetime_s", whole),
    "MAX_EXECUTIONS_PER_SESSION": to("dialects.chatui.executions_per_container", whole),
    "SANDBOX_IMAGE": nothing(_OWN_IMAGES),
    **left("each sandbox has a user of its own, which is not root", "SANDBOX_USER", "SANDBOX_UID", "SANDBOX_GID"),
    "SANDBOX_MEM_LIMIT": to("dialects.chatui.memory_bytes", size),
    "SANDBOX_CPU_PERIOD": PART,
    "SANDBOX_CPU_QUOTA": to("limits.cpus", processors("SANDBOX_CPU_PERIOD")),
    "SANDBOX_PIDS_LIMIT": to("limits.pids", whole),
    "SANDBOX_HOME_TMPFS_SIZE": nothing("`limits.disk_bytes` would be the disk of every dialect's sandboxes"),
    "SANDBOX_TMP_ROOT_SIZE": to("limits.tmp_bytes", size),
    "SANDBOX_SHM_SIZE": nothing("shared memory counts as memory, which `dialects.chatui.memory_bytes` bounds"),
    "SANDBOX_READ_ONLY_ROOTFS": nothing("the root of a sandbox is always read-only", "true", "1"),
    "SANDBOX_NETWORK_MODE": to("dialects.chatui.network", _NETWORK),
    "ALLOW_PIP_INSTALLS": to("dialects.chatui.allow_pip", flag),
    "MAX_PIP_PACKAGES": to("dialects.chatui.pip_packages", whole),
    "MAX_PIP_PACKAGE_NAME_LENGTH": nothing(_FIXED, "64"),
    "ALLOW_SANDBOX_ENV_INJECTION": to("dialects.chatui.allow_env", flag),
    "SANDBOX_ENV_SOURCE_PATH": to("dialects.chatui.env_file"),
    "SANDBOX_ENV_TARGET_PATH": nothing("it is always `~/.env`", "/home/sandbox/.env"),
    "LATEX_MAX_TEX_CHARS": nothing(_FIXED, "250000"),
    "LATEX_RENDER_TIMEOUT_SECONDS": to("dialects.chatui.latex_timeout_s", whole),
    **{
        name: to("render.version", one_of(v1="v1", v2="v2"))
        for name in ("SLIDE_RENDERING_VERSION", "RENDERING_VERSION", "ACTIVE_RENDERING_VERSION")
    },
    "RENDER_TIMEOUT_SECONDS": to("render.timeout_s", number),
    "RENDER_QUEUE_TIMEOUT_MS": to("render.wait_s", thousandths),
    "PAGE_LOAD_TIMEOUT_MS": nothing("a page has all the time that its deck has: `render.timeout_s`"),
    "MAX_CONCURRENT_RENDERS": to("render.at_once", whole),
    "RENDER_RATE_LIMIT_WINDOW_SECONDS": PART,
    "RENDER_RATE_LIMIT_REQUESTS_PER_WINDOW": to("render.per_minute", per_minute("RENDER_RATE_LIMIT_WINDOW_SECONDS")),
    "RENDER_MAX_REQUEST_BODY_BYTES": to("render.body_bytes", whole),
    "RENDER_MAX_HTML_CHARS": to("render.html_chars", whole),
    "MAX_HTML_CHARS": to("render.html_chars", whole),
    "RENDER_MAX_INPUT_FILES": to("render.files", whole),
    "RENDER_MAX_SLIDES": to("render.slides", whole),
    "MAX_SLIDES": to("render.slides", whole),
    "RENDER_MAX_ASSET_BYTES": to("render.file_bytes", whole),
    "MAX_ASSET_BYTES": to("render.file_bytes", whole),
    "RENDER_MAX_TOTAL_ASSET_BYTES": to("render.files_bytes", whole),
    "MAX_TOTAL_ASSET_BYTES": to("render.files_bytes", whole),
    "RENDER_MAX_OUTPUT_BYTES": to("render.output_bytes", whole),
    "RENDER_SANDBOX_MEM_LIMIT": to("render.memory_bytes", size),
    "RENDER_SANDBOX_CPU_PERIOD": PART,
    "RENDER_SANDBOX_CPU_QUOTA": to("render.cpus", processors("RENDER_SANDBOX_CPU_PERIOD", "SANDBOX_CPU_PERIOD")),
    "RENDER_SANDBOX_HOME_TMPFS_SIZE": to("render.disk_bytes", size),
    "RENDER_ALLOWED_HOSTS": nothing("a page reaches its own files and nothing else"),
    "RENDER_SANDBOX_PIDS_LIMIT": to("render.pids", whole),
    "RENDER_SANDBOX_TMP_ROOT_SIZE": nothing("/tmp counts as memory, which `render.memory_bytes` bounds"),
    "RENDER_SANDBOX_SHM_SIZE": nothing("shared memory counts as memory, which `render.memory_bytes` bounds"),
}

ORIGINALS = (
    Original(
        "otari",
        "otari's sandbox container",
        _OTARI,
        "Its clients need a key, or `dialects.otari.open`: docs/howto/migrate-from-otari.md.",
    ),
    Original(
        "onyx",
        "Onyx's code interpreter",
        _ONYX,
        "Its client sends no key: put one into its base path. See docs/howto/migrate-from-onyx.md.",
    ),
    Original(
        "chatui",
        "ChatUI's code execution gateway",
        _CHATUI,
        "Make a key for each client: docs/howto/migrate-from-chatui.md. The service listens on 127.0.0.1, and not on "
        "every address as there, until `serve.host` says otherwise: docs/howto/go-to-production.md.",
    ),
    Original(
        "onit",
        "onit-sandbox",
        _ONIT,
        "Its clients send no key: put one into their address. See docs/howto/migrate-from-onit.md.",
    ),
)
