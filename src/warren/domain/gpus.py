"""GPUs as plain values: requests, devices, and the choice of devices for a sandbox.

A device has the name that CDI gives it (`nvidia.com/gpu=0`). Engines that place sandboxes themselves list their devices
(`engines.base.HasGpus`), and `choose` picks among them; an engine behind a scheduler takes the request as it is.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_GPUS = 64
ID = r"[A-Za-z0-9][A-Za-z0-9._:/=-]{0,127}"
NOTHING, ALL, AUTO = "none", "all", "auto"
_ID = re.compile(ID)
EXPECTED = (
    f"gpus must be {ALL}, {AUTO}, {NOTHING}, a number from 0 to {MAX_GPUS}, or a list of names such as nvidia.com/gpu=0"
)


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs that a sandbox asks for. False when it asks for none."""

    wanted: str | int | tuple[str, ...] = 0
    """`all`; `auto`, which is all or, where there are none, none; a number; or names, numbers or UUIDs of devices."""

    @classmethod
    def parse(cls, value: object) -> GpuRequest:
        """Parse a request: a word, a number, also as text, names in a list or with commas.

        Raises InvalidRequest.
        """
        said = repr(value)
        if isinstance(value, str):
            value = _parse_text(value.strip())
        if type(value) is int and 0 <= value <= MAX_GPUS:
            return cls(value)
        if isinstance(value, str) and value in {ALL, AUTO}:
            return cls(value)
        if isinstance(value, list | tuple) and len(value) <= MAX_GPUS and all(map(_is_id, value)):
            return cls(tuple(dict.fromkeys(value)) or 0)
        raise InvalidRequest(f"{EXPECTED}, not {said if len(said) <= 80 else said[:80] + '…'}")

    @property
    def is_optional(self) -> bool:
        """Whether no device at all will do."""
        return self.wanted in {0, AUTO}

    def __bool__(self) -> bool:
        return self.wanted != 0

    def __str__(self) -> str:
        """Write what `parse` reads."""
        if not isinstance(self.wanted, tuple):
            return str(self.wanted)
        text = ",".join(self.wanted)
        # A single device whose name is a number, or a word of ours, is told from those by its comma.
        return text if _parse_text(text) == list(self.wanted) else f"{text},"

    def plain(self) -> str | int | list[str]:
        """Return what `parse` takes, as JSON has it."""
        return list(self.wanted) if isinstance(self.wanted, tuple) else self.wanted


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _parse_text(text: str) -> object:
    if text == NOTHING:
        return 0
    # A number is how many: a single device by its number is `nvidia.com/gpu=0`, or the list ["0"].
    if text.isascii() and text.isdigit():
        return int(text.lstrip("0")[:4] or "0")
    if text in (ALL, AUTO):
        return text
    return [each.strip() for each in text.removesuffix(",").split(",")]


NO_GPUS = GpuRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A device that sandboxes of an engine can be given."""

    id: str
    """Its full name: `nvidia.com/gpu=0`."""
    aliases: tuple[str, ...] = ()
    """Its other names: its number, its UUID."""
    model: str = ""
    usable: bool = True
    """Whether the last attempt to open it for a sandbox succeeded."""
    why: str = ""
    """Why it is not usable: one sentence."""
    sandboxes: int = 0
    """Running sandboxes that have it."""


def choose(request: GpuRequest, devices: Sequence[Gpu], problems: Iterable[str] = ()) -> tuple[str, ...]:
    """Choose the devices of a sandbox: by name, or those that the fewest sandboxes have. Returns their full names.

    Raises Conflict where there are not so many, or not that one; `problems` say why there might be none.
    """
    if not request:
        return ()
    if isinstance(request.wanted, tuple):
        return tuple(dict.fromkeys(_find(name, devices) for name in request.wanted))
    usable = [each for each in devices if each.usable]
    if request.wanted == AUTO:
        return tuple(each.id for each in usable)
    wanted = max(1, len(usable)) if request.wanted == ALL else int(request.wanted)
    if len(usable) < wanted:
        unusable = [f"{each.id}: {each.why}" for each in devices if not each.usable]
        why = "; ".join([*unusable, *problems])
        have = f"are {len(usable)}" if len(usable) > 1 else f"is {len(usable) or 'none'}"
        raise Conflict(f"gpus asks for {request}, and there {have} that can be used{_because(why)}")
    # WHY at random among equals: sandboxes that are made at the same time do not see each other here yet.
    order = sorted(usable, key=lambda each: (each.sandboxes, random.random()))  # noqa: S311 - not a secret
    chosen = {each.id for each in order[:wanted]}
    return tuple(each.id for each in usable if each.id in chosen)


def _find(name: str, devices: Sequence[Gpu]) -> str:
    found = [each for each in devices if name == each.id] or [each for each in devices if name in each.aliases]
    if len(found) > 1:
        raise InvalidRequest(f"gpus names {name!r}, which {' and '.join(each.id for each in found)} are both called")
    if not found:
        listed = ", ".join(each.id for each in devices) or "none at all"
        raise Conflict(f"gpus names {name!r}, and there is no such device: there is {listed}")
    if not found[0].usable:
        raise Conflict(f"gpus names {name!r}, which cannot be used{_because(found[0].why)}")
    return found[0].id


def _because(why: str) -> str:
    return f" ({why})" if why else ""
