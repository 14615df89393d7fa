"""Health: liveness, readiness, details and metrics, for load balancers, dialects' clients and operators.

`/livez` says that the process answers, `/readyz` that it can work, `/healthz` and `/health` the same in the words of
other products; `/healthz/details` (admin) has the state of every part, `/metrics` (read) the numbers.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import platform
import time
from typing import TYPE_CHECKING, Any

import anyio

from warren import __version__
from warren.core.policy.gpus import list_gpus
from warren.domain.errors import Error
from warren.domain.records import AuditQuery, Caller, Scope
from warren.gateway.api.auth import check_scope
from warren.gateway.api.operations import Reply, json_reply
from warren.gateway.ops.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Request

    from warren.core.service import Service
    from warren.domain.gpus import Gpu
    from warren.gateway.api.auth import Auth
    from warren.gateway.ops.metrics import Metrics, Report

_ALIVE = json_reply({"status": "ok"})
LOOKED_S = 1.0
"""Engine and store are checked at most once in this time, however many probes come."""
_PATIENCE_S = 5.0
_ALMOST_FULL = "disk: almost full, so creates, starts and uploads are refused"

_log = logging.getLogger(__name__)


class Health:
    """An ASGI application of these addresses. Others go to `otherwise`."""

    def __init__(
        self,
        service: Service,
        auth: Auth,
        metrics: Metrics,
        otherwise: ASGIApp,
        *,
        reports: Sequence[Report] = (),
        looked_s: float = LOOKED_S,
        open_metrics: bool = False,
    ) -> None:
        self._service = service
        self._auth = auth
        self._metrics = metrics
        self._otherwise = otherwise
        self._reports = reports
        """Additions of dialects."""
        self._looked_s = looked_s
        self._open_metrics = open_metrics
        self._looked_at = -math.inf
        self._looking = anyio.Lock(fast_acquire=True)
        self._found: list[str] = []
        self._gpus: tuple[Gpu, ...] = ()
        self._table: dict[str, Callable[[Request], Awaitable[ASGIApp]]] = {
            "/livez": self._live,
            "/readyz": self._ready,
            "/healthz": self._healthy,
            "/health": self._health,
            "/healthz/details": self._details,
            "/health/details": self._details,
            "/metrics": self._numbers,
        }

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        answer = self._table.get(scope["path"]) if scope["type"] == "http" else None
        if answer is None or scope["method"] not in {"GET", "HEAD"}:
            await self._otherwise(scope, receive, send)
            return
        scope["state"]["route"] = scope["path"]
        reply = await answer(scope)
        await reply(scope, receive, send)

    async def reasons(self) -> list[str]:
        """Return why the service cannot work now; nothing when it can."""
        # Concurrent probes share one check in flight: before the first one ends there is no earlier result.
        async with self._looking:
            if time.monotonic() - self._looked_at > self._looked_s:
                store, engine = await self._look("store", self._ask_store), await self._look("engine", self._ask_engine)
                self._found, self._looked_at = [*store, *engine], time.monotonic()
        stopping = ["stopping: no new work is taken"] if self._service.is_draining else []
        shortage = [] if self._service.space.find_shortage() is None else [_ALMOST_FULL]
        return [*stopping, *shortage, *self._found]

    def _caveats(self) -> list[str]:
        """Return what the service refuses on this host, for its operator: also where it is ready."""
        return [*filter(None, [self._service.space.find_shortage()]), *getattr(self._service.engine, "caveats", ())]

    async def _look(self, what: str, ask: Callable[[], Awaitable[None]]) -> list[str]:
        try:
            with anyio.fail_after(_PATIENCE_S):
                await ask()
        except TimeoutError:
            return [f"{what}: no answer within {_PATIENCE_S:g} seconds"]
        except (Error, OSError) as error:
            # These addresses need no key: the sentence, which may name folders of this host, goes to the log only.
            _log.warning("health.failed", extra={"what": what, "why": error})
            return [f"{what}: {error.code if isinstance(error, Error) else 'failed'}"]
        return []

    async def _ask_store(self) -> None:
        await self._service.store.ping()
        # A full disk may still take a ping and not the audit entries that wait.
        await self._service.audit.flush()

    async def _ask_engine(self) -> None:
        async for _ in self._service.engine.handles():
            break
        self._gpus = await list_gpus(self._service.engine)

    async def _live(self, _scope: Request) -> ASGIApp:
        return _ALIVE

    async def _ready(self, _scope: Request) -> ASGIApp:
        reasons = await self.reasons()
        body = {"status": "degraded" if reasons else "healthy", "reasons": reasons, "caveats": self._caveats()}
        body["gpus"] = [gpu.id for gpu in self._gpus if gpu.usable]
        return json_reply(body, 503 if reasons else 200)

    async def _healthy(self, _scope: Request) -> ASGIApp:
        reasons = await self.reasons()
        body = {"status": "degraded" if reasons else "healthy", "version": __version__, "reasons": reasons}
        return json_reply(body, 503 if reasons else 200)

    async def _health(self, _scope: Request) -> ASGIApp:
        """Answer in the words of several products at once; one of them expects 200 also when it is unhealthy."""
        reasons = await self.reasons()
        body: dict[str, Any] = {
            "status": "error" if reasons else "ok",
            "message": "; ".join(reasons) or None,
            "version": __version__,
        }
        for report in self._reports:
            body |= report.health()
        return json_reply(body)

    async def _details(self, scope: Request) -> ASGIApp:
        # Additions of dialects are for every key; the rest is for admins.
        caller = await self._identify(scope, Scope.READ if self._reports else Scope.ADMIN)
        reasons = await self.reasons()
        details: dict[str, Any] = {}
        for report in self._reports:
            details |= report.details(reasons)
        details |= {"status": "degraded" if reasons else "healthy", "reasons": reasons, "version": __version__}
        if caller.principal.may(Scope.ADMIN):
            details |= await self._describe(caller)
        return json_reply(details, 503 if reasons else 200)

    async def _describe(self, caller: Caller) -> dict[str, Any]:
        service = self._service
        held = await service.store.holding(None)
        last = await service.audit.list(caller, AuditQuery(limit=1))
        gates = {
            "creates": service.admission.creates,
            "executions": service.admission.executions,
            "transfers": service.files.transfers.everybody,
        }
        admission = {name: {"under_way": gate.inside, "waiting": gate.waiting} for name, gate in gates.items()}
        # Those too that an earlier service began: they run, and hold no place among those that were let in since.
        admission["executions"]["under_way"] = service.executions.under_way
        return {
            "caveats": self._caveats(),
            "python": platform.python_version(),
            "uptime_seconds": round(time.time() - service.started_at, 3),
            "engine": {"name": service.engine.name, "layers": list(getattr(service.engine, "layers", ()))},
            "gpus": [dataclasses.asdict(gpu) for gpu in self._gpus],
            "sandboxes": held._asdict(),
            "records": {"bytes": await service.store.recorded(None)},
            "pool": service.pool.sizes(),
            "admission": admission,
            "audit": {
                "backlog": service.audit.backlog,
                "last": {"seq": last.items[0].seq, "hash": last.items[0].hash} if last.items else None,
            },
        }

    async def _numbers(self, scope: Request) -> ASGIApp:
        if not self._open_metrics:
            await self._identify(scope, Scope.READ)
        return Reply(await self._metrics.render(), 200, ((b"content-type", CONTENT_TYPE.encode()),))

    async def _identify(self, scope: Request, wanted: Scope) -> Caller:
        client, request_id = scope.get("client"), scope["state"]["request_id"]
        address = client[0] if client else ""
        principal = await self._auth.identify(
            scope["headers"], address=address, request_id=request_id, scheme=scope["scheme"]
        )
        check_scope(principal, wanted)
        return Caller(principal=principal, request_id=request_id, address=address)
