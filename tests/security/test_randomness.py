"""Sandboxes and kernels are copies of one process; what they draw at random must not be copies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from security.arena import ROOTLESS
from warren.core.images.catalog import Catalog
from warren.domain.values import ExecKind, Image
from warren.testing.subject import run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

DRAW = (
    "import json, multiprocessing, os, random, secrets, ssl, tempfile, uuid\n"
    "drawn = {\n"
    "    'random': random.random(), 'shuffle': random.sample(range(10**6), 4),\n"
    "    'system': random.SystemRandom().random(),\n"
    "    'secrets': secrets.token_hex(16), 'urandom': os.urandom(16).hex(), 'ssl': ssl.RAND_bytes(16).hex(),\n"
    "    'uuid1': str(uuid.uuid1()), 'uuid4': str(uuid.uuid4()), 'node': uuid.getnode(),\n"
    "    'tempfile': os.path.basename(tempfile.mktemp()), 'authkey': multiprocessing.current_process().authkey.hex(),\n"
    "}\n"
)
DRAW_NUMPY = (
    "import numpy\n"
    "drawn |= {'numpy': numpy.random.rand(4).tolist(), 'numpy integers': numpy.random.randint(0, 10**9, 4).tolist(),\n"
    "          'numpy generator': numpy.random.default_rng().random(4).tolist()}\n"
)
PRINT = "print(json.dumps(drawn))"


async def _draw(agent: AgentClient, code: str, kind: ExecKind = ExecKind.CELL, **fields: Any) -> dict[str, Any]:
    result = await run(agent, code + PRINT, kind, timeout_s=60, **fields)
    assert result.ok, result
    drawn: dict[str, Any] = json.loads(result.stdout)
    return drawn


def _assert_all_differ(draws: list[dict[str, Any]], *, same_sandbox: bool) -> None:
    for name in draws[0]:
        # Kernels of one sandbox are on one machine, and may say so.
        if not (same_sandbox and name == "node"):
            assert len({json.dumps(drawn[name]) for drawn in draws}) == len(draws), (name, draws)


async def test_sandboxes_from_one_parent_draw_differently(subject: Subject) -> None:
    draws = []
    for _ in range(3):
        async with subject.linked_sandbox() as agent:
            draws.append(await _draw(agent, DRAW))

    _assert_all_differ(draws, same_sandbox=False)


async def test_kernels_and_scripts_of_one_sandbox_draw_differently(subject: Subject) -> None:
    async with subject.linked_sandbox() as agent:
        draws = [await _draw(agent, DRAW), await _draw(agent, DRAW, kernel="second")]
        draws += [await _draw(agent, DRAW, ExecKind.SCRIPT), await _draw(agent, DRAW, ExecKind.SCRIPT)]
        await agent.restart_kernel("main")
        draws.append(await _draw(agent, DRAW))

    _assert_all_differ(draws, same_sandbox=True)


async def test_a_forked_kernel_draws_differently_from_then_on(subject: Subject) -> None:
    async with subject.linked_sandbox() as agent:
        await _draw(agent, DRAW)
        await agent.fork_kernel("main", "copy")
        draws = [await _draw(agent, DRAW), await _draw(agent, DRAW, kernel="copy")]

    _assert_all_differ(draws, same_sandbox=True)


@pytest.fixture(scope="module")
def data_image(images_dir: str) -> Image:
    return Catalog(images_dir).build("data")


@pytest.mark.skipif(ROOTLESS, reason="the same code as root's, and building the data image once more takes long")
@pytest.mark.timeout(600)
async def test_numpy_draws_differently_too(subject: Subject, data_image: Image) -> None:
    draws = []
    for _ in range(2):
        async with subject.linked_sandbox(image=data_image) as agent:
            draws.append(await _draw(agent, DRAW + DRAW_NUMPY))
            second = await _draw(agent, DRAW + DRAW_NUMPY, kernel="second")
            _assert_all_differ([draws[-1], second], same_sandbox=True)

    _assert_all_differ(draws, same_sandbox=False)
