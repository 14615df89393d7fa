"""The native API: the kernels of a sandbox, which keep variables between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.dialects.native import translate
from warren.gateway.dialects.native.common import kernel_name, sandbox_id
from warren.gateway.dialects.native.schemas import Body, KernelName, Whole
from warren.gateway.dialects.native.schemas_answers import KernelShown, KernelsShown, RolledBack

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply

_PATH = "/sandboxes/{sandbox_id}/kernels"
_ONE = f"{_PATH}/{{kernel}}"


class CreateKernel(Body):
    """One more kernel."""

    name: KernelName = Field(description="Its name.")


class ForkKernel(Body):
    """A copy of a kernel with all its variables."""

    to: KernelName = Field(description="The name of the copy.")


class RollbackKernel(Body):
    """How far to go back."""

    cells: Whole = Field(default=1, ge=1, le=8, description="How many cells to undo.")


routes = Routes("Kernels")


@routes.add(f"GET {_PATH}", Scope.READ, answers=(Answer("The kernels.", KernelsShown),), errors=(404, 409, 502))
async def list_kernels(call: Call) -> Reply:
    """List the kernels of a sandbox."""
    kernels = await call.service.kernels.list(call.caller, sandbox_id(call))
    return json_reply({"items": [translate.render_kernel(kernel) for kernel in kernels]})


@routes.add(
    f"POST {_PATH}",
    Scope.RUN,
    description="A kernel is also made when something is first run in it.",
    body=CreateKernel,
    example={"name": "other"},
    answers=(Answer("It runs.", KernelShown, status=201),),
    errors=(404, 409, 502),
)
async def create_kernel(call: Call) -> Reply:
    """Start one more kernel."""
    name = call.body(CreateKernel).name
    kernel = await call.service.kernels.create(call.caller, sandbox_id(call), name)
    return json_reply(translate.render_kernel(kernel), 201)


@routes.add(f"POST {_ONE}/restart", Scope.RUN, answers=(Answer("It runs again.", KernelShown),), errors=(404, 409, 502))
async def restart_kernel(call: Call) -> Reply:
    """Start a kernel afresh; its variables are gone."""
    kernel = await call.service.kernels.restart(call.caller, sandbox_id(call), kernel_name(call))
    return json_reply(translate.render_kernel(kernel))


@routes.add(
    f"POST {_ONE}/fork",
    Scope.RUN,
    body=ForkKernel,
    example={"to": "what-if"},
    answers=(Answer("The copy runs.", KernelShown, status=201),),
    errors=(404, 409, 502),
)
async def fork_kernel(call: Call) -> Reply:
    """Copy a kernel with all its variables."""
    to = call.body(ForkKernel).to
    kernel = await call.service.kernels.fork(call.caller, sandbox_id(call), kernel_name(call), to)
    return json_reply(translate.render_kernel(kernel), 201)


@routes.add(
    f"POST {_ONE}/rollback",
    Scope.RUN,
    description="Variables go back to what they were; files do not.",
    body=RollbackKernel,
    body_is_optional=True,
    example={"cells": 1},
    answers=(Answer("How many cells were undone.", RolledBack),),
    errors=(404, 409, 502),
)
async def rollback_kernel(call: Call) -> Reply:
    """Undo the last cells of a kernel."""
    cells = call.body(RollbackKernel).cells
    back = await call.service.kernels.rollback(call.caller, sandbox_id(call), kernel_name(call), cells)
    return json_reply({"cells_back": back})


@routes.add(f"DELETE {_ONE}", Scope.RUN, answers=(Answer("It has ended.", status=204),), errors=(404, 409, 502))
async def delete_kernel(call: Call) -> Reply:
    """End a kernel."""
    await call.service.kernels.delete(call.caller, sandbox_id(call), kernel_name(call))
    return NO_CONTENT
