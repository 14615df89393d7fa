"""Image specs: a TOML file and its lock, checked, and the content address that follows from them."""

from __future__ import annotations

import hashlib
import json
import operator
import os
import platform
import re
import sys
import sysconfig
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.core.images.parts import TABLES, Parts, check_word, parse_parts, read_words
from warren.domain.errors import InvalidRequest, suggest
from warren.domain.gpus import NO_GPUS, GpuRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BUILDER_VERSION = 2
"""Part of every digest: raise it when the same spec would be built differently."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_ALIAS = re.compile(r"[a-z0-9][a-z0-9._/-]{0,127}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9._,-]+\])?\s*(?:==\s*([A-Za-z0-9.!+_]+))?")
_CLAUSE = re.compile(r"(>=|<=|==|<|>)\s*3\.(\d{1,3})")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_HIDDEN = ("/dev", "/home/sandbox", "/proc", "/tmp", "/workspace")
"""Paths that a sandbox mounts over, so that an interpreter there would be hidden."""
_KEYS = ("name", "description", "aliases", "python", "packages", "preload", "env", "root", "gpus", *TABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The base interpreter of images: the one that runs Warren, outside its virtual environment."""

    prefix: str
    inside: str
    """Path of the prefix inside sandboxes."""
    version: str
    free_threaded: bool = False

    @classmethod
    def running(cls) -> Interpreter:
        """Describe the interpreter of this process."""
        prefix = sys.base_prefix
        # WHY: a python linked to its own libpython finds it by an absolute path, so it must not move.
        fixed = prefix == "/usr" or prefix.startswith("/usr/") or bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
        return cls(
            prefix=prefix,
            inside=prefix if fixed else "/opt/python",
            version=platform.python_version(),
            free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        )

    @property
    def name(self) -> str:
        """File name of the program with its version: `python3.11`."""
        return "python" + ".".join(self.version.split(".")[:2])

    @property
    def executable(self) -> str:
        """Path of the program on the host."""
        return f"{self.prefix}/bin/{self.name}"

    @property
    def executable_inside(self) -> str:
        """Path of the program inside a sandbox."""
        return f"{self.inside}/bin/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """One image of the catalog, as its file describes it."""

    name: str
    packages: tuple[str, ...]
    description: str = ""
    aliases: tuple[str, ...] = ()
    """Names of the image in other registries, without a tag; callers may use them here."""
    python: str = ">=3.11"
    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    root: str = "host"
    gpus: GpuRequest = NO_GPUS
    """Default of its sandboxes. Not part of the digest: it does not change the build."""
    lock: str | None = None
    """Text of the lock beside the spec; without one, a build resolves versions."""
    parts: Parts = field(default_factory=Parts)
    path: str

    def digest(self, interpreter: Interpreter) -> str:
        """Return the content address: equal inputs have equal addresses."""
        inputs = {
            "builder": BUILDER_VERSION,
            "name": self.name,
            "packages": sorted(self.packages),
            "preload": list(self.preload),
            "env": dict(self.env),
            "root": self.root,
            "lock": None if self.lock is None else _significant_lines(self.lock),
            "interpreter": [interpreter.version, platform.machine(), interpreter.prefix, interpreter.inside],
            **self.parts.inputs(),
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]

    def check_interpreter(self, interpreter: Interpreter) -> None:
        """Raise InvalidRequest when this interpreter cannot run the image."""
        if interpreter.free_threaded:
            # A fork keeps one thread only: locks that the others held stay locked for ever.
            raise InvalidRequest(
                f"Warren runs on a free-threaded Python {interpreter.version}, and copies processes, which needs the "
                "interpreter's lock: install Warren on a Python without free threading"
            )
        minor = int(interpreter.version.split(".")[1])
        if not all(_COMPARE[sign](minor, int(wanted)) for sign, wanted in _CLAUSE.findall(self.python)):
            raise InvalidRequest(
                f"image {self.name} needs Python {self.python}, but Warren runs on {interpreter.version}: "
                "install Warren on a Python that fits"
            )
        if any(f"{interpreter.inside}/".startswith(f"{hidden}/") for hidden in _HIDDEN):
            raise InvalidRequest(
                f"the Python that runs Warren lies in {interpreter.prefix}, which sandboxes cannot see: "
                "install Warren on a Python elsewhere"
            )
        if self.root != "host" and interpreter.prefix.split("/")[1] == "usr":
            raise InvalidRequest(
                f"image {self.name} brings its own root, which hides the interpreter under {interpreter.prefix}: "
                "install Warren on a Python outside /usr, for example one that `uv python install` made"
            )


def load_spec(path: str) -> ImageSpec:
    """Load a spec and the lock beside it. Raises InvalidRequest: the file, the wrong part and the remedy."""
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidRequest(f"{path} is not valid TOML: {exc}") from exc
    except OSError as exc:
        raise InvalidRequest(f"{path} cannot be read: {exc.strerror}") from exc
    lock, node_lock = (_read_beside(path, ending) for ending in (".lock", ".npm.json"))
    spec = parse_spec(values, path=path, lock=lock, node_lock=node_lock)
    stem = os.path.basename(path).removesuffix(".toml")
    if spec.name != stem:
        raise InvalidRequest(f"{path} describes the image {spec.name!r}: name the file {spec.name}.toml")
    return spec


def _read_beside(path: str, ending: str) -> str | None:
    beside = path.removesuffix(".toml") + ending
    if not os.path.exists(beside):
        return None
    with open(beside, encoding="utf-8") as file:
        return file.read()


def parse_spec(
    values: Mapping[str, Any], *, path: str, lock: str | None = None, node_lock: str | None = None
) -> ImageSpec:
    """Build a spec from parsed values; `path` is for error messages."""
    for key in values:
        if key not in _KEYS:
            raise InvalidRequest(f"{path}: unknown key {key!r}{suggest(key, _KEYS)}")
    for key in ("name", "packages"):
        if key not in values:
            raise InvalidRequest(f"{path}: {key} is missing")
    spec = ImageSpec(
        name=_text(values, "name", path),
        description=_text(values, "description", path),
        aliases=read_words(values, "aliases", path),
        python=_text(values, "python", path, default=">=3.11"),
        packages=read_words(values, "packages", path),
        preload=read_words(values, "preload", path),
        env=_env(values, path),
        root=_text(values, "root", path, default="host"),
        gpus=_gpus(values, path),
        lock=lock,
        parts=parse_parts(values, path=path, node_lock=node_lock),
        path=path,
    )
    _check_words(spec)
    if lock is not None:
        _check_lock(spec, lock)
    return spec


def locked_versions(lock: str) -> dict[str, set[str]]:
    """Return the pinned versions by normalised package name; markers may give a package several versions."""
    pins: dict[str, set[str]] = {}
    for line in _significant_lines(lock):
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", line)
        if match:
            pins.setdefault(_normalise(match[1]), set()).add(match[2])
    return pins


def _check_words(spec: ImageSpec) -> None:
    path = spec.path
    name_rule = f"{path}: name {spec.name!r} must be lower-case letters, digits and dashes, 40 at most"
    check_word(_NAME, spec.name, name_rule)
    for alias in spec.aliases:
        check_word(_ALIAS, alias, f"{path}: alias {alias!r} must be the name of an image elsewhere, without a tag")
    for clause in spec.python.split(","):
        rule = f"{path}: python {spec.python!r} must look like '>=3.11' or '>=3.11,<3.14'"
        check_word(_CLAUSE, clause.strip(), rule)
    for package in spec.packages:
        rule = f"{path}: package {package!r} must be a name, or a name and version as in 'numpy==2.4.6'"
        check_word(_REQUIREMENT, package.strip(), rule)
    for module in spec.preload:
        check_word(_MODULE, module, f"{path}: preload {module!r} is not the name of a module")
    for variable in spec.env:
        check_word(_VARIABLE, variable, f"{path}: env {variable!r} is not the name of an environment variable")
    if spec.root != "host" and not (os.path.isabs(spec.root) and os.path.isdir(spec.root)):
        raise InvalidRequest(
            f"{spec.path}: root {spec.root!r} must be 'host' or the absolute path of a folder that exists"
        )


def _check_lock(spec: ImageSpec, lock: str) -> None:
    pins = locked_versions(lock)
    for package in spec.packages:
        match = _REQUIREMENT.fullmatch(package.strip())
        assert match is not None
        versions = pins.get(_normalise(match[1]), set())
        if not versions or (match[3] and match[3] not in versions):
            raise InvalidRequest(
                f"{spec.path} asks for {package}, but its lock does not hold that: compile the lock again, or delete it"
            )


def _text(values: Mapping[str, Any], key: str, path: str, default: str = "") -> str:
    value = values.get(key, default)
    if not isinstance(value, str):
        raise InvalidRequest(f"{path}: {key} must be a string, not {value!r}")
    return value


def _gpus(values: Mapping[str, Any], path: str) -> GpuRequest:
    try:
        return GpuRequest.parse(values.get("gpus", 0))
    except InvalidRequest as exc:
        raise InvalidRequest(f"{path}: {exc}") from exc


def _env(values: Mapping[str, Any], path: str) -> dict[str, str]:
    value = values.get("env", {})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise InvalidRequest(f"{path}: env must be a table of strings, not {value!r}")
    return value


def _significant_lines(lock: str) -> list[str]:
    lines = (line.strip() for line in lock.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
