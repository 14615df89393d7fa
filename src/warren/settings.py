"""The one settings object, and the only reader of the environment.

A value comes from a flag of the command, else from `WARREN_…` in the environment, else from `warren.toml` in the
working folder, else from here. Built once at start-up and passed down; nothing reads it at import. Plain pydantic and
not pydantic-settings: that costs every command 100 ms, and lets a misspelt variable pass in silence.
"""

from __future__ import annotations

import os
import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from warren.domain import GIB, KIB, MIB, Limits
from warren.errors import ConfigError, InvalidRequest, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX = "WARREN_"
FILE = "warren.toml"

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB}
_OURS_INSIDE = frozenset({"WARREN_SANDBOX", "WARREN_EXECUTION", "WARREN_PACKAGES"})
"""Set for programs in sandboxes, where a Warren may run too; they set nothing."""
_CLIENTS = frozenset({"WARREN_URL", "WARREN_API_KEY"})
"""Where a service is, and the key to it: of its clients, who may run commands of ours from the same shell."""
_DEFAULTS = Limits()


def parse_size(text: str) -> int:
    """Turn `512M` or `2GiB` into bytes; K, M and G are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("write a number of bytes, or one with K, M or G, such as 512M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _default_data_dir() -> str:
    system = "/var/lib/warren"
    parent = system if os.path.isdir(system) else os.path.dirname(system)
    if os.geteuid() == 0 and os.access(parent, os.W_OK):
        return system
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(home, "warren")


Size = Annotated[int, BeforeValidator(_size)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSettings(_Group):
    """What a sandbox may use when the caller does not say."""

    memory_bytes: Size = Field(default=_DEFAULTS.memory_bytes, description="Memory of one sandbox.")
    cpus: float = Field(default=_DEFAULTS.cpus, description="Processors of one sandbox.")
    pids: int = Field(default=_DEFAULTS.pids, description="Processes and threads of one sandbox.")
    disk_bytes: Size = Field(default=_DEFAULTS.disk_bytes, description="Size of one workspace.")
    disk_inodes: int = Field(default=_DEFAULTS.disk_inodes, description="Files and folders of one workspace.")
    open_files: int = Field(default=_DEFAULTS.open_files, description="Open descriptors of one process.")
    checkpoint_bytes: Size = Field(
        default=_DEFAULTS.checkpoint_bytes,
        description="A kernel with more private memory than this is not checkpointed.",
    )
    checkpoints: int = Field(default=_DEFAULTS.checkpoints, description="Cells that a rollback can reach back.")

    def build(self) -> Limits:
        """Build the limits of a sandbox. Raises InvalidRequest for what is out of range."""
        return Limits(**self.model_dump())


class ServeSettings(_Group):
    """How the service meets its clients."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    auth: bool = Field(default=True, description="Ask for an API key. Off only on a loopback address.")
    cors_origins: Names = Field(default=(), description="Web pages that may call the API from a browser.")
    body_bytes: Size = Field(default=16 * MIB, description="Largest JSON body of a request.")
    upload_bytes: Size = Field(default=8 * GIB, description="Largest file or archive of an upload.")
    drain_s: float = Field(
        default=20, ge=0, le=3600, description="Seconds that running requests get to finish when the service stops."
    )


class LifeSettings(_Group):
    """How long sandboxes live when nobody says otherwise."""

    idle_timeout_s: float | None = Field(
        default=1800, gt=0, description="Seconds without use after which a sandbox is stopped."
    )
    max_lifetime_s: float | None = Field(
        default=None, gt=0, description="Seconds after which a sandbox is destroyed, used or not."
    )
    stopped_lifetime_s: float | None = Field(
        default=7 * 86_400, gt=0, description="Seconds after which a stopped sandbox is destroyed, workspace and all."
    )


class PoolSettings(_Group):
    """Sandboxes that wait for their owner, so that a create takes milliseconds."""

    size: int = Field(default=2, ge=0, le=1000, description="Warm sandboxes of each pooled image and storage.")
    images: Names = Field(default=(), description="Images to keep warm; when empty, the default image.")


class QuotaSettings(_Group):
    """What one principal may have at once; 0 is no limit."""

    sandboxes: int = Field(default=500, ge=0, description="Sandboxes of one principal, stopped ones too.")
    active: int = Field(default=200, ge=0, description="Running sandboxes of one principal.")
    memory_bytes: Size = Field(default=0, ge=0, description="Memory limits of a principal's running sandboxes, added.")
    disk_bytes: Size = Field(default=0, ge=0, description="Workspace sizes of one principal's sandboxes, added.")
    executions: int = Field(default=64, ge=0, description="Executions of one principal at once.")
    requests_per_minute: int = Field(default=0, ge=0, description="Requests of one principal in a minute.")
    creates_per_minute: int = Field(default=1200, ge=0, description="Sandboxes that one principal makes in a minute.")


class CapacitySettings(_Group):
    """What everybody together may have at once; 0 is no limit."""

    sandboxes: int = Field(default=0, ge=0, description="Sandboxes of everybody, stopped ones too.")
    active: int = Field(default=2000, ge=0, description="Running sandboxes of everybody.")
    memory_bytes: Size = Field(default=0, ge=0, description="Memory limits of all running sandboxes, added.")
    disk_bytes: Size = Field(default=0, ge=0, description="Workspace sizes of all sandboxes, added.")
    executions: int = Field(default=256, ge=0, description="Executions at once.")
    creates: int = Field(default=8, ge=1, description="Sandboxes being made at once; further ones wait.")
    waiting: int = Field(default=512, ge=0, description="Requests that wait for one of these; further ones get 503.")
    wait_s: float = Field(default=30, ge=0, description="Seconds that a request waits before it gets 503.")


class RecordSettings(_Group):
    """How much is written down."""

    output_bytes: Size = Field(
        default=32 * KIB, le=MIB, description="Kept of the code, stdout and stderr of an execution, each."
    )
    audit_output_bytes: Size = Field(default=4 * KIB, le=64 * KIB, description="The same, in the audit record.")
    executions: int = Field(default=200, ge=1, description="Executions kept for one sandbox; the oldest go.")


class Settings(BaseModel):
    """Everything an operator can choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_dir: str = Field(
        default_factory=_default_data_dir,
        description="Where images, workspaces and sockets are. `/var/lib/warren` for root, "
        "`~/.local/share/warren` for others.",
    )
    store: str = Field(default="sqlite", description="What remembers sandboxes, keys and the audit record: `sqlite`.")
    engine: str = Field(
        default="local", description="What makes sandboxes: `local`, or `bare`, which isolates nothing."
    )
    allow_bare: bool = Field(default=False, description="Let the bare engine run code with no isolation at all.")
    optional_layers: Names = Field(
        default=(),
        description="Layers of isolation to do without where this host cannot apply them; `warren doctor` names them.",
    )
    image: str = Field(default="data", description="The image a sandbox is made from when the caller names none.")
    image_dirs: Names = Field(
        default=(), description="Folders of image specs, searched before those that come with Warren."
    )
    timeout_s: float | None = Field(
        default=None, gt=0, le=86_400, description="Seconds one execution may take when the caller does not say."
    )
    debug: bool = Field(default=False, description="Keep more in the logs, and show tracebacks.")
    limits: LimitSettings = Field(default=LimitSettings(), description="What a sandbox may use.")
    serve: ServeSettings = Field(default=ServeSettings(), description="How the service meets its clients.")
    life: LifeSettings = Field(default=LifeSettings(), description="How long sandboxes live.")
    pool: PoolSettings = Field(default=PoolSettings(), description="Sandboxes that wait for their owner.")
    quota: QuotaSettings = Field(default=QuotaSettings(), description="What one principal may have.")
    capacity: CapacitySettings = Field(default=CapacitySettings(), description="What everybody may have.")
    records: RecordSettings = Field(default=RecordSettings(), description="How much is written down.")

    @classmethod
    def load(
        cls, environ: Mapping[str, str] | None = None, folder: str = ".", flags: Mapping[str, object] | None = None
    ) -> Settings:
        """Read the environment and `warren.toml`; `flags` have a setting's name (`serve.port`) and win where not None.

        Raises ConfigError: one sentence that names the setting.
        """
        environ = os.environ if environ is None else environ
        path = os.path.join(folder, FILE)
        values = _read_file(path)
        known = {variable_of(name): name for name in names()}
        for variable in sorted(set(environ) - set(known) - _OURS_INSIDE - _CLIENTS):
            if variable.startswith(PREFIX):
                raise ConfigError(f"{variable} is not a setting{suggest(variable, known, prefix=PREFIX)}")
        for variable, name in known.items():
            flag = (flags or {}).get(name)
            if flag is not None or environ.get(variable):
                group, _, leaf = name.rpartition(".")
                (values.setdefault(group, {}) if group else values)[leaf] = environ[variable] if flag is None else flag
        try:
            settings = cls.model_validate(values)
            settings.limits.build()
        except ValidationError as exc:
            raise ConfigError(_sentence(exc, environ, path)) from exc
        except InvalidRequest as exc:
            raise ConfigError(f"limits: {exc}") from exc
        return settings


GROUPS = {
    name: info.annotation
    for name, info in Settings.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, _Group)
}


def names() -> Iterator[str]:
    """Return the name of each setting, as in `warren.toml`: `engine`, `limits.cpus`."""
    for name in Settings.model_fields:
        if name in GROUPS:
            yield from (f"{name}.{leaf}" for leaf in GROUPS[name].model_fields)
        else:
            yield name


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: `WARREN_LIMITS_CPUS` of `limits.cpus`."""
    return PREFIX + name.replace(".", "_").upper()


def _read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    for group in GROUPS:
        if not isinstance(values.get(group, {}), dict):
            raise ConfigError(f"{path}: {group} must be a table, as in [{group}]")
    return values


def _sentence(exc: ValidationError, environ: Mapping[str, str], path: str) -> str:
    error = exc.errors()[0]
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{path}: {name} is not a setting{suggest(name, names())}"
    source = next(
        (v for v in map(variable_of, names()) if environ.get(v) and variable_of(name) == v), f"{path}: {name}"
    )
    what = error["msg"].removeprefix("Value error, ")
    return f"{source} cannot be {error['input']!r}: {what[0].lower()}{what[1:]}"
