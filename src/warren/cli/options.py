"""The options that several commands share, and the choice of sandbox that they add up to."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.service.candidates import list_images, list_sandboxes
from warren.cli.units import parse_cpus, parse_duration, parse_pair, parse_size, parse_timeout, render_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warren.domain.gpus import GpuRequest
    from warren.domain.values import Limits
    from warren.settings import Settings


def choose_from(*words: str) -> Callable[[str], list[str]]:
    """Build what completes one of a few words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Declare an option that takes a value; `text` is its help."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def duration(text: str, *names: str) -> Any:
    """Declare an option that takes a duration, such as 30s."""
    return option("TIME", text, *names, parser=parse_duration)


def time_limit(text: str, *names: str) -> Any:
    """Declare an option that takes how long a program may run."""
    return option("TIME", text, *names, parser=parse_timeout)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=text, **more)


def use_default_url(url: str | None) -> str | None:
    """Take the service that WARREN_URL names where none is."""
    from warren.sdk.environment import default_url

    return url or default_url()


ImageName = Annotated[
    str | None,
    option("NAME", "Image of the sandbox; data unless set.", "--image", "-i", autocompletion=list_images),
]
Memory = Annotated[int | None, option("SIZE", "Memory limit, such as 2G; 512M unless set.", parser=parse_size)]
Cpus = Annotated[float | None, option("N", "Processor limit, such as 0.5 or 2; 1 unless set.", parser=parse_cpus)]
Disk = Annotated[int | None, option("SIZE", "Size of the workspace; 2G unless set.", parser=parse_size)]
Gpus = Annotated[
    str | None,
    option(
        "all|N|NAMES",
        "GPUs to use: all, auto (all if there are any), a number, or a list of names such as nvidia.com/gpu=0.",
        "--gpus",
    ),
]
Env = Annotated[list[str] | None, option("NAME=VALUE", "Set an environment variable; repeatable.", "--env", "-e")]
EngineName = Annotated[
    str | None,
    option(
        "NAME",
        "Engine: local, or bare, which isolates nothing.",
        autocompletion=choose_from("local", "bare"),
    ),
]
AllowBare = Annotated[
    bool, typer.Option("--allow-bare", help="Allow the bare engine, which runs code without isolation.")
]
Url = Annotated[
    str | None,
    option(
        "URL",
        "URL of the service; its key is in WARREN_API_KEY. Default: WARREN_URL, then the service of this machine, "
        "then an embedded one.",
        "--url",
        callback=use_default_url,
    ),
]
DataDir = Annotated[
    str | None, option("DIR", "Data folder of the service; from the settings unless set.", "--data-dir")
]
SandboxId = Annotated[str, argument("SANDBOX", "Id of the sandbox, or a unique prefix.", autocompletion=list_sandboxes)]
SandboxIds = Annotated[
    list[str], argument("SANDBOX...", "Ids of the sandboxes, or unique prefixes.", autocompletion=list_sandboxes)
]
Everybody = Annotated[
    bool, typer.Option("--everybody", "-a", help="Include other owners; needs an admin key. Always on without --url.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command's sandboxes are."""

    url: str | None = None
    data_dir: str | None = None

    @property
    def is_remote(self) -> bool:
        """Whether a service was named."""
        return self.url is not None

    def load_settings(self) -> Settings:
        """Load the settings of a service of this machine."""
        from warren.settings import Settings

        return Settings.load(flags={"data_dir": self.data_dir})


@dataclass(frozen=True, slots=True)
class Choice:
    """Which sandbox to make. None, and a limit that is not named, mean what the settings say."""

    image: str | None = None
    engine: str | None = None
    allow_bare: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: GpuRequest | None = None

    def build_limits(self, usual: Limits) -> Limits:
        """Put the named limits over the usual ones. Raises InvalidRequest for what makes no sense."""
        return dataclasses.replace(usual, **self.limits)

    def build_options(self) -> dict[str, Any]:
        """Write it as a client says it to a service."""
        memory, disk = self.limits.get("memory_bytes"), self.limits.get("disk_bytes")
        return {
            "image": self.image,
            "memory_mb": None if memory is None else memory >> 20,
            "cpu": self.limits.get("cpus"),
            "disk_mb": None if disk is None else disk >> 20,
            "env": dict(self.env),
            "gpus": None if self.gpus is None else self.gpus.plain(),
        }


def check_machine(choice: Choice) -> None:
    """Raise InvalidRequest for more than this machine has: sandboxes that fill its memory would end each other."""
    memory, cpus = choice.limits.get("memory_bytes", 0), choice.limits.get("cpus", 0)
    if not memory and not cpus:
        return
    from warren.bootstrap.machine import read_cpus, read_memory
    from warren.domain.errors import InvalidRequest

    if memory > (here := read_memory()):
        raise InvalidRequest(f"--memory {render_size(memory)} is more than the {render_size(here)} of this machine")
    if cpus > (cores := read_cpus()):
        raise InvalidRequest(f"--cpus {cpus:g} is more than the {cores:g} of this machine")


def build_choice(
    *,
    image: ImageName = None,
    memory: Memory = None,
    cpus: Cpus = None,
    disk: Disk = None,
    gpus: Gpus = None,
    env: Env = None,
) -> Choice:
    """Put the options that choose a sandbox together. Raises InvalidRequest, which names the option."""
    named = {"memory_bytes": memory, "cpus": cpus, "disk_bytes": disk}
    for option_name, (name, value) in zip(("--memory", "--cpus", "--disk"), named.items(), strict=True):
        if value is not None:
            _check_limit(option_name, name, value)
    return Choice(
        image=image,
        limits={name: value for name, value in named.items() if value is not None},
        env=dict(parse_pair(pair) for pair in env or ()),
        gpus=_parse_gpus(gpus),
    )


def build_target(*, url: Url = None, data_dir: DataDir = None) -> Target:
    """Put the options that choose a service together."""
    return Target(url, data_dir)


def expand_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a command's parameters of the types Choice and Target by the options that these are built from."""
    own = inspect.signature(command, eval_str=True)
    builders = {
        each.name: _BUILDERS[each.annotation] for each in own.parameters.values() if each.annotation in _BUILDERS
    }
    if not builders:
        return command
    options = {name: inspect.signature(build, eval_str=True).parameters for name, build in builders.items()}

    @functools.wraps(command)
    def build_and_run(**values: Any) -> Any:
        built = {name: builders[name](**{each: values.pop(each) for each in options[name]}) for name in builders}
        return command(**built, **values)

    parameters = [
        each for name, declared in own.parameters.items() for each in options.get(name, {name: declared}).values()
    ]
    # Typer reads the signature.
    build_and_run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return build_and_run


_BUILDERS: dict[Any, Callable[..., Any]] = {Choice: build_choice, Target: build_target}


def _parse_gpus(text: str | None) -> GpuRequest | None:
    if text is None:
        return None
    from warren.domain.errors import InvalidRequest
    from warren.domain.gpus import GpuRequest

    try:
        return GpuRequest.parse(text)
    except InvalidRequest as exc:
        raise InvalidRequest(f"--{exc}") from exc


def _check_limit(option: str, name: str, value: float) -> None:
    from warren.domain.errors import InvalidRequest
    from warren.domain.values import MIB, Limits

    limits: dict[str, Any] = {name: value}
    try:
        Limits(**limits)
    except InvalidRequest as exc:
        hint = " bytes: write it with M or G, such as 512M" if name.endswith("_bytes") and value < MIB else ""
        raise InvalidRequest(f"{str(exc).replace(name, option)}{hint}") from exc
