"""The plans are reviewed as text: a change of containment shows up here as a changed line."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.engines.local import contain, plan

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


def test_every_step_of_both_plans_can_be_performed() -> None:
    steps = plan.build_root_plan(ROOT, exists=plan.HOST_FILES) + plan.build_sandbox_plan(SANDBOX)

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
