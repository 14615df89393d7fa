"""How an answer is declared and written: `Shown.render` takes each field from the attribute of that name.

No answer is validated: that would cost more than the rest of a request.
"""

from __future__ import annotations

import functools
import typing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo

_TIME: dict[str, JsonValue] = {"format": "date-time"}
Time = Annotated[str, Field(json_schema_extra=_TIME)]
"""ISO 8601, from seconds since the epoch."""
OptionalTime = Annotated[str | None, Field(json_schema_extra=_TIME)]


def render_time(seconds: float) -> str:
    """Write a time as ISO 8601, in UTC, to the millisecond."""
    second, rest = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_write_second(second)}.{rest // 1000:03d}+00:00"


@functools.lru_cache(maxsize=1024)
def _write_second(second: int) -> str:
    # Most times of an answer are of the same few seconds, and this is half of what writing an execution costs.
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


class Shown(BaseModel):
    """Something that is answered: all its fields are always there."""

    model_config = ConfigDict(extra="forbid")
    _fields: ClassVar[tuple[tuple[str, Callable[[Any], Any] | None], ...]] = ()
    """Each field, and how its value is written; None is as it is."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Find out once how each field is written: times, and answers within answers."""
        cls._fields = tuple((name, _find_writer(field)) for name, field in cls.model_fields.items())

    @classmethod
    def render(cls, source: object, /, **given: Any) -> dict[str, Any]:
        """Build the answer: each field as given, or else from the attribute of `source` with its name."""
        answer = {}
        for name, write in cls._fields:
            if name in given:
                answer[name] = given[name]
            else:
                value = getattr(source, name)
                answer[name] = value if write is None or value is None else write(value)
        return answer


def _find_writer(field: FieldInfo) -> Callable[[Any], Any] | None:
    if field.json_schema_extra == _TIME:
        return render_time
    kinds = typing.get_args(field.annotation) or (field.annotation,)
    nested = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Shown)), None)
    if nested is None:
        return None
    render = nested.render
    return (lambda items: [render(item) for item in items]) if typing.get_origin(field.annotation) is list else render
