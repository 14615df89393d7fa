"""The native API: the kernels of a sandbox, which keep variables between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Operation, json_reply
from warren.gateway.dialects.native import schemas_kernels as schemas
from warren.gateway.dialects.native import translate
from warren.gateway.dialects.native.common import kernel_name, sandbox_id
from warren.gateway.dialects.native.schemas_answers import KernelShown, KernelsShown, RolledBack

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply


async def list_kernels(call: Call) -> Reply:
    """List the kernels."""
    kernels = await call.service.kernels.list(call.caller, sandbox_id(call))
    return json_reply({"items": [translate.render_kernel(kernel) for kernel in kernels]})


async def create_kernel(call: Call) -> Reply:
    """Start one more kernel."""
    name = call.body(schemas.CreateKernel).name
    kernel = await call.service.kernels.create(call.caller, sandbox_id(call), name)
    return json_reply(translate.render_kernel(kernel), 201)


async def restart_kernel(call: Call) -> Reply:
    """Start a kernel afresh."""
    kernel = await call.service.kernels.restart(call.caller, sandbox_id(call), kernel_name(call))
    return json_reply(translate.render_kernel(kernel))


async def fork_kernel(call: Call) -> Reply:
    """Copy a kernel."""
    to = call.body(schemas.ForkKernel).to
    kernel = await call.service.kernels.fork(call.caller, sandbox_id(call), kernel_name(call), to)
    return json_reply(translate.render_kernel(kernel), 201)


async def rollback_kernel(call: Call) -> Reply:
    """Undo the last cells of a kernel."""
    cells = call.body(schemas.RollbackKernel).cells
    back = await call.service.kernels.rollback(call.caller, sandbox_id(call), kernel_name(call), cells)
    return json_reply({"cells_back": back})


async def delete_kernel(call: Call) -> Reply:
    """End a kernel."""
    await call.service.kernels.delete(call.caller, sandbox_id(call), kernel_name(call))
    return NO_CONTENT


_PATH = "/sandboxes/{sandbox_id}/kernels"
_ONE = f"{_PATH}/{{kernel}}"

OPERATIONS = (
    Operation(
        method="GET",
        path=_PATH,
        handler=list_kernels,
        grant=Scope.READ,
        tag="Kernels",
        summary="List the kernels of a sandbox",
        answers=(Answer(description="The kernels.", model=KernelsShown),),
        errors=(404, 409, 502),
    ),
    Operation(
        method="POST",
        path=_PATH,
        handler=create_kernel,
        grant=Scope.RUN,
        tag="Kernels",
        summary="Start one more kernel",
        description="A kernel is also made when something is first run in it.",
        body=schemas.CreateKernel,
        example={"name": "other"},
        answers=(Answer(status=201, description="It runs.", model=KernelShown),),
        errors=(404, 409, 502),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/restart",
        handler=restart_kernel,
        grant=Scope.RUN,
        tag="Kernels",
        summary="Start a kernel afresh; its variables are gone",
        answers=(Answer(description="It runs again.", model=KernelShown),),
        errors=(404, 409, 502),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/fork",
        handler=fork_kernel,
        grant=Scope.RUN,
        tag="Kernels",
        summary="Copy a kernel with all its variables",
        body=schemas.ForkKernel,
        example={"to": "what-if"},
        answers=(Answer(status=201, description="The copy runs.", model=KernelShown),),
        errors=(404, 409, 502),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/rollback",
        handler=rollback_kernel,
        grant=Scope.RUN,
        tag="Kernels",
        summary="Undo the last cells of a kernel",
        description="Variables go back to what they were; files do not.",
        body=schemas.RollbackKernel,
        body_is_optional=True,
        example={"cells": 1},
        answers=(Answer(description="How many cells were undone.", model=RolledBack),),
        errors=(404, 409, 502),
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        handler=delete_kernel,
        grant=Scope.RUN,
        tag="Kernels",
        summary="End a kernel",
        answers=(Answer(status=204, description="It has ended."),),
        errors=(404, 409, 502),
    ),
)
