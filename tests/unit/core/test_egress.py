"""Egress as owners use it: policies, grants, revocation, and brokered secrets."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, cast

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from unit.core.estate import ADMIN, ANN, BOB, READER, Estate, wait_until
from unit.core.meddling import MeddledStore, tell
from warren.core.agent.client import TunnelStream
from warren.core.egress.connection import Asked
from warren.core.egress.control import EgressControl, NewGrant, NewSecret
from warren.core.egress.policy_table import EgressPolicies
from warren.core.egress.record import EgressJournal, EgressRecord
from warren.core.egress.session import Refused, Session, Surroundings
from warren.core.egress.socks import run_socks
from warren.core.egress.traffic import Traffic
from warren.core.egress.upstream import parse_upstream
from warren.core.policy.policy import EgressLimits, Policy, TenantLimits
from warren.core.sandboxes.changes import SandboxChanges
from warren.core.telemetry.counters import Counters
from warren.domain.egress import Egress, EgressMode, EgressRule
from warren.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from warren.domain.records import AuditQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
    from pathlib import Path

    from unit.core.conftest import Serve
    from warren.domain.values import Image

RULE = EgressRule(host="api.example.org", ports=(443,))
SECRET = NewSecret(name="API_TOKEN", value="s3cret value", hosts=("API.example.org",))


def control(estate: Estate) -> EgressControl:
    policies = EgressPolicies(estate.transitions.live_sandboxes, estate.policy)
    return EgressControl(estate.sandboxes, estate.store, estate.audit, policies)


def test_a_sandbox_reaches_what_was_set_and_granted_and_no_longer(serve: Serve) -> None:
    async def scenario(estate: Estate) -> None:
        egress = control(estate)
        policies = egress.policies
        changed: list[str] = []
        policies.on_change.append(changed.append)
        sandbox = await estate.create()

        def reaches(host: str = "api.example.org") -> bool:
            return policies.decide(sandbox.id, host, 443).allowed

        assert sandbox.egress == Egress()
        assert not reaches()
        grant = await egress.grant(ANN, sandbox.id, NewGrant(rule=RULE, expires_in_s=1000))
        assert reaches()
        assert await egress.grants(READER, sandbox.id) == (grant,)
        await egress.revoke(ANN, sandbox.id, grant.id)
        assert not reaches()
        assert changed == [sandbox.id]
        updated = await estate.sandboxes.update(ANN, sandbox.id, SandboxChanges(egress=Egress(mode=EgressMode.OPEN)))
        assert updated.egress.mode is EgressMode.OPEN
        assert reaches("example.com")
        assert changed == [sandbox.id] * 2
        for caller, error in ((BOB, NotFound), (ADMIN, Forbidden), (READER, Forbidden)):
            with pytest.raises(error):
                await egress.grant(caller, sandbox.id, NewGrant(rule=RULE))
        with pytest.raises(NotFound):
            await egress.revoke(ANN, sandbox.id, grant.id)
        await estate.sandboxes.delete(ANN, sandbox.id)
        assert not reaches()
        assert policies.grants == {}
        assert await estate.audited("egress.grant") == ["ok", "not_found", "forbidden", "forbidden"]
        assert await estate.audited("egress.revoke") == ["ok", "not_found"]
        assert await estate.audited("egress.set") == ["ok"]

    serve(scenario)


def test_grants_and_secrets_survive_a_restart_and_grants_end_by_themselves(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    policy = Policy(image=python_image.name)

    async def first() -> str:
        async with Estate(str(tmp_path), images_dir, policy).open() as estate:
            sandbox, egress = await estate.create(), control(estate)
            await egress.grant(ANN, sandbox.id, NewGrant(rule=RULE, expires_in_s=1))
            await egress.grant(ANN, sandbox.id, NewGrant(rule=EgressRule(host="b.example"), expires_in_s=1000))
            await egress.create_secret(ANN, sandbox.id, SECRET)
            return sandbox.id

    async def second(sandbox_id: str) -> None:
        async with Estate(str(tmp_path), images_dir, policy).open() as estate:
            egress = control(estate)
            await egress.load()
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(egress.run)
                    await wait_until(lambda: len(egress.policies.grants[sandbox_id]) == 1)
                    tasks.cancel_scope.cancel()
                assert [each.rule.host for each in await egress.grants(ANN, sandbox_id)] == ["b.example"]
                assert [each.rule.host for each in await estate.store.grants()] == ["b.example"]
                assert await estate.audited("egress.expire") == ["ok"]
                (secret,) = egress.policies.secrets_for(sandbox_id, "api.example.ORG.")
                assert secret.value == SECRET.value
                said = await estate.shell(sandbox_id, "echo $API_TOKEN")
                assert said.stdout.decode().strip() == secret.placeholder
            finally:
                await estate.clean()

    anyio.run(second, anyio.run(first))


def test_a_secret_is_used_and_never_seen(serve: Serve) -> None:
    async def scenario(estate: Estate) -> None:
        egress = control(estate)
        sandbox = await estate.create(env={"MINE": "x"})
        made = await egress.create_secret(ANN, sandbox.id, SECRET)
        assert made.hosts == ("api.example.org",)
        assert (await estate.shell(sandbox.id, "echo $API_TOKEN,$MINE")).stdout.decode() == f"{made.placeholder},x\n"
        assert egress.policies.secrets_for(sandbox.id, "other.example.org") == ()
        again = NewSecret(name="API_TOKEN", value="another one", hosts=("b.example",))
        assert (await egress.create_secret(ANN, sandbox.id, again)).placeholder == made.placeholder
        await estate.sandboxes.stop(ANN, sandbox.id)
        assert (await estate.shell(sandbox.id, "echo $API_TOKEN")).stdout.decode().strip() == made.placeholder
        with pytest.raises(Conflict, match="MINE"):
            await egress.create_secret(ANN, sandbox.id, NewSecret(name="MINE", value="yyyyyyyy", hosts=("b.example",)))
        for host in ("*.example.org", "10.0.0.1"):
            with pytest.raises(InvalidRequest, match="exact names"):
                await egress.create_secret(ANN, sandbox.id, NewSecret(name="T", value="yyyyyyyy", hosts=(host,)))
        await egress.delete_secret(ANN, sandbox.id, "API_TOKEN")
        assert (await estate.shell(sandbox.id, "echo .$API_TOKEN.")).stdout == b"..\n"
        assert await egress.secrets(ANN, sandbox.id) == ()
        await estate.audit.flush()
        rows = (await estate.store.audit(AuditQuery(limit=1000))).items
        assert {"secret.create", "secret.delete"} <= {row.entry.action for row in rows}
        assert not [row for row in rows if SECRET.value in repr(row)]

    assert SECRET.value not in repr(SECRET)
    serve(scenario)


def test_what_a_tenant_may_have_is_held_against_everything(serve: Serve) -> None:
    ceiling = TenantLimits(egress=Egress(mode=EgressMode.PACKAGES, rules=(EgressRule(host="10.0.0.0/8", ports=()),)))

    async def scenario(estate: Estate) -> None:
        egress = control(estate)
        sandbox = await estate.create()
        assert sandbox.egress.mode is EgressMode.PACKAGES, "the default is no more than the ceiling"
        opened = Egress(mode=EgressMode.OPEN)
        with pytest.raises(Forbidden, match="packages at most"):
            await estate.create(egress=opened)
        with pytest.raises(Forbidden, match="packages at most"):
            await estate.sandboxes.update(ANN, sandbox.id, SandboxChanges(egress=opened))
        with pytest.raises(Forbidden, match=r"203\.0\.112\.1"):
            await egress.grant(ANN, sandbox.id, NewGrant(rule=EgressRule(host="203.0.112.1")))
        await egress.grant(ANN, sandbox.id, NewGrant(rule=EgressRule(host="10.1.2.3")))
        assert egress.policies.decide(sandbox.id, "10.1.2.3", 443).allowed
        assert not egress.policies.decide(sandbox.id, "10.1.2.4", 443).allowed

    serve(scenario, egress=Egress(mode=EgressMode.OPEN), tenant=ceiling)


class GrantsStore(MeddledStore):
    """A store that lets another caller act while a grant is removed."""

    async def remove_grant(self, grant_id: str) -> bool:
        await self.let_others_act()
        return await super().remove_grant(grant_id)


def test_a_sandbox_that_is_deleted_while_grants_expire_ends_nothing_else(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    async def scenario(estate: Estate, store: GrantsStore) -> None:
        egress = control(estate)
        kept, deleted = await estate.create(), await estate.create()
        for sandbox in (kept, deleted):
            grant = await egress.grant(ANN, sandbox.id, NewGrant(rule=RULE))
            over = dataclasses.replace(grant, rule=dataclasses.replace(grant.rule, until=1.0))
            egress.policies.grants[sandbox.id][grant.id] = over

        async def delete() -> None:
            await estate.sandboxes.delete(ANN, deleted.id)

        store.meanwhile = delete
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(egress.run)
            await wait_until(lambda: egress.policies.grants == {kept.id: {}})
            tasks.cancel_scope.cancel()
        assert await estate.audited("egress.expire") == ["ok"]

    tell(GrantsStore(str(tmp_path)), str(tmp_path), images_dir, python_image.name, scenario)


class Gate:
    """Egress through a proxy of the test's own, which takes whatever is asked for, and hears when it is closed."""

    def __init__(self, estate: Estate, egress: EgressControl, folder: Path) -> None:
        self.ended = anyio.Event()
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        record = EgressRecord(estate.audit, EgressJournal(str(folder / "journal")))
        self.around = Surroundings(
            policies=egress.policies,
            traffic=Traffic(record, Counters(), EgressLimits()),
            audit=estate.audit,
            resolve=self._find_public,
            find_upstream=self._find_gate,
            inner={},
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Surroundings]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        self.around.upstream = parse_upstream(f"http://gate.example:{port}")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve_one)
            yield self.around
            with anyio.fail_after(60):
                await self.ended.wait()
            tasks.cancel_scope.cancel()

    async def _serve_one(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        self.ended.set()

    async def _find_public(self, _owner: Hashable, _name: str) -> tuple[str, ...]:
        return ("93.184.216.34",)

    async def _find_gate(self, _owner: Hashable, _name: str) -> tuple[str, ...]:
        if self.meanwhile is not None:
            await self.meanwhile()
        return ("127.0.0.1",)


def test_what_is_taken_back_while_it_is_connected_to_is_refused_and_closed(serve: Serve, tmp_path: Path) -> None:
    async def scenario(estate: Estate) -> None:
        egress = control(estate)
        sandbox = await estate.create()
        grant = await egress.grant(ANN, sandbox.id, NewGrant(rule=RULE))
        gate = Gate(estate, egress, tmp_path)
        gate.meanwhile = lambda: egress.revoke(ANN, sandbox.id, grant.id)
        async with gate.serving() as around:
            session = Session(around, sandbox.id, ANN.principal.owner, cast("TunnelStream", None))
            with pytest.raises(Refused):
                await session.open(Asked("api.example.org", 443, "connect"))
        assert await estate.audited("egress.connect") == ["refused"]

    serve(scenario)


class Told(TunnelStream):
    """A program that asks by SOCKS, and is cut off while it is told that it has what it asked for."""

    def __init__(self) -> None:
        self.says = [b"\x05\x01\x00", b"\x05\x01\x00\x03\x0fapi.example.org\x01\xbb"]
        self.scope: anyio.CancelScope | None = None

    async def receive(self) -> bytes:
        return self.says.pop(0) if self.says else b""

    async def send(self, data: bytes) -> None:
        if len(data) > 2:
            assert self.scope is not None
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()


def test_what_is_cut_while_its_program_is_told_of_it_is_closed_and_written_down(serve: Serve, tmp_path: Path) -> None:
    async def scenario(estate: Estate) -> None:
        egress, told = control(estate), Told()
        sandbox = await estate.create()
        await egress.grant(ANN, sandbox.id, NewGrant(rule=RULE))
        async with Gate(estate, egress, tmp_path).serving() as around:
            session = Session(around, sandbox.id, ANN.principal.owner, told)
            told.scope = session.scope
            with session.scope:
                await run_socks(session)
            assert around.traffic.live == {}
        assert await estate.audited("egress.connect") == ["abandoned"]

    serve(scenario)
