"""A service that cannot be started safely says why in one sentence, with its exit code, and changes nothing."""

from __future__ import annotations

import os
import socket
import sqlite3
from typing import TYPE_CHECKING

import pytest

from e2e.serving import NotStarted, RunningService, create, run_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _refusal(service: RunningService, *arguments: str) -> NotStarted:
    """Start a service that must not start, and see that it says so in one line and without a traceback."""
    with pytest.raises(NotStarted) as caught:
        service.start(*arguments)
    said = [line for line in caught.value.said.splitlines() if not line.startswith("{")]
    assert len(said) == 1, caught.value.said
    return caught.value


def _used(serve: Callable[..., RunningService]) -> tuple[RunningService, str]:
    """Have a folder on which a service has worked, with a sandbox that holds a file."""
    service = serve().start()
    with service.client() as client:
        sandbox = create(client)
        run_code(client, sandbox, "open('kept', 'w').write('yes')")
    assert service.stop() == 0
    return service, sandbox


def _content(folder: Path) -> dict[str, bytes]:
    return {
        name: (folder / name).read_bytes() for name in os.listdir(folder) if name.startswith(("warren.db", "audit"))
    }


def _works_again(service: RunningService, sandbox: str) -> bool:
    service.start()
    with service.client() as client:
        return bool(run_code(client, sandbox, "print(open('kept').read())")["stdout"] == "yes\n")


def test_a_damaged_database_is_refused_and_nothing_is_deleted(serve: Callable[..., RunningService]) -> None:
    service, sandbox = _used(serve)
    database = service.folder / "warren.db"
    whole = database.read_bytes()
    half = len(whole) // 2
    database.write_bytes(whole[:half] + b"\xa5" * 4096 + whole[half + 4096 :])
    before = _content(service.folder)
    refusal = _refusal(service)

    assert refusal.code == 1
    assert "warren.db is damaged" in refusal.said
    assert "restore a backup" in refusal.said
    assert _content(service.folder) == before
    assert sandbox in service.handles()
    database.write_bytes(whole)
    assert _works_again(service, sandbox)


def test_a_file_that_is_no_database_is_refused_and_left_alone(serve: Callable[..., RunningService]) -> None:
    service = serve("bare")
    (service.folder / "warren.db").write_bytes(b"a letter to my aunt" * 100)
    refusal = _refusal(service)

    assert refusal.code == 1
    assert "warren.db is no database" in refusal.said
    assert (service.folder / "warren.db").read_bytes().startswith(b"a letter")


def test_a_database_of_a_newer_version_is_refused_and_left_alone(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    service.stop()
    with sqlite3.connect(service.folder / "warren.db") as connection:
        connection.execute("INSERT INTO schema_version VALUES (1000, 0)")
    connection.close()
    before = _content(service.folder)
    refusal = _refusal(service)

    assert refusal.code == 1
    assert "is of a later version of Warren" in refusal.said
    assert _content(service.folder) == before


def test_without_the_secret_of_its_audit_record_the_service_does_not_go_on(
    serve: Callable[..., RunningService],
) -> None:
    service, sandbox = _used(serve)
    secret = (service.folder / "audit.key").read_bytes()
    os.unlink(service.folder / "audit.key")
    refusal = _refusal(service)

    assert refusal.code == 1
    assert "audit.key is missing" in refusal.said
    assert not (service.folder / "audit.key").exists()
    (service.folder / "audit.key").write_bytes(secret)
    (service.folder / "audit.key").chmod(0o600)
    assert _works_again(service, sandbox)
    service.check_books()


def test_a_database_that_was_removed_is_not_replaced_by_an_empty_one(serve: Callable[..., RunningService]) -> None:
    service, sandbox = _used(serve)
    whole = (service.folder / "warren.db").read_bytes()
    os.unlink(service.folder / "warren.db")
    refusal = _refusal(service)

    assert refusal.code == 1
    assert "restore a backup" in refusal.said
    assert sandbox in service.handles(), "what the store no longer knows must not be taken for a stray"
    (service.folder / "warren.db").write_bytes(whole)
    assert _works_again(service, sandbox)


def test_two_services_cannot_have_one_folder(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    second = service.run("serve", "--port", "0")

    assert second.returncode == 2
    assert f"is served already, by process {service.pid}" in second.stderr
    assert second.stderr.count("\n") == 1
    assert service.probe("/livez").status_code == 200


def test_a_port_that_is_taken_is_named(serve: Callable[..., RunningService]) -> None:
    """At once, and not after the minute that the image takes."""
    service = serve("bare")
    (service.folder / "images").unlink()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = service.run("serve", "--port", str(port))

    assert refused.returncode == 2
    assert f"port {port}" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_an_engine_that_cannot_work_here_is_named_before_an_image_is_built_for_it(
    serve: Callable[..., RunningService],
) -> None:
    service = serve("bare", allow_bare="false")
    (service.folder / "images").unlink()
    refused = service.run("serve", "--port", "0")

    assert refused.returncode == 1
    checking, refusal = refused.stderr.splitlines()
    assert "checking this host" in checking
    assert "the bare engine isolates nothing" in refusal


def test_the_line_to_paste_works_at_the_second_start_too(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    service.stop()
    service.launch()
    assert service.process is not None
    assert service.process.stdout is not None
    line = next(each for each in service.process.stdout if each.startswith("Try: curl "))

    assert '-H "Authorization: Bearer $WARREN_API_KEY"' in line, "a shell leaves what is in single quotes as it is"


def test_without_keys_only_this_machine_is_served(serve: Callable[..., RunningService]) -> None:
    service = serve("bare")
    refused = service.run("serve", "--port", "0", "--no-auth", "--host", "0.0.0.0")

    assert refused.returncode == 2
    assert "that is allowed on 127.0.0.1, ::1 and localhost only" in refused.stderr
    service.start("--no-auth")
    service.key = ""
    with service.client() as client:
        assert client.get("/sandboxes").json()["total"] == 0


def test_a_misspelt_setting_is_refused_with_a_suggestion(serve: Callable[..., RunningService]) -> None:
    service = serve("bare", pool_sise="3")
    refused = service.run("serve", "--port", "0")

    assert refused.returncode == 2
    assert "did you mean WARREN_POOL_SIZE?" in refused.stderr
    assert refused.stderr.count("\n") == 1
    del service.env["WARREN_POOL_SISE"]


def test_a_command_on_the_folder_works_while_it_is_served(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    made = service.run("keys", "create", "second")
    listed = service.run("keys", "list")

    assert made.returncode == 0, made.stderr
    assert "second" in listed.stdout
    assert service.run("audit", "verify").returncode == 0
