"""What a service says when it is ready: where it is, and the first key, which is shown nowhere else and only once."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Announcement:
    """Where a service is, and how to get in."""

    address: str
    asks_for_key: bool
    api_key: str | None = None
    """Only when it has just been made."""
    pid: int = 0
    log: str | None = None
    """The log file of one that runs in the background."""
    has_docs: bool = True


def print_as_text(found: Announcement) -> None:
    """Tell a person, with a line that can be pasted."""
    print(f"Warren is at {found.address}" + (f"  (API: {found.address}/docs)" if found.has_docs else ""))
    header = ""
    if found.asks_for_key:
        if found.api_key is not None:
            print(f"Your API key, shown this once: {found.api_key}")
        else:
            print("Keys: `warren keys list` shows them, `warren keys create NAME` makes another.")
        header = f' -H "Authorization: Bearer {found.api_key or "$WARREN_API_KEY"}"'
    else:
        print("No key is asked for: whoever reaches this address may run code.")
    if found.log is not None:
        print(f"It is process {found.pid} and logs to {found.log}; `warren status` shows it, `warren stop` ends it.")
    body = '{"code": "print(1 + 1)"}'
    print(f"Try: curl {found.address}/api/v1/run{header} -H 'Content-Type: application/json' -d '{body}'", flush=True)


def print_as_json(found: Announcement) -> None:
    """Tell a program, in a line."""
    print(json.dumps(asdict(found)), flush=True)


def detach_output() -> None:
    """Send what is printed from now on to where the log goes: whoever started us has read what they wait for."""
    os.dup2(2, 1)
