"""One engine for the whole directory, a sibling sandbox that watches, and canaries on the host.

Every test here ends with two questions that are asked for it: is the host as it was, and does the sibling still answer?
"""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from security.arena import PROMPTLY_S, ROOTLESS, answers
from security.canaries import Host
from warren.domain.values import Handle, Image, SandboxSpec, new_id
from warren.engines.local.engine import LocalEngine
from warren.testing.subject import Subject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

OPTIONAL_LAYERS = ("cpu", "memory") if ROOTLESS else ()
"""What an ordinary user cannot have without a delegated control group; tests of those layers say so and are skipped."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.close()


@pytest.fixture(scope="session")
def data_dir() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="warren-security-")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
async def subject(anyio_backend: str, data_dir: str, python_image: Image) -> AsyncIterator[Subject]:
    """The engine under attack."""
    del anyio_backend

    def make_engine() -> LocalEngine:
        return LocalEngine(data_dir, optional_layers=OPTIONAL_LAYERS, debug=True)

    def make_spec(**fields: Any) -> SandboxSpec:
        return SandboxSpec(**{"id": new_id("sbx"), "image": python_image, **fields})

    engine = make_engine()
    await engine.open()
    subject = Subject(engine, make_spec, make_engine, _kill_agent)
    yield subject
    left = await subject.listed()
    for sandbox_id in left:
        await engine.destroy(Handle("local", sandbox_id))
    await engine.retire()
    assert not left, f"sandboxes left behind: {', '.join(sorted(left))}"


@pytest.fixture(scope="session")
async def sibling(subject: Subject) -> AsyncIterator[Handle]:
    """A sandbox of another owner, from the same zygote, that lives through every attack."""
    async with subject.sandbox() as handle:
        async with subject.agent(handle) as agent:
            await agent.write("private", b"another owner's")
            await answers(agent)
        yield handle


@pytest.fixture(autouse=True)
async def unharmed(subject: Subject, sibling: Handle, host: Host) -> AsyncIterator[None]:
    """After each attack: the host is as it was, and the sibling answers."""
    yield
    host.check_unchanged()
    with anyio.fail_after(PROMPTLY_S):
        async with subject.agent(sibling) as agent:
            await answers(agent)
            assert await agent.read_bytes("private", 1000) == b"another owner's"


async def _kill_agent(_handle: Handle) -> None:
    raise NotImplementedError("no test here kills an agent from outside")
