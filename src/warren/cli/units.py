"""Sizes, durations and pairs, as people type and read them."""

from __future__ import annotations

import datetime as dt
import re
import time

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
MAX_TIMEOUT_S = 1e7
"""What the service and its agents take; core takes too long to import here."""
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def _refuse(sentence: str) -> Exception:
    """Build what typer shows beside the option that was wrong. Imported late: sizes are written without typer too."""
    import typer

    return typer.BadParameter(sentence)


def parse_size(text: str) -> int:
    """Turn `512M` or `2G` into bytes, as in the settings."""
    from warren import settings  # costs more than the rest of the command line, and few commands name a size

    try:
        return settings.parse_size(text)
    except ValueError as exc:
        raise _refuse(f"{text!r} is not a size: {exc}.") from exc


def parse_cpus(text: str) -> float:
    """Turn `0.5` or `2` into a number of processors."""
    try:
        return float(text)
    except ValueError:
        raise _refuse(f"{text!r} is not a number of processors: write one such as 0.5 or 2.") from None


def read_duration(text: str) -> float:
    """Turn `30s`, `5m`, `250ms` or `30d` into seconds. Raises ValueError."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (factor := _SECONDS.get(match[2].lower())) is None:
        raise ValueError(f"{text!r} is not a duration: write a number with ms, s, m, h or d, such as 30s or 5m.")
    seconds = float(match[1]) * factor
    if seconds <= 0:
        raise ValueError("a duration must be longer than 0.")
    return seconds


def read_timeout(text: str) -> float:
    """Turn a duration that a program may run into seconds. Raises ValueError."""
    seconds = read_duration(text)
    if seconds > MAX_TIMEOUT_S:
        raise ValueError(f"{text} is too long: a program may run for {MAX_TIMEOUT_S // 86_400:.0f}d at most.")
    return seconds


def parse_timeout(text: str) -> float:
    """Turn the time limit of a program into seconds, as typer wants its parsers."""
    try:
        return read_timeout(text)
    except ValueError as exc:
        raise _refuse(str(exc)) from exc


def parse_duration(text: str) -> float:
    """Turn a duration into seconds, as typer wants its parsers."""
    try:
        return read_duration(text)
    except ValueError as exc:
        raise _refuse(str(exc)) from exc


def parse_time(text: str) -> float:
    """Turn `2026-11-01`, `2026-11-01T12:30` (here, unless it names a zone) or `7d`, so long ago, into a time."""
    try:
        return dt.datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return time.time() - read_duration(text)
    except ValueError as exc:
        raise _refuse(f"{text!r} is not a time: write 2026-11-01, 2026-11-01T12:30, or an age such as 7d.") from exc


def parse_pair(text: str) -> tuple[str, str]:
    """Split `NAME=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name or "\0" in text:
        raise _refuse(f"{text!r} is not NAME=value.")
    return name, value


def parse_copy(text: str) -> tuple[str, str]:
    """Split `SRC` or `SRC:DEST`; DEST is the name of SRC unless given."""
    source, _, target = text.partition(":")
    target = target or source.rstrip("/").rpartition("/")[2]
    if not source or target in {"", ".", ".."}:
        raise _refuse(f"{text!r} names no file: write SRC or SRC:DEST.")
    return source, target


def render_size(size: float) -> str:
    """Write bytes as people read them: `512 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def render_duration(seconds: float) -> str:
    """Write a duration as people read it: `250 ms`, `30 s`, `2 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min"


def render_time(at: float) -> str:
    """Write a time as people read it, here and to the minute."""
    return dt.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def render_age(seconds: float) -> str:
    """Write how long ago something was, as people count it: `12 s`, `5 min`, `3 h`, `9 d`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def shorten_id(whole: str) -> str:
    """Cut an id to what people read; it is accepted again as long as it means one thing."""
    return whole[:16]
