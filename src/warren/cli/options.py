"""The options that several commands share, and the choice of sandbox that they add up to."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.service.candidates import list_images, list_sandboxes
from warren.cli.units import parse_cpus, parse_pair, parse_size, render_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from warren.domain.gpus import GpuRequest
    from warren.domain.values import Limits


def choose_from(*words: str) -> Callable[[str], list[str]]:
    """Build what completes one of a few words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def use_default_url(url: str | None) -> str | None:
    """Take the service that WARREN_URL names where none is."""
    from warren.sdk.environment import default_url

    return url or default_url()


ImageName = Annotated[
    str | None,
    typer.Option(
        "--image",
        "-i",
        metavar="NAME",
        show_default=False,
        autocompletion=list_images,
        help="What sandboxes are made from; data unless set.",
    ),
]
Memory = Annotated[
    int | None, typer.Option(parser=parse_size, metavar="SIZE", help="Memory it may use, such as 2G; 512M unless set.")
]
Cpus = Annotated[
    float | None,
    typer.Option(parser=parse_cpus, metavar="N", help="Processors it may use, such as 0.5 or 2; 1 unless set."),
]
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
        autocompletion=choose_from("local", "bare"),
        help="What makes the sandbox: local, or bare, which isolates nothing.",
    ),
]
AllowBare = Annotated[bool, typer.Option("--allow-bare", help="Let the bare engine run code with no isolation at all.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        callback=use_default_url,
        metavar="URL",
        show_default=False,
        help="The service to use, with the key in WARREN_API_KEY; WARREN_URL, else the service of this machine, "
        "else an engine in this command.",
    ),
]
SandboxId = Annotated[
    str,
    typer.Argument(
        metavar="SANDBOX",
        show_default=False,
        autocompletion=list_sandboxes,
        help="Its id, or as much of it as is needed to tell it.",
    ),
]
SandboxIds = Annotated[
    list[str],
    typer.Argument(
        metavar="SANDBOX...",
        show_default=False,
        autocompletion=list_sandboxes,
        help="Their ids, or as much as is needed to tell them.",
    ),
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


def check_machine(choice: Choice) -> None:
    """Raise InvalidRequest for more memory than this machine has: sandboxes that fill it would end each other."""
    from warren.domain.errors import InvalidRequest

    asked, here = choice.limits.get("memory_bytes", 0), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if asked > here:
        raise InvalidRequest(f"--memory {render_size(asked)} is more than the {render_size(here)} of this machine")


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
