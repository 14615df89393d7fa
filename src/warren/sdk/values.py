"""How frozen values are built from what a service answers, and those that many answers have.

The values themselves are in `values_…`, by subject. Fields that a newer service adds are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from warren.sdk.failures import explain_unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

TIME = {"parse": datetime.fromisoformat}
TUPLE = {"parse": tuple}


def build(cls: type[T], raw: Any) -> T:
    """Build a value from JSON. Raises NotUnderstood."""
    try:
        values = {}
        for each in fields(cls):  # type: ignore[arg-type]  # every T here is a dataclass
            if each.name in raw:
                parse, value = each.metadata.get("parse"), raw[each.name]
                values[each.name] = value if parse is None or value is None else parse(value)
        return cls(**values)
    except (TypeError, ValueError, KeyError) as error:
        raise explain_unread(cls.__name__) from error


def build_all(cls: type[T]) -> Mapping[str, Callable[[Any], tuple[T, ...]]]:
    """Describe a field that is a list of values."""
    return {"parse": lambda raw: tuple(build(cls, each) for each in raw)}


def build_one(cls: type[T]) -> Mapping[str, Callable[[Any], T]]:
    """Describe a field that is another value."""
    return {"parse": lambda raw: build(cls, raw)}


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and how long the whole is."""

    items: tuple[T, ...]
    total: int
    offset: int
    limit: int

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def build_page(raw: Any, parse: Callable[[Any], T]) -> Page[T]:
    """Build a part of a list. Raises NotUnderstood."""
    try:
        return Page(tuple(parse(each) for each in raw["items"]), raw["total"], raw["offset"], raw["limit"])
    except (TypeError, KeyError) as error:
        raise explain_unread("a list") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a sandbox is."""

    tenant: str
    subject: str
