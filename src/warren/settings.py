"""The one settings object, and the only reader of the environment.

A value comes from `WARREN_…` in the environment, else from `warren.toml` in the working folder, else from here.
Built once at start-up and passed down; nothing reads it at import. Plain pydantic and not pydantic-settings: that costs
every command 100 ms, and lets a misspelt variable pass in silence.
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


class LimitSettings(BaseModel):
    """What a sandbox may use when the caller does not say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


class Settings(BaseModel):
    """Everything an operator can choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_dir: str = Field(
        default_factory=_default_data_dir,
        description="Where images, workspaces and sockets are. `/var/lib/warren` for root, "
        "`~/.local/share/warren` for others.",
    )
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

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, folder: str = ".") -> Settings:
        """Read the environment and `warren.toml`. Raises ConfigError: one sentence that names the setting."""
        environ = os.environ if environ is None else environ
        path = os.path.join(folder, FILE)
        values = _read_file(path)
        known = {variable_of(name): name for name in names()}
        for variable in sorted(set(environ) - set(known) - _OURS_INSIDE):
            if variable.startswith(PREFIX):
                raise ConfigError(f"{variable} is not a setting{suggest(variable, known, prefix=PREFIX)}")
        for variable, name in known.items():
            if environ.get(variable):
                group, _, leaf = name.rpartition(".")
                (values.setdefault(group, {}) if group else values)[leaf] = environ[variable]
        try:
            settings = cls.model_validate(values)
            settings.limits.build()
        except ValidationError as exc:
            raise ConfigError(_sentence(exc, environ, path)) from exc
        except InvalidRequest as exc:
            raise ConfigError(f"limits: {exc}") from exc
        return settings


def names() -> Iterator[str]:
    """Return the name of each setting, as in `warren.toml`: `engine`, `limits.cpus`."""
    for name in Settings.model_fields:
        if name == "limits":
            yield from (f"limits.{leaf}" for leaf in LimitSettings.model_fields)
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
    if not isinstance(values.get("limits", {}), dict):
        raise ConfigError(f"{path}: limits must be a table, as in [limits]")
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
