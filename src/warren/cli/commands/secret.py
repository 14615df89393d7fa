"""`warren secret`: secrets that a sandbox uses and never has."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AsJson, SandboxId, Target, argument, option
from warren.cli.service.connection import run_with_sandbox
from warren.cli.terminal.tables import as_plain, print_either, print_json, print_table

if TYPE_CHECKING:
    from warren import AsyncSandbox

app = typer.Typer(
    help="Secrets that a sandbox uses but never sees: the service inserts them into its requests.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, argument("NAME", "Name of the secret, and of the environment variable inside.")]


@app.command(
    "add",
    short_help="Let a sandbox use a secret.",
    epilog="\b\nExamples:\n  warren secret add 3fa9 API_TOKEN --host api.example.org    # asks for the value\n"
    "  warren secret add 3fa9 API_TOKEN --host api.example.org < token.txt",
)
def add(
    sandbox: SandboxId,
    name: Name,
    *,
    host: Annotated[list[str], option("HOST", "Exact name of a host that may receive it; repeatable.", "--host")],
    target: Target,
    as_json: AsJson = False,
) -> int:
    """Let a sandbox use a secret at some hosts. The value is read from standard input, or from a prompt.

    The sandbox gets a placeholder in an environment variable of that name, for programs that start from now on. A
    program sends it in place of the value to http://HOST; the service inserts the value and uses TLS to that host. The
    egress of the sandbox must include the host.
    """
    value = getpass.getpass(f"Value of {name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")

    async def work(found: AsyncSandbox) -> None:
        made = await found.egress.add_secret(name, value, hosts=host)
        sentence = f"{made.name} can be used at {', '.join(made.hosts)}. Inside, ${made.name} is {made.placeholder}."
        print_either(as_json, as_plain(made), sentence)

    return run_with_sandbox(target, sandbox, work)


@app.command("list", short_help="List the secrets of a sandbox.", epilog="\b\nExample:\n  warren secret list 3fa9")
def list_secrets(sandbox: SandboxId, *, target: Target, as_json: AsJson = False) -> int:
    """List the secrets of a sandbox; their values are never shown."""

    async def work(found: AsyncSandbox) -> None:
        secrets = await found.egress.secrets()
        if as_json:
            print_json([as_plain(secret) for secret in secrets])
            return
        rows = [(secret.name, ", ".join(secret.hosts), secret.placeholder) for secret in secrets]
        print_table(None, ("secret", "hosts", "placeholder"), rows)

    return run_with_sandbox(target, sandbox, work, to_use=False)


@app.command("rm", short_help="Remove a secret.", epilog="\b\nExample:\n  warren secret rm 3fa9 API_TOKEN")
def remove(sandbox: SandboxId, name: Name, *, target: Target) -> int:
    """Remove a secret: its placeholder is no longer replaced."""

    async def work(found: AsyncSandbox) -> None:
        await found.egress.remove_secret(name)
        print(f"{name} is removed.")

    return run_with_sandbox(target, sandbox, work)
