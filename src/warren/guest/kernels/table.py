"""The kernels of a sandbox by name, and the operations on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.guest.kernels.kernel import MAX_KERNELS, Kernel
from warren.guest.wire.parameters import Refused, get_name, get_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.executions.execution import Execution
    from warren.guest.executions.run import Run
    from warren.guest.kernels.checkpoints import Checkpoint
    from warren.guest.wire.streams import Stream

MAX_ROLLBACK = 8


class Kernels:
    """Kernels by name; one is made at its first use."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._kernels: dict[str, Kernel] = {}

    def run(self, execution: Execution) -> Run:
        """Run a cell. Raises Refused."""
        name = execution.request.kernel
        kernel = self._kernels.get(name) or self.add(name)
        return kernel.submit(execution)

    def get(self, name: str) -> Kernel:
        """Find one. Raises Refused."""
        found = self._kernels.get(name)
        if found is None:
            raise Refused("not_found", f"there is no kernel {name}")
        return found

    def add(self, name: str) -> Kernel:
        """Add one without a process. Raises Refused."""
        if name in self._kernels:
            raise Refused("conflict", f"kernel {name} exists already")
        if len(self._kernels) >= MAX_KERNELS:
            raise Refused("conflict", f"there are {MAX_KERNELS} kernels already: delete one")
        kernel = self._kernels[name] = Kernel(self._agent, name)
        return kernel

    def remove(self, name: str) -> None:
        """End one and remove it. Raises Refused."""
        self.get(name).delete()
        del self._kernels[name]

    def abandon(self, kernel: Kernel) -> None:
        """End and remove one that could not be started; its name may belong to another by now."""
        kernel.delete()
        if self._kernels.get(kernel.name) is kernel:
            del self._kernels[kernel.name]

    def describe(self) -> list[dict[str, Any]]:
        """List them."""
        return [kernel.describe() for kernel in self._kernels.values()]


def _list(agent: Agent, stream: Stream, _params: dict[str, Any], _payload: bytes) -> None:
    stream.reply({"kernels": agent.kernels.describe()})


def _create(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    made = agent.kernels.add(get_name(params, "kernel"))
    made.start(lambda why: _answer_made(agent, stream, made, why))


def _restart(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    agent.kernels.get(get_name(params, "kernel")).restart(lambda why: _answer(stream, why))


def _fork(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    source = agent.kernels.get(get_name(params, "kernel"))
    target = agent.kernels.add(get_name(params, "to"))

    def forked(copy: Checkpoint | None, why: str) -> None:
        if copy is None:
            agent.kernels.abandon(target)
            stream.fail("conflict", f"the kernel cannot be forked: {why}")
        else:
            target.become(copy, lambda why: _answer_made(agent, stream, target, why))

    try:
        source.fork(forked)
    except Refused:
        agent.kernels.abandon(target)
        raise


def _rollback(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    kernel = agent.kernels.get(get_name(params, "kernel", "main"))
    cells = get_number(params, "cells", 1, low=1, high=MAX_ROLLBACK)
    target = kernel.executed - cells

    def settled(why: str | None) -> None:
        if why is None and kernel.executed != target:
            why = "the checkpoint did not wake up; an older state or none is left"
        _answer(stream, why, cells_back=cells)

    kernel.rollback(cells, settled)


def _delete(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    agent.kernels.remove(get_name(params, "kernel"))
    stream.reply()


def _answer_made(agent: Agent, stream: Stream, made: Kernel, why: str | None) -> None:
    """Answer for a new kernel; one that could not be started is removed."""
    if why is not None:
        agent.kernels.abandon(made)
    _answer(stream, why)


def _answer(stream: Stream, why: str | None, **fields: int) -> None:
    if why is None:
        stream.reply(fields)
    else:
        stream.fail("start_failed", why)


OPERATIONS: dict[str, Callable[[Agent, Stream, dict[str, Any], bytes], None]] = {
    "kernels": _list,
    "kernel.create": _create,
    "kernel.restart": _restart,
    "kernel.fork": _fork,
    "kernel.rollback": _rollback,
    "kernel.delete": _delete,
}
