"""`warren sandbox`: make sandboxes, run things in them, look after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.commands import sandbox_cp, sandbox_exec, sandbox_install, sandbox_logs
from warren.cli.egress_args import Allow, EgressMode, build_egress
from warren.cli.errors import explain
from warren.cli.options import AsJson, Choice, SandboxIds, Target, duration, option
from warren.cli.service.connection import find_sandbox, prepare_image, run_with_client
from warren.cli.terminal.tables import as_plain, print_json
from warren.cli.units import parse_pair
from warren.domain.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren import AsyncClient, AsyncSandbox
    from warren.cli.terminal.signals import Signals

app = typer.Typer(
    help="Make sandboxes that stay, run things in them, and look after them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    "create",
    short_help="Make a sandbox.",
    epilog="\b\nExamples:\n  warren sandbox create\n"
    "  warren sandbox create --image data --memory 2G --label project=atlas\n"
    "  warren sandbox create --egress packages\n"
    "  warren sandbox create --gpus all --memory 16G\n"
    "  warren sandbox create --allow api.example.org --allow '*.example.net:443'\n"
    "  id=$(warren sandbox create --quiet)\n  warren sandbox create --session ann    # the same one the next time",
)
def create(
    *,
    choice: Choice,
    egress: EgressMode = None,
    allow: Allow = None,
    label: Annotated[list[str] | None, option("NAME=VALUE", "Add a label; repeatable.", "--label", "-l")] = None,
    session: Annotated[str | None, option("KEY", "Session key; an existing sandbox with this key is returned.")] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Delete the workspace when the sandbox stops.")
    ] = False,
    idle_timeout: Annotated[float | None, duration("Stop the sandbox after this idle time.")] = None,
    lifetime: Annotated[float | None, duration("Destroy the sandbox after this time.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id.")] = False,
    target: Target,
    as_json: AsJson = False,
) -> int:
    """Make a sandbox that exists until it is removed, and print its id."""
    options: dict[str, Any] = {
        **choice.build_options(),
        "egress": build_egress(egress, allow),
        "metadata": dict(parse_pair(pair) for pair in label or ()),
        "session_key": session,
        "storage": "ephemeral" if ephemeral else "persistent",
        "idle_timeout_seconds": idle_timeout,
        "max_lifetime_seconds": lifetime,
    }
    prepare_image(target, choice)

    async def work(client: AsyncClient, _signals: Signals) -> int:
        made = await client.sandboxes.create(**options)
        if quiet:
            print(made.id)
        elif as_json:
            print_json(as_plain(made.info))
        else:
            print(f"{made.id} is {made.info.status}. Try: warren sandbox exec {made.id} -- echo hello")
        return 0

    return run_with_client(target, work)


app.command("exec", short_help="Run a program in a sandbox.", epilog=sandbox_exec.EXAMPLES)(sandbox_exec.run)
app.command("logs", short_help="Show the output of an execution.", epilog=sandbox_logs.EXAMPLES)(sandbox_logs.logs)


@app.command(
    "stop",
    short_help="Stop sandboxes; workspaces stay.",
    epilog="\b\nExamples:\n  warren sandbox stop 3fa9\n  warren sandbox stop $(warren ps --quiet --status running)",
)
def stop(sandboxes: SandboxIds, *, target: Target, as_json: AsJson = False) -> int:
    """Stop sandboxes: processes end, memory is freed, and the workspace stays for the next start."""
    return _for_each(sandboxes, "stopped", lambda each: each.stop(), target, as_json=as_json)


@app.command("start", short_help="Start stopped sandboxes.", epilog="\b\nExample:\n  warren sandbox start 3fa9")
def start(sandboxes: SandboxIds, *, target: Target, as_json: AsJson = False) -> int:
    """Start stopped sandboxes. An execution in a stopped sandbox starts it too."""
    return _for_each(sandboxes, "running", lambda each: each.resume(), target, as_json=as_json)


@app.command(
    "rm",
    short_help="Remove sandboxes, files and all.",
    epilog="\b\nExamples:\n  warren sandbox rm 3fa9\n  warren sandbox rm $(warren ps --quiet --status stopped)",
)
def remove(sandboxes: SandboxIds, *, target: Target, as_json: AsJson = False) -> int:
    """Remove sandboxes and their workspaces, running or not."""
    return _for_each(sandboxes, "removed", lambda each: each.delete(), target, as_json=as_json)


app.command("install", short_help="Install packages.", epilog=sandbox_install.EXAMPLES)(sandbox_install.install)
app.command("cp", short_help="Copy files in and out.", epilog=sandbox_cp.EXAMPLES)(sandbox_cp.copy)


def _for_each(
    names: list[str], done: str, act: Callable[[AsyncSandbox], Awaitable[object]], target: Target, *, as_json: bool
) -> int:
    """Do one thing to each, and go on after one that fails; then the exit code is that of the last that did."""

    async def work(client: AsyncClient, _signals: Signals) -> int:
        code, told = 0, []
        # First find them all: of a misspelt list nothing shall be done.
        found = {each.id: each for each in [await find_sandbox(client, target, name) for name in names]}
        for sandbox in found.values():
            try:
                await act(sandbox)
            except RequestError as error:
                code = explain(error)
                continue
            told.append({"id": sandbox.id, "status": done})
            if not as_json:
                print(f"{sandbox.id} {'is ' if done != 'removed' else 'was '}{done}.")
        if as_json:
            print_json(told)
        return code

    return run_with_client(target, work)
