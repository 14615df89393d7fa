"""Container Device Interface: reads the specs of devices, `vendor.com/class=name`, that vendors' tools write.

1. A spec lists what a container needs to use a device. Device nodes, variables, libraries and programs are used. Hooks
   are never run, and folders, sockets and configuration are never shown.
2. Every size is bounded, every path absolute and without `..`; an error makes one sentence, and no device.
3. Only the specs themselves are opened here: `inventory.py` opens the files that they name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DIRS = ("/etc/cdi", "/var/run/cdi")
"""The folders of specs; the later folder wins, as CDI defines."""
FILE_BYTES = 1 << 20
FILES, DEVICES, NODES, MOUNTS, VARIABLES = 64, 256, 64, 512, 64
_TEXT = 4096
_KIND = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?/[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LIBRARY = re.compile(r"lib[A-Za-z0-9_+.-]{1,100}\.so(\.[A-Za-z0-9.]{1,40})?")
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class CdiError(ValueError):
    """A spec cannot be used; the message names the part and the reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """A device node: its path in a container, and on this host."""

    path: str
    host_path: str


@dataclass(frozen=True, slots=True)
class Edits:
    """What a container needs: nodes, files and variables."""

    nodes: tuple[Node, ...] = ()
    libraries: tuple[str, ...] = ()
    """Host paths of shared libraries."""
    programs: tuple[str, ...] = ()
    """Host paths of programs."""
    env: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Edits) -> Edits:
        return Edits(
            tuple(dict.fromkeys((*self.nodes, *other.nodes))),
            tuple(dict.fromkeys((*self.libraries, *other.libraries))),
            tuple(dict.fromkeys((*self.programs, *other.programs))),
            {**self.env, **other.env},
        )


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device of a spec."""

    kind: str
    """`nvidia.com/gpu`."""
    name: str
    own: Edits
    common: Edits
    """The edits that all devices of its spec need."""

    @property
    def id(self) -> str:
        """Its full name."""
        return f"{self.kind}={self.name}"


def load_specs(folders: tuple[str, ...]) -> tuple[list[CdiDevice], list[str]]:
    """Read all specs: devices by full name, the last folder's of each, and a sentence for each bad file."""
    found: dict[str, CdiDevice] = {}
    problems: list[str] = []
    for folder in folders:
        for path in _list_files(folder):
            try:
                found |= {device.id: device for device in parse_spec(_read(path))}
            except (CdiError, OSError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                problems.append(f"the CDI spec {path} cannot be used: {why}")
    return list(found.values()), problems


def parse_spec(spec: object) -> list[CdiDevice]:
    """Check a spec and return its devices. Raises CdiError."""
    top = _mapping(spec, "the spec")
    kind = _text(top.get("kind"), "kind")
    if not _KIND.fullmatch(kind):
        raise CdiError(f"kind {kind!r} is not vendor/class")
    _text(top.get("cdiVersion"), "cdiVersion")
    common = _edits(top.get("containerEdits"), "containerEdits")
    devices = []
    for position, raw in enumerate(_list(top.get("devices"), "devices", DEVICES)):
        device = _mapping(raw, f"devices[{position}]")
        name = _text(device.get("name"), f"devices[{position}].name")
        if not _NAME.fullmatch(name):
            raise CdiError(f"devices[{position}].name {name[:80]!r} is not the name of a device")
        devices.append(CdiDevice(kind, name, _edits(device.get("containerEdits"), f"device {name}"), common))
    return devices


def parse_text(data: bytes, *, is_json: bool) -> object:
    """Decode a file. Raises CdiError."""
    try:
        return json.loads(data) if is_json else _parse_yaml(data)
    except (ValueError, RecursionError) as error:
        raise CdiError(f"it is not {'JSON' if is_json else 'YAML'}: {str(error).partition(chr(10))[0]}") from error


def _parse_yaml(data: bytes) -> object:
    # Not above: commands without GPUs need no YAML.
    import yaml

    class Loader(yaml.BaseLoader):
        """Strings, lists and mappings only; no aliases, by which a small file becomes a large value."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise CdiError("aliases are not supported")
            return super().compose_node(parent, index)

    try:
        return yaml.load(data, Loader)  # noqa: S506 - a BaseLoader makes strings, lists and mappings only
    except yaml.YAMLError as error:
        raise CdiError(str(error)) from error


def _list_files(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    names = [name for name in names if name.endswith((".json", ".yaml", ".yml")) and not name.startswith(".")]
    return [os.path.join(folder, name) for name in names[:FILES]]


def _read(path: str) -> object:
    with open(path, "rb") as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise CdiError(f"it has more than {FILE_BYTES >> 20} MiB")
    return parse_text(data, is_json=path.endswith(".json"))


def _edits(raw: object, where: str) -> Edits:
    if raw in (None, ""):
        return Edits()
    edits = _mapping(raw, where)
    nodes = [_node(each, where) for each in _list(edits.get("deviceNodes"), f"{where}.deviceNodes", NODES)]
    libraries, programs = [], []
    for each in _list(edits.get("mounts"), f"{where}.mounts", MOUNTS):
        path = _path(_mapping(each, f"{where}.mounts").get("hostPath"), f"{where}.mounts.hostPath")
        folder, name = os.path.split(path)
        if _LIBRARY.fullmatch(name):
            libraries.append(path)
        elif os.path.basename(folder) in {"bin", "sbin"} and _PROGRAM.fullmatch(name):
            programs.append(path)
    env = dict(_variable(each, where) for each in _list(edits.get("env"), f"{where}.env", VARIABLES))
    return Edits(tuple(nodes), tuple(libraries), tuple(programs), env)


def _node(raw: object, where: str) -> Node:
    node = _mapping(raw, f"{where}.deviceNodes")
    path = _path(node.get("path"), f"{where}.deviceNodes.path")
    if not path.startswith("/dev/"):
        raise CdiError(f"{where}: the device node {path} is not below /dev")
    if node.get("type", "c") not in {"c", "u", ""}:
        raise CdiError(f"{where}: {path} is not a character device")
    host_path = node.get("hostPath")
    return Node(path, _path(host_path, f"{where}.deviceNodes.hostPath") if host_path else path)


def _variable(raw: object, where: str) -> tuple[str, str]:
    name, equals, value = _text(raw, f"{where}.env").partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        raise CdiError(f"{where}.env has {name[:80]!r}, which is not NAME=VALUE")
    return name, value


def _path(raw: object, where: str) -> str:
    path = _text(raw, where)
    if not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path:
        raise CdiError(f"{where} {path[:200]!r} is not an absolute path without '.' and '..'")
    return path


def _text(raw: object, where: str) -> str:
    if not isinstance(raw, str) or not raw or len(raw) > _TEXT or not raw.isprintable():
        raise CdiError(f"{where} must be a text of at most {_TEXT} printable characters")
    return raw


def _list(raw: object, where: str, most: int) -> list[object]:
    if raw in (None, ""):
        return []
    if not isinstance(raw, list) or len(raw) > most:
        raise CdiError(f"{where} must be a list of at most {most}")
    return raw


def _mapping(raw: object, where: str) -> Mapping[str, object]:
    if not isinstance(raw, Mapping):
        raise CdiError(f"{where} must be a mapping")
    return raw
