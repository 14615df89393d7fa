"""onit-sandbox's three tools: its arguments, defaults and results, and each of its defects done right."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from api.mcp_client import SSE, Mcp, text, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.client.client import Client

    from api.served import Served

NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "install_packages": ("Install Python Packages", {"packages": NULLABLE, "session_id": NULLABLE}),
    "run_code": (
        "Run Code",
        {"command": NULLABLE, "timeout": {"type": "integer", "default": 120}, "session_id": NULLABLE},
    ),
    "sandbox_status": ("Sandbox Status", {"session_id": NULLABLE}),
}
RESULT = {"type": "object", "properties": {"result": {"title": "Result", "type": "string"}}, "required": ["result"]}


@pytest.fixture
def mcp(bare: Served) -> Iterator[Mcp]:
    mcp = Mcp(bare)
    yield mcp
    mcp.clear()


@pytest.fixture
def everywhere(served: Served) -> Iterator[Mcp]:
    mcp = Mcp(served)
    yield mcp
    mcp.clear()


def test_its_tools_take_and_answer_what_its_clients_know(everywhere: Mcp) -> None:
    async def work(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, (title, arguments) in SCHEMAS.items():
            tool = listed[name]
            assert tool.title == title
            assert tool.input_schema.get("required", []) == []
            assert tool.input_schema["title"] == f"{name}Arguments"
            known = tool.input_schema["properties"]
            for argument, schema in arguments.items():
                assert {key: known[argument].get(key) for key in schema} == schema
            assert tool.output_schema == RESULT | {"title": f"{name}Output"}

        assert told(await client.call_tool("sandbox_status", {})) == {
            "status": "not_created",
            "python_version": None,
            "installed_packages": [],
            "disk_usage_mb": 0,
            "uptime_seconds": 0,
            "gpu_available": False,
        }
        assert told(await client.call_tool("run_code", {})) == {"status": "error", "error": "No command specified"}
        missing = {"status": "error", "error": "No packages specified"}
        assert told(await client.call_tool("install_packages", {"packages": None})) == missing
        assert told(await client.call_tool("run_code", {"command": "echo out; echo err >&2; touch b a"})) == {
            "command": "echo out; echo err >&2; touch b a",
            "stdout": "out\n",
            "stderr": "err\n",
            "returncode": 0,
            "status": "ok",
            "files_created": ["a", "b"],
        }
        failed = told(await client.call_tool("run_code", {"command": "exit 3", "timeout": "99999"}))
        assert (failed["returncode"], failed["status"], failed["files_created"]) == (3, "error", [])
        assert told(await client.call_tool("run_code", {"command": "kill -9 $$"}))["returncode"] == 137
        status = told(await client.call_tool("sandbox_status", {}))
        assert status["status"] == "running"
        assert "ipython" in status["installed_packages"]
        wrong = await client.call_tool("run_code", {"command": ["ls"]})
        assert wrong.is_error
        assert text(wrong).startswith("Error executing tool run_code: ")
        unknown = await client.call_tool("write_everything", {})
        assert unknown.is_error
        assert text(unknown).startswith("Unknown tool: write_everything")

    everywhere.talk(work, by=SSE)


def test_a_command_that_runs_too_long_is_ended_and_its_output_is_not_lost(everywhere: Mcp) -> None:
    async def work(client: Client) -> None:
        # On the bare engine all processes of this machine are in sight, and another may run the same tests.
        sleep = f"sleep 27182.{uuid.uuid4().int}"
        command = f"echo so far; touch made; {sleep} & {sleep}"
        late = told(await client.call_tool("run_code", {"command": command, "timeout": 3}))
        assert (late["stdout"], late["stderr"]) == ("", "Command timed out after 3 seconds")
        assert (late["returncode"], late["status"], late["files_created"]) == (-1, "timeout", ["made"])
        assert late["partial_stdout"] == "so far\n"
        alive = told(await client.call_tool("run_code", {"command": f"pgrep -f '[s]{sleep[1:]}'"}))
        assert (alive["stdout"], alive["returncode"]) == ("", 1)

    everywhere.talk(work)


def test_long_outputs_keep_their_beginning_and_every_changed_file_is_named(mcp: Mcp) -> None:
    async def work(client: Client) -> None:
        long = told(await client.call_tool("run_code", {"command": "echo BEGIN; seq 100000; echo END"}))
        assert len(long["stdout"]) == 10_000
        assert long["stdout"].endswith("100000\nEND\n")
        assert long["stdout_head"].startswith("BEGIN\n1\n2\n")
        await client.call_tool("write_file", {"path": "old.txt", "content": "1"})
        command = "cat old.txt; mkdir -p a/b/c; touch a/b/near a/b/c/far; echo 2 > old.txt"
        seen = told(await client.call_tool("run_code", {"command": command}))
        # Files that another tool wrote are there, unlike in the original, which promised that.
        assert seen["stdout"] == "1"
        assert seen["files_created"] == ["a/b/near"]
        assert seen["files_changed"] == ["a/b/c/far", "old.txt"]

    mcp.talk(work)


def test_names_of_packages_and_of_sessions_are_nothing_but_names(mcp: Mcp) -> None:
    async def work(client: Client) -> None:
        evil = "x; touch pwned `touch pwned` $(touch pwned) --index-url=http://evil.example"
        for packages in (evil, "'; touch pwned #", "--target=/ x", "git+https://example.org/x", "../x.whl"):
            refused = told(await client.call_tool("install_packages", {"packages": packages}))
            assert (refused["status"], refused["installed"], refused["packages"]) == ("error", [], packages)
        assert "pwned" not in text(await client.call_tool("list_files", {}))

        names = ("abcdefghijkl-1", "abcdefghijkl-2", "../../../etc", "/etc", "a b", "\x00", "", "x" * 900, "ü")
        for number, name in enumerate(names):
            command = {"command": f"cat who 2>/dev/null; echo {number} > who", "session_id": name}
            assert told(await client.call_tool("run_code", command))["stdout"] == "", name
        for number, name in enumerate(names):
            assert (
                told(await client.call_tool("run_code", {"command": "cat who", "session_id": name}))["stdout"]
                == f"{number}\n"
            )

    mcp.talk(work)


def test_quotes_around_a_requirement_are_no_part_of_it(mcp: Mcp) -> None:
    async def work(client: Client) -> None:
        for packages in ('"no-such-x>=1.20"', "'no-such-x' \"no-such-y[a]==2.*\""):
            refused = told(await client.call_tool("install_packages", {"packages": packages}))
            # The names are good: this engine has no package index.
            assert "has no package index" in refused["output"]
        open_end = told(await client.call_tool("install_packages", {"packages": "'x"}))
        assert open_end["output"] == "No closing quotation."

    mcp.talk(work)


def test_quotes_in_background_commands_and_secrets_of_the_service_are_no_concern(mcp: Mcp) -> None:
    async def work(client: Client) -> None:
        asked = {"command": """echo 'it'"'"'s' "fine"; env""", "background": True}
        started = await client.call_tool("run_bash", asked)
        command = started.structured_content["command_id"]
        done = await client.call_tool("check_command", {"command_id": command, "wait": 60})
        stdout = done.structured_content["stdout"]
        assert stdout.startswith("it's fine\n")
        assert "TOKEN" not in stdout
        assert "WARREN_API_KEY" not in stdout

    mcp.talk(work)


def test_whether_there_is_a_gpu_is_what_a_program_inside_finds(everywhere: Mcp) -> None:
    look = (
        "import glob, os\n"
        "def opens(path):\n"
        "    try: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))\n"
        "    except OSError: return False\n"
        "    return True\n"
        "any(map(opens, glob.glob('/dev/nvidia[0-9]*') + glob.glob('/dev/kfd') + glob.glob('/dev/dri/renderD*')))"
    )

    async def work(client: Client) -> None:
        found = (await client.call_tool("run_python", {"code": look})).structured_content["value"]
        status = told(await client.call_tool("sandbox_status", {}))
        assert str(status["gpu_available"]) == found

    everywhere.talk(work)


def test_there_is_a_health_check_and_nothing_is_left_when_a_service_ends(mcp: Mcp) -> None:
    with mcp.served.client("anonymous") as http:
        assert http.get(f"{mcp.served.url}/health").json()["status"] == "ok"
