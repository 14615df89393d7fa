"""Native API, schemas: kernels."""

from __future__ import annotations

from pydantic import Field

from warren.gateway.dialects.native.schemas import Body, KernelName, Whole


class CreateKernel(Body):
    """One more kernel."""

    name: KernelName = Field(description="Its name.")


class ForkKernel(Body):
    """A copy of a kernel with all its variables."""

    to: KernelName = Field(description="The name of the copy.")


class RollbackKernel(Body):
    """How far to go back."""

    cells: Whole = Field(default=1, ge=1, le=8, description="How many cells to undo.")
