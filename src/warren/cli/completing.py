"""What may come next on a command line: read from the commands themselves, and asked of the service."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from warren.cli.terminal.tables import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ID = re.compile(r"sbx_[0-9a-z]{8,40}")
_PATIENCE_S = 2.0
_MOST = 200
_FIXED = {
    "--engine": ("local", "bare"),
    "--scope": ("read", "run", "admin"),
    "--status": ("running", "stopped", "creating", "starting", "stopping", "destroying"),
    "--format": ("jsonl", "csv"),
    "SHELL": ("bash", "zsh", "fish"),
}

Candidate = tuple[str, str]


def find_candidates(words: Sequence[str]) -> list[Candidate]:
    """Return what the last word may become, each with what it means; nothing where files may stand."""
    from warren.cli.app import build_commands

    command: Any = build_commands()
    wanted: Any = None
    position = 0
    for word in words[:-1]:
        if word == "--":
            return []
        if wanted is not None:
            wanted = None
        elif word.startswith("-"):
            wanted = _find_option(command, word)
        elif _children(command):
            command = _children(command).get(word)
            if command is None:
                return []
        else:
            position += 1
    found = _values(wanted, words) if wanted is not None else _next(command, position, words)
    return [(word, meaning) for word, meaning in found if word.startswith(words[-1])]


def _next(command: Any, position: int, words: Sequence[str]) -> Iterable[Candidate]:
    if words[-1].startswith("-"):
        options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
        return [(name, _first_sentence(each.help)) for each in options for name in (*each.opts, *each.secondary_opts)]
    children = _children(command)
    if children:
        return [
            (name, _first_sentence(child.short_help or child.help))
            for name, child in children.items()
            if not child.hidden
        ]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    return _values(arguments[min(position, len(arguments) - 1)], words) if arguments else []


def _children(command: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(command, "commands", {})
    return found


def _find_option(command: Any, word: str) -> Any:
    """Return the option whose value comes next; None when the word has it already, or needs none."""
    for each in command.params:
        if word in (*each.opts, *each.secondary_opts):
            return None if each.is_flag or each.param_type_name != "option" else each
    return None


def _values(parameter: Any, words: Sequence[str]) -> Iterable[Candidate]:
    metavar = str(parameter.metavar or "")
    if metavar.startswith("SANDBOX"):
        return _find_sandboxes(words)
    if metavar in {"SOURCE", "TARGET"} and "cp" in words:
        # Both are offered: ids here, and files by the shell itself once this finds nothing.
        return [(f"{name}:", meaning) for name, meaning in _find_sandboxes(words)] if words[-1] else []
    if "--image" in parameter.opts or (metavar == "NAME" and words[0] == "image"):
        return _find_images()
    for name in (*parameter.opts, metavar):
        if name in _FIXED:
            return [(value, "") for value in _FIXED[name]]
    return []


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".")


def _find_images() -> list[Candidate]:
    from warren.bootstrap.app import build_catalog
    from warren.settings import Settings

    return [(spec.name, spec.description) for spec in build_catalog(Settings.load()).specs()]


def _find_sandboxes(words: Sequence[str]) -> list[Candidate]:
    """Ask the service that the command would ask; where none runs, look into the store, and start nothing."""
    found = _ask_for_sandboxes(words)
    # An id may be typed without what all of them begin with.
    cut = 4 if words[-1] and not words[-1].startswith("s") else 0
    return [(name[cut:], meaning) for name, meaning in found]


def _ask_for_sandboxes(words: Sequence[str]) -> list[Candidate]:
    from warren.sdk.environment import default_key, default_url

    url = _value_of("--url", words) or default_url()
    if url is not None:
        parts = urlsplit(url)
        cls = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = cls(parts.netloc, timeout=_PATIENCE_S)
        return _ask(connection, parts.path.rstrip("/"), {"Authorization": f"Bearer {default_key()}"}, "")
    return _find_sandboxes_here(_value_of("--data-dir", words))


def _find_sandboxes_here(data_dir: str | None) -> list[Candidate]:
    from warren.cli.service.listening import socket_path
    from warren.settings import Settings

    settings = Settings.load(flags={"data_dir": data_dir})
    try:
        return _ask(_UnixConnection(socket_path(settings.data_dir)), "", {}, "&everybody=true")
    except OSError:
        return _read_store(data_dir)


def _value_of(option: str, words: Sequence[str]) -> str | None:
    for number, word in enumerate(words[:-1]):
        if word == option and number + 2 < len(words):
            return words[number + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _ask(connection: http.client.HTTPConnection, path: str, headers: dict[str, str], more: str) -> list[Candidate]:
    with contextlib.closing(connection):
        connection.request("GET", f"{path}/api/v1/sandboxes?limit={_MOST}{more}", headers=headers)
        items = json.loads(connection.getresponse().read()).get("items", [])
    # A shell puts it on the command line as it is, whatever service said it.
    return [
        (each["id"], " ".join(harmless(f"{each['status']}, {each['image']}").split()))
        for each in items
        if _ID.fullmatch(each["id"])
    ]


def _read_store(data_dir: str | None) -> list[Candidate]:
    import anyio

    from warren.cli.service.offline_store import opened_store
    from warren.domain.records import SandboxQuery

    async def read() -> list[Candidate]:
        async with opened_store(data_dir) as (store, _):
            page = await store.list(SandboxQuery(limit=_MOST))
            return [(each.id, f"{each.status}, {each.image}") for each in page.items]

    return anyio.run(read)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP on a socket file: what the client library needs longer to import than somebody waits for a word."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        from warren.engines.unix_sockets import short_path

        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with short_path(self._path) as short:
            self.sock.connect(short)
