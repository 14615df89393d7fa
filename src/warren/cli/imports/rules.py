"""What a setting of another product becomes here: a rule for each name, made of few kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warren.domain.gpus import GpuRequest
from warren.domain.values import MIB
from warren.engines.gpus.nvidia import KIND as NVIDIA
from warren.settings.kinds import parse_size

Convert = Callable[[str, Mapping[str, str]], Any]
"""From a value, and all of them by name, to what the setting is; raises ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What becomes of one name."""

    setting: str = ""
    """Where it goes; nowhere when empty."""
    convert: Convert = lambda text, _all: text
    also: Mapping[str, Any] = field(default_factory=dict)
    """What must be set besides."""
    why: str = ""
    """Why it goes nowhere."""
    fine: frozenset[str] = frozenset()
    """Values that are so here anyway."""
    is_part: bool = False
    """Whether another name's rule looks at it."""


class Original(NamedTuple):
    """A product whose configuration can be read."""

    name: str
    title: str
    rules: Mapping[str, Rule]
    note: str
    """What its operator has to do besides."""


def to(setting: str, convert: Convert | None = None, **also: Any) -> Rule:
    """Take a value over."""
    more = {name.replace("__", "."): value for name, value in also.items()}
    return Rule(setting=setting, also=more) if convert is None else Rule(setting=setting, convert=convert, also=more)


def nothing(why: str, *fine: str) -> Rule:
    """Leave a value out, unless it is so here anyway."""
    return Rule(why=why, fine=frozenset(fine))


def left(why: str, *names: str) -> dict[str, Rule]:
    """Leave out the values of several names, for one reason."""
    return dict.fromkeys(names, nothing(why))


PART = Rule(is_part=True)


def _reading(read: Callable[[str], Any]) -> Convert:
    return lambda text, _all: read(text)


whole = _reading(int)
number = _reading(float)
thousandths = _reading(lambda text: float(text) / 1000)
"""Milliseconds, as seconds."""
size = _reading(parse_size)
"""A size as Docker writes it: `512m`."""
mebibytes = _reading(lambda text: int(float(text) * MIB))
"""A number of MB, which all of these products mean as MiB."""


def flag(text: str, _all: Mapping[str, str]) -> bool:
    """Read yes or no."""
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError("neither true nor false")


def words(text: str, _all: Mapping[str, str]) -> list[str]:
    """Read a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def gpu_devices(text: str, _all: Mapping[str, str]) -> str:
    """Read the GPUs of Docker's `--gpus`, which are optional where there are none: `all`, or numbers or UUIDs."""
    names = [word for word in text.strip().strip('"').removeprefix("device=").split(",") if word.strip()]
    if not names or names == ["none"]:
        return "none"
    if names == ["all"]:
        return "auto"
    return str(GpuRequest.parse([f"{NVIDIA}={name.strip()}" for name in names]))


def one_of(**meant: Any) -> Convert:
    """Read one of a few words."""

    def convert(text: str, _all: Mapping[str, str]) -> Any:
        word = text.strip().lower().replace("-", "_")
        if word not in meant:
            raise ValueError(f"none of {', '.join(meant)}")
        return meant[word]

    return convert


def per_minute(window: str) -> Convert:
    """Read how many there may be in a window of another name's seconds."""

    def convert(text: str, everything: Mapping[str, str]) -> int:
        return max(1, round(int(text) * 60 / float(everything.get(window) or 60)))

    return convert


def processors(*periods: str) -> Convert:
    """Read a quota of Docker's, of another name's period; the first that is there counts."""

    def convert(text: str, everything: Mapping[str, str]) -> float:
        period = next((everything[name] for name in periods if everything.get(name)), 100_000)
        return round(int(text) / float(period), 3)

    return convert


def published(text: str, _all: Mapping[str, str]) -> int:
    """Read what a compose file publishes a port as: `8080`, or `127.0.0.1:8080`."""
    return int(text.rpartition(":")[2])
