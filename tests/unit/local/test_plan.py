"""The plans are reviewed as text: a change of containment shows up here as a changed line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from warren.engines.local.containment import contain, plan

GOLDEN = Path(__file__).parent / "golden"

ROOT = plan.RootRequest(
    root="host",
    image_path="/data/images/abc",
    guest_path="/data/local/guest/v1",
    interpreter_prefix="/opt/build/python",
    interpreter_inside="/opt/python",
)
SANDBOX = plan.SandboxRequest(
    memory_bytes=512 << 20,
    open_files=4096,
    pids=256,
    workspace="attach",
    disk_bytes=2 << 30,
    disk_inodes=131072,
    layers=frozenset({"uid", "landlock", "disk", "memory", "cpu", "pids"}),
)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("root", plan.build_root_plan(ROOT, exists=plan.HOST_FILES)),
        ("sandbox", plan.build_sandbox_plan(SANDBOX)),
    ],
)
def test_the_plan_is_the_reviewed_one(name: str, steps: tuple[plan.Step, ...]) -> None:
    text = "".join(f"{step}\n" for step in steps)

    assert (GOLDEN / f"{name}.plan").read_text() == text


DRIVER = {
    "libraries": [
        {"path": "/usr/lib/libcuda.so.580", "name": "libcuda.so.580", "links": ["libcuda.so", "libcuda.so.1"]},
        {"path": "/opt/driver/libother.so.2", "name": "libother.so.2", "links": []},
    ],
    "programs": ["/usr/bin/nvidia-smi"],
    "env": {"VENDOR": "void", "PATH": "/evil"},
}


def test_with_gpus_a_root_has_the_drivers_files_and_no_device_more() -> None:
    own, host = (
        [str(step) for step in plan.build_root_plan(dataclasses.replace(ROOT, root=root, driver=DRIVER), exists=())]
        for root in ("/srv/root", "host")
    )
    plain = [str(step) for step in plan.build_root_plan(ROOT, exists=())]

    assert [line for line in host if line not in plain] == [
        "make_folder path=/opt/gpu/lib",
        "make_folder path=/opt/gpu/bin",
        "link path=/opt/gpu/lib/libcuda.so.580 target=/usr/lib/libcuda.so.580",
        "bind source=/opt/driver/libother.so.2 target=/opt/gpu/lib/libother.so.2",
        "link path=/opt/gpu/bin/nvidia-smi target=/usr/bin/nvidia-smi",
        "link path=/opt/gpu/lib/libcuda.so target=libcuda.so.580",
        "link path=/opt/gpu/lib/libcuda.so.1 target=libcuda.so.580",
    ]
    assert "bind source=/usr/lib/libcuda.so.580 target=/opt/gpu/lib/libcuda.so.580" in own


def test_with_gpus_a_sandbox_has_its_devices_before_anything_is_taken_away() -> None:
    plain = [str(step) for step in plan.build_sandbox_plan(SANDBOX)]
    steps = [str(step) for step in plan.build_sandbox_plan(dataclasses.replace(SANDBOX, nodes=("/dev/nvidia0",)))]
    added = f"add_devices names={plan.DEVICES} paths=('/dev/nvidia0',)"

    assert [line for line in steps if line not in plain] == [added]
    assert steps.index(added) < next(at for at, line in enumerate(steps) if "target=/dev/shm" in line)


def test_a_driver_adds_to_the_paths_and_takes_no_variable_of_the_sandbox() -> None:
    env = plan.add_driver({"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/own", "VENDOR": "mine"}, DRIVER)

    paths = {"PATH": "/usr/bin:/opt/gpu/bin", "LD_LIBRARY_PATH": "/opt/gpu/lib:/own", "CUDA_CACHE_PATH": "/tmp/.nv"}
    assert env == paths | {"VENDOR": "mine"}
    assert plan.add_driver({"A": "b"}, None) == {"A": "b"}


def test_every_step_of_both_plans_can_be_performed() -> None:
    with_gpus = dataclasses.replace(SANDBOX, nodes=("/dev/nvidia0",))
    steps = plan.build_root_plan(ROOT, exists=plan.HOST_FILES) + plan.build_sandbox_plan(with_gpus)

    assert {step.act for step in steps} <= contain._ACTS.keys()


def test_the_filter_is_last_and_capabilities_go_right_before_it() -> None:
    acts = [step.act for step in plan.build_sandbox_plan(SANDBOX)]

    assert acts[-3:] == ["drop_capabilities", "seccomp", "check_sealed"]


def test_memory_files_can_never_take_more_than_half_of_the_memory() -> None:
    steps = plan.build_sandbox_plan(SANDBOX)
    sizes = [step.args["size_bytes"] for step in steps if step.act == "tmpfs"]

    assert sum(sizes) <= SANDBOX.memory_bytes // 2


def test_without_an_own_uid_processes_are_limited_by_resource_limit() -> None:
    request = plan.SandboxRequest(
        memory_bytes=512 << 20,
        open_files=64,
        pids=33,
        workspace="tmpfs",
        disk_bytes=64 << 20,
        disk_inodes=1024,
        layers=frozenset(),
    )
    steps = [str(step) for step in plan.build_sandbox_plan(request)]

    assert "limit resource=NPROC value=33" in steps
    assert not [step for step in steps if step.startswith("landlock")]
    assert "tmpfs target=/workspace size_bytes=67108864 inodes=1024" in steps


def test_the_environment_holds_nothing_of_the_host_and_the_sandbox_wins() -> None:
    env = plan.build_environment({"A": "image", "B": "image"}, {"B": "own"})

    assert env["A"] == "image"
    assert env["B"] == "own"
    assert env["HOME"] == "/home/sandbox"
    assert not any(value.startswith("/root") for value in env.values())


def test_an_operator_may_choose_the_size_of_the_temporary_folder() -> None:
    steps = plan.build_sandbox_plan(dataclasses.replace(SANDBOX, tmp_bytes=1 << 30))
    sizes = {step.args["target"]: step.args["size_bytes"] for step in steps if step.act == "tmpfs"}

    assert (sizes["/tmp"], sizes["/dev/shm"]) == (1 << 30, SANDBOX.memory_bytes // 4)
