"""`warren sandbox install`: packages into a sandbox."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AsJson, SandboxId, Target, argument, time_limit
from warren.cli.service.connection import run_with_sandbox
from warren.cli.terminal.tables import as_plain, print_json

if TYPE_CHECKING:
    from warren import AsyncSandbox

EXAMPLES = """\b
Examples:
  warren sandbox install 3fa9 rich
  warren sandbox install 3fa9 'httpx[http2]>=0.27' polars
  warren sandbox install 3fa9 --npm lodash@4.17.21
"""


def install(
    sandbox: SandboxId,
    packages: Annotated[list[str], argument("PACKAGE...", "Package names, with optional version specifiers.")],
    *,
    npm: Annotated[bool, typer.Option("--npm", help="Install from npm instead of a Python index.")] = False,
    upgrade: Annotated[bool, typer.Option("--upgrade", "-U", help="Upgrade to the newest versions.")] = False,
    timeout: Annotated[float | None, time_limit("Time limit, such as 5m.")] = None,
    target: Target,
    as_json: AsJson = False,
) -> int:
    """Install packages in a sandbox; they stay with its workspace.

    The egress of the sandbox must include the package index: see `--egress` of `warren sandbox create`.
    """

    def tell(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    async def work(place: AsyncSandbox) -> int:
        done = await place.install(
            *packages,
            ecosystem="npm" if npm else "python",
            upgrade=upgrade,
            timeout_seconds=timeout,
            on_output=None if as_json else tell,
        )
        if as_json:
            print_json(as_plain(done))
        else:
            for package in done.packages:
                print(f"{package.name} {package.version}")
            if done.hint:
                print(done.hint, file=sys.stderr)
        return 0 if done.ok else 1

    return run_with_sandbox(target, sandbox, work)
