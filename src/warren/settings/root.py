"""The settings object: settings outside of groups, and loading."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from warren.domain.errors import ConfigError, InvalidRequest
from warren.sdk.environment import default_data_dir
from warren.settings.entries import FREE, Entry, leaves, mask, walk
from warren.settings.groups import (
    CapacitySettings,
    DiskSettings,
    GpuSettings,
    LifeSettings,
    LimitSettings,
    LogSettings,
    MaximumSettings,
    PoolSettings,
    QuotaSettings,
    RecordSettings,
    ServeSettings,
    TracingSettings,
)
from warren.settings.groups_apis import DialectsSettings, McpSettings, RenderSettings
from warren.settings.groups_identity import JwtSettings, TenantSettings
from warren.settings.groups_network import EgressSettings, PackageSettings
from warren.settings.kinds import Group, Names, Seconds
from warren.settings.sources import (
    FILE,
    Given,
    Origin,
    Source,
    check_variables,
    gather,
    must_be_table,
    not_a_setting,
    refuse_from_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Settings(Group):
    """Everything an operator can choose."""

    data_dir: str = Field(
        default_factory=default_data_dir,
        description="Folder of images, workspaces and sockets. `/var/lib/warren` for root, "
        "`~/.local/share/warren` for others.",
    )
    env: Literal["development", "production"] = Field(
        default="development", description="With `production`, the service refuses to start with risky settings."
    )
    allow_risks: Names = Field(
        default=(), description="Names of guardrails to ignore, as the refusal to start gives them."
    )
    store: str = Field(default="sqlite", description="Store of sandboxes, keys and the audit record: `sqlite`.")
    engine: str = Field(default="local", description="Engine of sandboxes: `local`, or `bare`, which isolates nothing.")
    allow_bare: bool = Field(default=False, description="Allow the bare engine to run code without any isolation.")
    optional_layers: Names = Field(
        default=(),
        description="Layers of isolation to do without where this host cannot apply them; `warren doctor` names them.",
    )
    image: str = Field(default="data", description="Image of a sandbox unless the caller names one.")
    image_dirs: Names = Field(
        default=(), description="Folders of image specs, searched before those that come with Warren."
    )
    timeout_s: Seconds = Field(
        default=None, gt=0, le=86_400, description="Default timeout of an execution, in seconds."
    )
    debug: bool = Field(default=False, description="Log more, and show tracebacks.")
    limits: LimitSettings = Field(default=LimitSettings(), description="Limits of a sandbox.")
    maximum: MaximumSettings = Field(default=MaximumSettings(), description="Largest limits of one sandbox.")
    disk: DiskSettings = Field(default=DiskSettings(), description="Space of the data disk that stays free.")
    serve: ServeSettings = Field(default=ServeSettings(), description="HTTP server.")
    life: LifeSettings = Field(default=LifeSettings(), description="Lifetimes of sandboxes.")
    pool: PoolSettings = Field(default=PoolSettings(), description="Warm sandboxes.")
    quota: QuotaSettings = Field(default=QuotaSettings(), description="Quotas of one principal.")
    tenant: TenantSettings = Field(default=TenantSettings(), description="Quotas of one tenant.")
    tenants: dict[str, TenantSettings] = Field(
        default={}, description="The same for the tenant of that name; `tenant` has the defaults."
    )
    capacity: CapacitySettings = Field(default=CapacitySettings(), description="Limits of all principals together.")
    gpus: GpuSettings = Field(default=GpuSettings(), description="GPUs of this host.")
    egress: EgressSettings = Field(default=EgressSettings(), description="Egress of sandboxes.")
    records: RecordSettings = Field(default=RecordSettings(), description="Records of executions and the audit record.")
    jwt: JwtSettings = Field(default=JwtSettings(), description="Authentication with JSON Web Tokens.")
    dialects: DialectsSettings = Field(default=DialectsSettings(), description="The APIs of other products.")
    mcp: McpSettings = Field(default=McpSettings(), description="MCP server: tools for models.")
    packages: PackageSettings = Field(default=PackageSettings(), description="Packages that sandboxes install.")
    render: RenderSettings = Field(default=RenderSettings(), description="HTML decks to PowerPoint.")
    log: LogSettings = Field(default=LogSettings(), description="Log on standard error.")
    tracing: TracingSettings = Field(default=TracingSettings(), description="Traces of requests.")

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)
    _environ: Mapping[str, str] | None = PrivateAttr(default=None)

    @classmethod
    def load(
        cls, environ: Mapping[str, str] | None = None, folder: str = ".", flags: Mapping[str, object] | None = None
    ) -> Settings:
        """Load the environment and `warren.toml`; `flags` have a setting's name (`serve.port`) and win unless None.

        Raises ConfigError: one sentence that names the setting.
        """
        environ = os.environ if environ is None else environ
        path = os.path.join(folder, FILE)
        known = list(walk(cls))
        check_variables(known, environ)
        given = gather(known, environ, path, flags or {})
        refuse_from_file(given, "allow_bare", path)
        try:
            settings = cls.model_validate(given.values)
            settings.limits.build()
        except ValidationError as exc:
            # WHY: not as its cause: that would keep the input, which may be a secret.
            raise ConfigError(_sentence(exc, known, given, path)) from None
        except InvalidRequest as exc:
            raise ConfigError(f"limits: {exc}") from exc
        settings._origins = given.origins  # noqa: SLF001 - of this class
        settings._environ = environ  # noqa: SLF001 - of this class
        return settings

    def origin_of(self, name: str) -> Origin:
        """Return the source of a setting's value."""
        return self._origins.get(name, Origin(Source.DEFAULT))

    def read_pip_index(self) -> str:
        """Return `PIP_INDEX_URL`: the Python index where the settings of packages name none."""
        return (os.environ if self._environ is None else self._environ).get("PIP_INDEX_URL", "")

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield name and value of each setting, including those in tables whose names the operator chose."""
        return leaves(self)


def entries() -> Iterator[Entry]:
    """Yield every possible setting."""
    return walk(Settings)


def names() -> Iterator[str]:
    """Return the name of each setting with a variable, as in `warren.toml`: `engine`, `limits.cpus`."""
    return (entry.name for entry in entries() if not entry.is_free)


def _sentence(exc: ValidationError, known: list[Entry], given: Given, path: str) -> str:
    error = exc.errors()[0]
    parts = [str(part) for part in error["loc"]]
    name = ".".join(parts)
    if error["type"] == "extra_forbidden":
        return f"{path}: {not_a_setting(name, (_named(each, parts) for each in known))}"
    if error["type"] in {"model_type", "dict_type"}:
        return must_be_table(path, name)
    origin = given.origins.get(name, Origin(Source.FILE, path))
    source = {Source.FILE: f"{path}: {name}", Source.FLAG: name}.get(origin.source, origin.where)
    what = error["msg"].removeprefix("Value error, ")
    value = "what it is" if _is_secret(known, parts) else repr(mask(error["input"]))
    return f"{source} cannot be {value}: {what[0].lower()}{what[1:]}"


def _named(entry: Entry, parts: list[str]) -> str:
    """Return the name of an entry, with the operator's own names where `parts` has them."""
    known = entry.name.split(".")
    written = [*parts, *known[len(parts) :]]
    return ".".join(own if each == FREE else each for each, own in zip(known, written, strict=False))


def _is_secret(known: list[Entry], parts: list[str]) -> bool:
    name = ".".join(parts)
    return any(entry.is_secret and name.startswith(_named(entry, parts)) for entry in known)
