"""Entries: each setting by its name, its field, and how its value is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel, SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

PREFIX = "WARREN_"
FREE = "NAME"
"""In the name of an entry, the placeholder for a name that the operator chooses."""

_MASK = "********"
_USERINFO = re.compile(r"(?<=://)[^/?#@\s]+@")


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting: `limits.cpus`, or `tenants.NAME.cpus` where the operator chooses a name."""

    name: str
    field: FieldInfo
    is_free: bool

    @property
    def is_secret(self) -> bool:
        """Whether its value is never shown."""
        kinds = (self.field.annotation, *get_args(self.field.annotation))
        # A field with validators has its type as an argument of `Annotated`.
        return any(SecretStr in {kind, getattr(kind, "__origin__", None)} for kind in kinds)

    @property
    def variable(self) -> str | None:
        """Its environment variable; None under a name that the operator chooses."""
        return None if self.is_free else variable_of(self.name)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: `WARREN_LIMITS_CPUS` of `limits.cpus`."""
    return PREFIX + name.replace(".", "_").upper()


def walk(model: type[BaseModel], prefix: str = "", *, is_free: bool = False) -> Iterator[Entry]:
    """Yield each setting of a model and its groups, in the order of the source."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from walk(kind, f"{prefix}{name}.", is_free=is_free)
        elif get_origin(kind) is dict:
            yield from walk(get_args(kind)[1], f"{prefix}{name}.{FREE}.", is_free=True)
        else:
            yield Entry(prefix + name, field, is_free)


def leaves(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield full name and value of each setting, including those under names that the operator chose."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        for key, each in value.items() if isinstance(value, dict) else [("", value)]:
            full = f"{prefix}{name}.{key}".rstrip(".")
            if isinstance(each, BaseModel):
                yield from leaves(each, f"{full}.")
            else:
                yield full, each


def mask(value: Any) -> Any:
    """Return a value for display: secrets masked, and passwords in URLs."""
    if isinstance(value, SecretStr):
        return _MASK
    if isinstance(value, str):
        return _USERINFO.sub(f"{_MASK}@", value)
    return [mask(each) for each in value] if isinstance(value, tuple | list) else value
