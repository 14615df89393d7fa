"""`warren ps`: which sandboxes there are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AsJson, Everybody, Target, choose_from, option
from warren.cli.quick.ps import LIMIT, print_sandboxes
from warren.cli.service.connection import run_with_client
from warren.cli.terminal.tables import as_plain, print_json
from warren.cli.units import parse_pair

if TYPE_CHECKING:
    from warren import AsyncClient, SandboxInfo
    from warren.cli.terminal.signals import Signals

EXAMPLES = """\b
Examples:
  warren ps
  warren ps --status running --label project=atlas
  warren sandbox rm $(warren ps --quiet --status stopped)
  warren ps --url https://sandboxes.example.com
"""


def ps(
    *,
    status: Annotated[
        list[str] | None,
        option(
            "STATUS",
            "Only this status, such as running or stopped; repeatable.",
            autocompletion=choose_from("running", "stopped", "creating", "starting", "stopping", "destroying"),
        ),
    ] = None,
    image: Annotated[str | None, option("NAME", "Only sandboxes of this image.", "--image", "-i")] = None,
    label: Annotated[
        list[str] | None, option("NAME=VALUE", "Only sandboxes with this label; repeatable.", "--label", "-l")
    ] = None,
    everybody: Everybody = False,
    limit: Annotated[int, option("N", "Maximum number of rows.", min=1)] = LIMIT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only ids.")] = False,
    target: Target,
    as_json: AsJson = False,
) -> int:
    """List the sandboxes, newest first.

    If no service runs, the store is read; sandboxes that have died are then stopped or removed first.
    """
    labels = dict(parse_pair(pair) for pair in label or ())
    of_everybody = everybody or not target.is_remote

    async def work(client: AsyncClient, _signals: Signals) -> int:
        found: list[SandboxInfo] = []
        async for sandbox in client.sandboxes.all(
            status=status or (), image=image, metadata=labels, everybody=of_everybody
        ):
            if len(found) == limit:
                print(f"warren: there are more than {limit}; --limit shows more", file=sys.stderr)
                break
            found.append(sandbox.info)
        if quiet:
            print("".join(f"{info.id}\n" for info in found), end="")
        elif as_json:
            print_json([as_plain(info) for info in found])
        else:
            print_sandboxes([as_plain(info) for info in found], shows_owner=everybody)
        return 0

    return run_with_client(target, work)
