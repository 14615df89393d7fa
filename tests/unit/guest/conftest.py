"""A real agent for each module, and real forkservers with each executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.guest.agent_client import Client, RunningAgent, running_agent
from unit.guest.agent_workspace import AgentWorkspace
from unit.guest.forkserver_harness import ForkserverHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.guest.forkserver_harness import Kernel


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningAgent]:
    with running_agent() as agent:
        yield agent


@pytest.fixture
def client(agent: RunningAgent) -> Iterator[Client]:
    client = agent.connect()
    yield client
    client.close()


@pytest.fixture
def here(agent: RunningAgent) -> Iterator[AgentWorkspace]:
    """The agent with its workspace, which is empty again at the end."""
    place = AgentWorkspace(agent)
    yield place
    place.clear()


@pytest.fixture(scope="module", params=["ipython", "plain"])
def forkserver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkserverHarness]:
    if request.param == "ipython":
        pytest.importorskip("IPython", reason="IPython is not installed")
    forkserver = ForkserverHarness(
        str(tmp_path_factory.mktemp("workspace")), without=("IPython",) if request.param == "plain" else ()
    )
    yield forkserver
    forkserver.close()


@pytest.fixture
def kernel(forkserver: ForkserverHarness) -> Kernel:
    return forkserver.kernel()
