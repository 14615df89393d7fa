"""`warren keys`: who may use the service."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from warren.cli.options import AsJson, DataDir, argument, choose_from, duration, option
from warren.cli.terminal.tables import print_either, print_json, print_table
from warren.cli.units import render_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.core.identity.keys import Keys
    from warren.domain.records import ApiKey, Scope
    from warren.stores.base import Store

_Found = TypeVar("_Found")

app = typer.Typer(
    help="Make, list and revoke the API keys of the service.", no_args_is_help=True, rich_markup_mode=None
)


def _parse_scope(text: str) -> Scope:
    from warren.domain.records import Scope

    try:
        return Scope(text)
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r} is not a scope: choose one of {', '.join(Scope)}.") from exc


@app.command(
    "create",
    short_help="Make a key.",
    epilog="\b\nExamples:\n  warren keys create laptop\n"
    "  warren keys create ci --scope run --expires 30d\n"
    "  warren keys create onyx --network 10.0.0.7\n"
    "  warren keys create dashboard --tenant acme --subject ann --scope read --json",
)
def create(
    name: Annotated[str, argument("NAME", "Name of the key, unique among keys in force.")],
    *,
    tenant: Annotated[str, option("NAME", "Tenant of the key; tenants share nothing.")] = "default",
    subject: Annotated[str | None, option("NAME", "Owner of its sandboxes; the key's name unless set.")] = None,
    scope: Annotated[
        Any,
        option(
            "SCOPE",
            "Scope: read, run or admin.",
            parser=_parse_scope,
            autocompletion=choose_from("read", "run", "admin"),
        ),
    ] = "run",
    expires: Annotated[float | None, duration("Lifetime, such as 30d; unlimited unless set.")] = None,
    network: Annotated[
        list[str] | None,
        option("NETWORK", "Address or network of its clients; may be repeated. All unless set."),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key and print its secret. It is not stored and cannot be shown again.

    Scopes: run makes and uses sandboxes of its owner; read only lists and reads them; admin includes those of all
    owners, and the audit record.
    """
    from warren.cli.service.offline_store import build_caller

    choice = {"tenant": tenant, "subject": subject, "scope": scope, "ttl_s": expires, "by": build_caller()}
    choice["networks"] = tuple(network or ())
    # Keys may be made before the first start, which then makes none.
    key, secret = _run(data_dir, lambda keys, _store: keys.create(name, **choice), must_exist=False)
    if as_json:
        print_json({**_as_json(key), "secret": secret})
        return
    print(secret)
    print("This is the only time that it is shown. Send it as `Authorization: Bearer wrn_…`.", file=sys.stderr)


@app.command("list", short_help="List the keys.", epilog="\b\nExamples:\n  warren keys list\n  warren keys list --json")
def list_keys(*, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the keys, including expired and revoked ones. Secrets are not stored."""
    keys = _run(data_dir, lambda _keys, store: store.keys())
    if as_json:
        print_json([_as_json(key) for key in keys])
        return
    rows = [
        (
            key.name,
            key.id,
            f"{key.subject} of {key.tenant}",
            str(key.scope),
            render_time(key.created_at),
            render_time(key.expires_at) if key.expires_at else "never",
            _state(key),
        )
        for key in keys
    ]
    print_table(None, ("name", "id", "whose", "scope", "made", "expires", "state"), rows)


@app.command(
    "revoke",
    short_help="Revoke a key.",
    epilog="\b\nExamples:\n  warren keys revoke laptop\n  warren keys revoke key_0f1e2d3c4b5a69788796a5b4",
)
def revoke(
    id_or_name: Annotated[str, argument("ID_OR_NAME", "Id or name, from `warren keys list`.")],
    *,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key: a running service refuses it within a second. Its sandboxes stay."""
    from warren.cli.service.offline_store import build_caller

    key = _run(data_dir, lambda keys, _store: keys.revoke(id_or_name, by=build_caller()))
    print_either(as_json, {**_as_json(key), "state": "revoked"}, f"{key.name} ({key.id}) is revoked.")


def _run(data_dir: str | None, work: Callable[[Keys, Store], Awaitable[_Found]], *, must_exist: bool = True) -> _Found:
    import anyio

    from warren.cli.service.offline_store import opened_store
    from warren.core.identity.keys import Keys

    async def open_and_work() -> _Found:
        async with opened_store(data_dir, must_exist=must_exist) as (store, audit):
            return await work(Keys(store, audit), store)

    return anyio.run(open_and_work)


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "in force" if key.expires_at is None or time.time() < key.expires_at else "expired"


def _as_json(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "subject": key.subject,
        "scope": str(key.scope),
        "created_at": _time(key.created_at),
        "expires_at": _time(key.expires_at),
        "revoked_at": _time(key.revoked_at),
        "networks": list(key.networks),
        "state": _state(key),
    }


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
