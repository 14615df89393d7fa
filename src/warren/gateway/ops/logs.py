"""Logs on stderr: one line an event, JSON for machines, text on a terminal.

1. An event is a name and fields: `log.info("pool.filled", extra={"image": name})`. Fields are short and plain.
2. Code, output, environments, headers, queries and secrets are never logged, also not by accident: an exception is
   logged by its class and its places in our source, without its message; a record of another library by its template.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import orjson

if TYPE_CHECKING:
    from types import TracebackType

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_VALUE = 300
_MAX_FRAMES = 12
_OURS = "warren"


def configure_logs(
    *, debug: bool = False, form: str = "auto", level: str = "info", stream: TextIO | None = None
) -> None:
    """Send every record of this process to `stream`, by default stderr. The command that runs the service calls it."""
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    is_text = out.isatty() if form == "auto" else form == "text"
    handler.setFormatter(_Words(debug=debug) if is_text else _Json(debug=debug))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    least = logging.DEBUG if debug else logging.getLevelNamesMapping()[level.upper()]
    # Other libraries log much, and quote users' input.
    root.setLevel(max(least, logging.WARNING))
    logging.getLogger(_OURS).setLevel(least)
    # WHY: a reader of stderr that went away must not make the service write about it to stderr.
    logging.raiseExceptions = False


class _Formatter(logging.Formatter):
    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of a record, without time, level and event."""
        fields = {name: _plain(value) for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = record.exc_info[0].__name__
            fields["where"] = _places(record.exc_info[2])
            if self._debug:
                fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return fields

    def event(self, record: logging.LogRecord) -> str:
        """Return the name of the event."""
        if record.name.partition(".")[0] == _OURS:
            return _cut(record.getMessage())
        # Arguments and further lines of another library's message may quote a user's input.
        lines = str(record.msg).splitlines() or [""]
        return f"{record.name}: {_cut(lines[0])}"


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Write one line of JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": self.event(record),
            **self.fields(record),
        }
        return orjson.dumps(line).decode()


class _Words(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Write one line to be read by people; a traceback follows it."""
        fields = self.fields(record)
        rest = fields.pop("traceback", "")
        when = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        said = "  ".join(f"{name}={value}" for name, value in fields.items() if value not in {"", "-", None})
        return f"{when} {record.levelname.lower():7} {self.event(record)}  {said}".rstrip() + (
            f"\n{rest}" if rest else ""
        )


def _plain(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    return _cut(str(value))


def _cut(text: str) -> str:
    """Cut a text to one printable line: a name may hold anything."""
    short = text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
    if short.isascii() and short.isprintable():
        return short
    return "".join(each if each.isprintable() else "?" for each in short)


def _places(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)[-_MAX_FRAMES:]
    return " < ".join(f"{os.path.basename(each.filename)}:{each.lineno} {each.name}" for each in reversed(frames))
