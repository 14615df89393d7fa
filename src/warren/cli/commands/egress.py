"""`warren egress`: what a sandbox may reach, and what it is granted for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.egress_args import Allow, build_egress, parse_target, render_egress, render_target
from warren.cli.options import AsJson, SandboxId, Target, argument, duration, option
from warren.cli.service.connection import run_with_sandbox
from warren.cli.terminal.tables import as_plain, print_either, print_json, print_table

if TYPE_CHECKING:
    from warren import AsyncSandbox

app = typer.Typer(help="Show and change the egress of a sandbox.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show", short_help="Show the egress of a sandbox.", epilog="\b\nExample:\n  warren egress show 3fa9")
def show(sandbox: SandboxId, *, where: Target, as_json: AsJson = False) -> int:
    """Show the egress of a sandbox and its temporary grants."""

    async def work(found: AsyncSandbox) -> None:
        grants = await found.egress.grants()
        if as_json:
            print_json({"egress": as_plain(found.info.egress), "grants": [as_plain(grant) for grant in grants]})
            return
        print(render_egress(found.info.egress))
        rows = [
            (grant.id, render_target(grant.host, grant.ports, grant.methods), grant.expires_at.astimezone().isoformat())
            for grant in grants
        ]
        if rows:
            print_table(None, ("grant", "for a while", "until"), rows)

    return run_with_sandbox(where, sandbox, work, to_use=False)


@app.command(
    "set",
    short_help="Change the egress of a sandbox.",
    epilog="\b\nExamples:\n  warren egress set 3fa9 packages\n"
    "  warren egress set 3fa9 rules --allow 'api.example.org' --allow 'db.example.org:5432'\n"
    "  warren egress set 3fa9 none    # open connections are cut",
)
def change(
    sandbox: SandboxId,
    mode: Annotated[str, argument("MODE", "none, packages, rules (see --allow) or open.")],
    *,
    allow: Allow = None,
    where: Target,
    as_json: AsJson = False,
) -> int:
    """Change the egress of a sandbox at once. Connections that are no longer allowed are closed."""
    egress = build_egress(mode, allow)

    async def work(found: AsyncSandbox) -> None:
        info = await found.update(egress=egress)
        print_either(as_json, as_plain(info.egress), f"{found.id} may reach: {render_egress(info.egress)}.")

    return run_with_sandbox(where, sandbox, work)


@app.command(
    "grant",
    short_help="Let a sandbox reach a host for a limited time.",
    epilog="\b\nExamples:\n  warren egress grant 3fa9 api.example.org --for 10m\n"
    "  warren egress grant 3fa9 '*.example.org:443,8443'\n  warren egress grant 3fa9 data.example.org:80 --method GET",
)
def grant(
    sandbox: SandboxId,
    target: Annotated[
        str, argument("HOST[:PORTS]", "Host name, glob, address or network; ports 80 and 443 unless given.")
    ],
    *,
    duration: Annotated[float, duration("Duration of the grant, such as 10m.", "--for")] = "1h",  # type: ignore[assignment]  # typer parses what stands here as it does what is typed
    method: Annotated[
        list[str] | None, option("METHOD", "Allow only this method of plain HTTP; repeatable.", "--method")
    ] = None,
    where: Target,
    as_json: AsJson = False,
) -> int:
    """Let a sandbox reach a host for a limited time, in addition to its egress."""
    rule = parse_target(target)

    async def work(found: AsyncSandbox) -> None:
        made = await found.egress.grant(
            **rule, methods=[each.upper() for each in method or ()], expires_in_seconds=duration
        )
        until = made.expires_at.astimezone().isoformat(timespec="seconds")
        sentence = f"{made.id}: {render_target(made.host, made.ports, made.methods)} until {until}."
        print_either(as_json, as_plain(made), sentence)

    return run_with_sandbox(where, sandbox, work)


@app.command(
    "revoke",
    short_help="Revoke a grant.",
    epilog="\b\nExample:\n  warren egress revoke 3fa9 grt_5c1f0a9b2d3e4f60718293a4",
)
def revoke(
    sandbox: SandboxId,
    grant_id: Annotated[str, argument("GRANT", "Id of the grant, from `warren egress show`.")],
    *,
    where: Target,
) -> int:
    """Revoke a grant. Connections that are no longer allowed are closed."""

    async def work(found: AsyncSandbox) -> None:
        await found.egress.revoke(grant_id)
        print(f"{grant_id} is revoked.")

    return run_with_sandbox(where, sandbox, work)
