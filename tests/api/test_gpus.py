"""GPUs end to end, with a device that is none: a harmless character device under a CDI spec of its own vendor."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from api.mcp_client import Mcp, told
from api.served import DEADLINE_S, Served, wait_for
from unit.local.fake_gpus import write_spec
from unit.local.forked import needs_root
from warren.engines.local.spawn import group_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx
    from mcp.client.client import Client

    from warren.settings import Settings

pytestmark = [pytest.mark.root, needs_root]

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto", "gpus.md")
LOOK = """
import os
def opens(path):
    try: os.close(os.open(path, os.O_RDWR))
    except OSError as error: return error.strerror
    return True
{path: opens(path) for path in ("/dev/gpu0", "/dev/gpu1", "/dev/gpuctl", "/dev/null")}
"""


@pytest.fixture(scope="module")
def with_gpus(make_settings: Callable[..., Settings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("cdi")
    folder.chmod(0o755)
    write_spec(folder)
    settings = make_settings("local", gpus={"cdi_dirs": [str(folder)]}, quota={"gpus": 3})
    served = Served(settings)
    served.start()
    yield served
    served.stop()
    assert served.left == []


@pytest.fixture
def people(with_gpus: Served) -> Iterator[httpx.Client]:
    with with_gpus.client("ann") as client:
        yield client
        for each in client.get("/sandboxes").json()["items"]:
            client.delete(f"/sandboxes/{each['id']}")


def make(client: httpx.Client, **body: Any) -> dict[str, Any]:
    made = client.post("/sandboxes", json=body)
    assert made.status_code == 201, made.text
    return dict(made.json())


def run(client: httpx.Client, sandbox_id: str, code: str) -> dict[str, Any]:
    answer = client.post(f"/sandboxes/{sandbox_id}/exec", json={"code": code})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def look(client: httpx.Client, sandbox_id: str) -> dict[str, Any]:
    return dict(eval(run(client, sandbox_id, LOOK)["displays"][0]["data"]["text/plain"]))


GONE = "No such file or directory"


def test_a_sandbox_has_the_device_it_asked_for_and_no_other(people: httpx.Client) -> None:
    one = make(people, gpus=["1"])
    other = make(people, gpus=["example.com/gpu=0"])
    plain = make(people)

    assert (one["gpus"], other["gpus"], plain["gpus"]) == (["example.com/gpu=1"], ["example.com/gpu=0"], [])
    assert people.get(f"/sandboxes/{one['id']}").json()["gpus"] == ["example.com/gpu=1"]
    with_one = {"/dev/gpu0": GONE, "/dev/gpu1": True, "/dev/gpuctl": True, "/dev/null": True}
    assert look(people, one["id"]) == with_one
    assert look(people, other["id"]) == with_one | {"/dev/gpu0": True, "/dev/gpu1": GONE}
    assert look(people, plain["id"]) == dict.fromkeys(with_one, GONE) | {"/dev/null": True}


def test_the_driver_is_seen_inside_and_nothing_of_it_without_a_gpu(people: httpx.Client) -> None:
    sandbox, plain = make(people, gpus=1), make(people)
    code = "import os, subprocess; print(os.listdir('/opt/gpu/lib'), subprocess.getoutput('example-smi'))"

    assert run(people, sandbox["id"], code)["stdout"] == "['libexample.so.1'] here /opt/gpu/lib\n"
    assert run(people, plain["id"], "import os; print(os.path.exists('/opt/gpu'))")["stdout"] == "False\n"


def test_those_with_the_fewest_sandboxes_come_first(people: httpx.Client) -> None:
    first, second = make(people, gpus=1), make(people, gpus=1)

    assert {*first["gpus"], *second["gpus"]} == {"example.com/gpu=0", "example.com/gpu=1"}


def test_a_one_shot_has_them_too(people: httpx.Client) -> None:
    answer = people.post("/run", json={"code": "import os; print(os.environ['WARREN_GPUS'])", "gpus": "all"})

    assert answer.json()["stdout"] == "/dev/gpu0:/dev/gpu1\n"


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        (3, 409, "asks for 3, and there are 2 that can be used"),
        (["7"], 409, "there is no such device: there is example.com/gpu=0, example.com/gpu=1"),
        ("some", 422, "gpus must be all, auto, none, a number from 0 to 64, or a list of names"),
        (-1, 422, "gpus"),
        (["a b"], 422, "gpus"),
    ],
)
def test_what_there_is_not_is_refused_and_says_what_there_is(
    people: httpx.Client, asked: object, status: int, said: str
) -> None:
    answer = people.post("/sandboxes", json={"gpus": asked})

    assert answer.status_code == status
    assert said in answer.text


def test_a_quota_counts_what_running_sandboxes_hold(people: httpx.Client) -> None:
    sandbox = make(people, gpus="all")
    refused = people.post("/sandboxes", json={"gpus": 2})
    people.post(f"/sandboxes/{sandbox['id']}/stop")

    assert refused.status_code == 429
    assert "your quota of 3 GPUs in active sandboxes is used up" in refused.text
    assert len(make(people, gpus="all")["gpus"]) == 2
    # It would have its own two again, and there is room for one.
    assert people.post(f"/sandboxes/{sandbox['id']}/start").status_code == 429


def test_auto_takes_what_the_quota_leaves(people: httpx.Client) -> None:
    make(people, gpus="all")

    assert [len(make(people, gpus="auto")["gpus"]) for _ in range(2)] == [1, 0]


def test_a_stopped_sandbox_comes_back_with_its_devices(people: httpx.Client) -> None:
    sandbox = make(people, gpus=["1"])
    people.post(f"/sandboxes/{sandbox['id']}/stop")

    assert look(people, sandbox["id"])["/dev/gpu1"] is True


def test_a_kernel_with_an_open_device_is_neither_checkpointed_nor_forked_and_says_so(people: httpx.Client) -> None:
    sandbox = make(people, gpus=["1"])
    run(people, sandbox["id"], "import os; device = os.open('/dev/gpu1', os.O_RDWR)")
    said = run(people, sandbox["id"], "1")
    forked = people.post(f"/sandboxes/{sandbox['id']}/kernels/main/fork", json={"to": "copy"})
    run(people, sandbox["id"], "os.close(device)")
    run(people, sandbox["id"], "1")
    after = people.post(f"/sandboxes/{sandbox['id']}/kernels/main/fork", json={"to": "copy"})

    why = "the device /dev/gpu1 is open, and what its driver holds cannot be copied"
    assert said["protected"] is False
    assert said["why_unprotected"] == why
    assert forked.status_code == 409
    assert why in forked.text
    assert after.status_code == 201


def test_no_zygote_has_a_device(with_gpus: Served, people: httpx.Client) -> None:
    make(people, gpus=1)
    folder = f"{with_gpus.settings.data_dir}/local/zygotes"
    seen = []
    for name in os.listdir(folder):
        with open(f"{folder}/{name}/zygote.json", encoding="utf-8") as file:
            pid = json.load(file)["pid"]
        seen += [each for each in os.listdir(f"/proc/{pid}/root/dev") if each.startswith("gpu")]

    assert any("-gpu-" in name for name in os.listdir(folder))
    assert seen == []


def test_the_answer_tells_which_devices_can_be_opened(with_gpus: Served) -> None:
    with with_gpus.client("adam") as adam:
        ready = adam.get(f"{with_gpus.url}/readyz", timeout=DEADLINE_S).json()
        details = adam.get(f"{with_gpus.url}/healthz/details").json()

    assert ready["gpus"] == ["example.com/gpu=0", "example.com/gpu=1"]
    assert [(each["id"], each["usable"]) for each in details["gpus"]] == [(name, True) for name in ready["gpus"]]


def test_onits_tools_have_a_gpu_when_there_is_one(with_gpus: Served) -> None:
    mcp = Mcp(with_gpus)

    async def work(client: Client) -> None:
        await client.call_tool("run_code", {"command": "true"})
        status = told(await client.call_tool("sandbox_status", {}))
        assert status["gpu_available"] is True
        assert "gpu_reason" not in status

    mcp.talk(work)
    mcp.clear()


def test_without_one_they_run_on_the_processors_and_say_so(bare: Served) -> None:
    mcp = Mcp(bare)

    async def work(client: Client) -> None:
        await client.call_tool("run_code", {"command": "true"})
        status = told(await client.call_tool("sandbox_status", {}))
        if not status["gpu_available"]:
            assert status["gpu_reason"] == "There is no GPU here: programs run on the processors."

    mcp.talk(work)
    mcp.clear()


def test_an_engine_that_has_none_says_so(bare: Served) -> None:
    with bare.client("ann") as ann:
        refused = ann.post("/sandboxes", json={"gpus": 1})
        made = ann.post("/sandboxes", json={"gpus": "auto"})
        ann.delete(f"/sandboxes/{made.json()['id']}")

    assert refused.status_code == 501
    assert "the engine bare has no GPUs to give" in refused.text
    assert made.json()["gpus"] == []


def test_a_tenant_that_may_have_none_is_told(make_settings: Callable[..., Settings]) -> None:
    served = Served(make_settings("bare", tenant={"allow_gpus": False}))
    served.start()
    try:
        with served.client("ann") as ann:
            refused = ann.post("/sandboxes", json={"gpus": 1})
    finally:
        served.stop()

    assert refused.status_code == 403
    assert "may have no GPUs" in refused.text


def test_the_examples_of_the_page_work_as_they_stand(with_gpus: Served, people: httpx.Client, tmp_path: Path) -> None:
    with open(PAGE, encoding="utf-8") as file:
        blocks = dict(re.findall(r"^```(bash|python)\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL))
    env = {
        "PATH": f"{os.path.dirname(sys.executable)}:{os.defpath}",
        "HOME": str(tmp_path),
        "WARREN_URL": with_gpus.url,
        "WARREN_API_KEY": with_gpus.keys["ann"],
    }
    (tmp_path / "example.py").write_text(blocks["python"])
    scripts = (blocks["bash"].replace(".venv/bin/", ""), "python example.py")
    first, second = (
        subprocess.run(["bash", "-euc", script], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        for script in scripts
    )

    assert first.stdout.startswith("/dev/gpu"), first.stderr
    assert [len(each["gpus"]) for each in people.get("/sandboxes").json()["items"]] == [2]
    assert "example.com/gpu=" in second.stdout, second.stderr


def test_nothing_is_left_of_a_sandbox_with_gpus(with_gpus: Served, people: httpx.Client) -> None:
    sandbox = make(people, gpus="all")
    people.delete(f"/sandboxes/{sandbox['id']}")
    name = f"{group_name(f'{with_gpus.settings.data_dir}/local')}.devices"

    def left() -> list[str]:
        folders = (f"{root}/{name}" for root, found, _ in os.walk("/sys/fs/cgroup") if name in found)
        return [folder for folder in folders if any(os.path.isdir(f"{folder}/{each}") for each in os.listdir(folder))]

    assert wait_for(lambda: left() == [])
