"""GPU allocation for a new sandbox: the request of its caller or image, within the limits of its tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.domain.errors import Forbidden, Unsupported
from warren.domain.gpus import AUTO, GpuRequest, choose
from warren.engines.base import HasGpus

if TYPE_CHECKING:
    from warren.core.policy.policy import Policy
    from warren.domain.gpus import Gpu
    from warren.domain.records import Owner
    from warren.engines.base import Engine
    from warren.stores.base import Store


async def list_gpus(engine: Engine) -> tuple[Gpu, ...]:
    """Return the GPUs of an engine; empty where it supports none."""
    return await engine.gpus() if isinstance(engine, HasGpus) else ()


async def choose_gpus(
    engine: Engine, store: Store, policy: Policy, owner: Owner, request: GpuRequest
) -> tuple[str, ...]:
    """Return the devices of a new sandbox, by full name.

    Raises Conflict where too few are free, Forbidden where the tenant may have none, Unsupported where the engine has
    none; `auto` never fails.
    """
    if not request:
        return ()
    refused = _refusal(engine, policy, owner)
    if refused is not None:
        if request.is_optional:
            return ()
        raise refused
    devices = await list_gpus(engine)
    if request.wanted == AUTO:
        room = await _room(store, policy, owner)
        usable = sum(each.usable for each in devices)
        request = GpuRequest(usable if room is None else min(usable, room))
    return choose(request, devices)


def _refusal(engine: Engine, policy: Policy, owner: Owner) -> Forbidden | Unsupported | None:
    if not policy.ceiling_of(owner.tenant).allow_gpus:
        return Forbidden(f"sandboxes of tenant {owner.tenant!r} may have no GPUs: leave gpus out")
    if not isinstance(engine, HasGpus):
        return Unsupported(f"the engine {engine.name} has no GPUs to give: leave gpus out")
    return None


async def _room(store: Store, policy: Policy, owner: Owner) -> int | None:
    """Return how many more GPUs an owner may hold; None without a limit."""
    owners: tuple[dict[str, Any], ...] = ({"owner": owner}, {"tenant": owner.tenant}, {})
    rooms = [
        max(0, most.gpus - (await store.holding(**whose)).gpus)
        for most, whose in zip(policy.ceilings_of(owner.tenant), owners, strict=True)
        if most is not None and most.gpus
    ]
    return min(rooms, default=None)
