"""The options that several commands share, and the choice of sandbox that they add up to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.units import parse_pair, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from warren.domain.gpus import GpuRequest
    from warren.domain.values import Limits

ImageName = Annotated[
    str | None,
    typer.Option(
        "--image", "-i", metavar="NAME", show_default=False, help="What sandboxes are made from; data unless set."
    ),
]
Memory = Annotated[
    int | None, typer.Option(parser=parse_size, metavar="SIZE", help="Memory it may use, such as 2G; 512M unless set.")
]
Cpus = Annotated[float | None, typer.Option(metavar="N", help="Processors it may use, such as 0.5 or 2; 1 unless set.")]
Disk = Annotated[
    int | None, typer.Option(parser=parse_size, metavar="SIZE", help="Size of its workspace; 2G unless set.")
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="all|N|NAMES",
        show_default=False,
        help="GPUs it has: all, auto (all if there are any), a number, or names with commas, such as nvidia.com/gpu=0.",
    ),
]
Env = Annotated[
    list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set a variable of its environment.")
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        show_default=False,
        help="What makes the sandbox: local, or bare, which isolates nothing.",
    ),
]
AllowBare = Annotated[bool, typer.Option("--allow-bare", help="Let the bare engine run code with no isolation at all.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="WARREN_URL",
        show_envvar=False,
        metavar="URL",
        show_default=False,
        help="The service to use, with the key in WARREN_API_KEY; WARREN_URL, else the service of this machine, "
        "else an engine in this command.",
    ),
]
SandboxId = Annotated[
    str, typer.Argument(metavar="SANDBOX", show_default=False, help="Its id, or as much of it as is needed to tell it.")
]
SandboxIds = Annotated[
    list[str],
    typer.Argument(metavar="SANDBOX...", show_default=False, help="Their ids, or as much as is needed to tell them."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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


def build_choice(
    *,
    image: str | None,
    memory: int | None,
    cpus: float | None,
    disk: int | None,
    env: Iterable[str] | None,
    engine: str | None,
    allow: bool,
    gpus: str | None = None,
) -> Choice:
    """Put the shared options together. Raises InvalidRequest, which names the option."""
    named = {"memory_bytes": memory, "cpus": cpus, "disk_bytes": disk}
    for option, (name, value) in zip(("--memory", "--cpus", "--disk"), named.items(), strict=True):
        if value is not None:
            _check_limit(option, name, value)
    return Choice(
        image=image,
        engine=engine,
        allow_bare=allow,
        limits={name: value for name, value in named.items() if value is not None},
        env=dict(parse_pair(pair) for pair in env or ()),
        gpus=_parse_gpus(gpus),
    )


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
