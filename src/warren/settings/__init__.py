"""Settings: one object, and the only reader of the environment.

A value comes from a flag of the command, else from `WARREN_…` in the environment, else from `warren.toml` in the
working folder, else from the defaults in `groups`. The object is built once at start-up and passed down; nothing reads
it at import. Plain pydantic, because pydantic-settings costs every command 100 ms, and accepts misspelt variables.

To add a setting, add a field to its group in `groups`. A table under a group is a field whose type is a group;
`dict[str, SomeGroup]` is a table of tables whose names the operator chooses. A secret is a field of type `SecretStr` or
`SecretStr | None`: it is masked wherever it is shown, and may come from a file named by `WARREN_…_FILE`.
"""

from warren.settings.entries import Entry, mask, variable_of
from warren.settings.groups import CapacitySettings, LimitSettings, QuotaSettings, TracingSettings
from warren.settings.groups_apis import RenderSettings
from warren.settings.groups_identity import JwtSettings, TenantSettings
from warren.settings.kinds import parse_size
from warren.settings.root import Settings, entries, names
from warren.settings.sources import FILE, Origin, Source

__all__ = [
    "FILE",
    "CapacitySettings",
    "Entry",
    "JwtSettings",
    "LimitSettings",
    "Origin",
    "QuotaSettings",
    "RenderSettings",
    "Settings",
    "Source",
    "TenantSettings",
    "TracingSettings",
    "entries",
    "mask",
    "names",
    "parse_size",
    "variable_of",
]
