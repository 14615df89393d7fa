"""A service that is started once with another engine, or another store, on a data folder takes nothing from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.serving import RunningService, create, run_code

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.root
@pytest.mark.every_engine
@pytest.mark.parametrize(("engine", "other"), [("local", "bare"), ("bare", "local")])
def test_a_start_with_another_engine_loses_nothing(
    serve: Callable[..., RunningService], engine: str, other: str
) -> None:
    service = serve(engine).start()
    with service.client() as client:
        kept = create(client, storage="persistent", session_key="chat")
        run_code(client, kept, "x = 41; open('kept.txt', 'w').write('kept')")
        stopped = create(client, storage="persistent")
        run_code(client, stopped, "open('kept.txt', 'w').write('stopped')")
        assert client.post(f"/sandboxes/{stopped}/stop").status_code == 200
        fleeting = create(client, storage="ephemeral")
        run_code(client, fleeting, "y = 1")
    before = service.handles()
    service.kill()

    service.choose(engine=other)
    service.start()
    with service.client() as client:
        assert {each["id"] for each in client.get("/sandboxes").json()["items"]} == {kept, stopped, fleeting}
        for answer in (
            client.post(f"/sandboxes/{kept}/exec", json={"code": "1"}),
            client.post("/sandboxes", json={"session_key": "chat"}),
            client.post(f"/sandboxes/{stopped}/start"),
            client.post(f"/sandboxes/{kept}/stop"),
            client.get(f"/sandboxes/{kept}/files/kept.txt"),
            client.delete(f"/sandboxes/{kept}"),
            client.delete(f"/sandboxes/{fleeting}"),
        ):
            assert answer.status_code == 409, answer.text
            assert f"another engine ({engine}), and this service runs {other}" in answer.json()["detail"]
        # And it works, beside what it does not have.
        assert run_code(client, create(client, storage="ephemeral"), "print(6 * 7)")["stdout"] == "42\n"
    (kept_records,) = [each for each in service.log() if each["event"] == "recovery.records_skipped"]
    assert (kept_records["count"], kept_records["level"]) == (3, "warning")
    with service.client() as client:
        for each in client.get("/sandboxes").json()["items"]:
            client.delete(f"/sandboxes/{each['id']}")
    assert service.stop() == 0
    assert service.run("stop-engine").returncode == 0

    service.choose(engine=engine)
    service.start()
    assert service.handles() == before == {kept, stopped, fleeting}
    with service.client() as client:
        shown = run_code(client, kept, "print(x + 1, open('kept.txt').read())")["stdout"]
        assert shown == "42 kept\n"
        assert run_code(client, fleeting, "print(y)")["stdout"] == "1\n"
        assert run_code(client, stopped, "print(open('kept.txt').read())")["stdout"] == "stopped\n"
    service.check_books()


@pytest.mark.root
def test_an_empty_store_destroys_no_workspace_and_an_admin_may_forget_a_record(
    serve: Callable[..., RunningService],
) -> None:
    service = serve("local", pool_size=1).start()
    with service.client() as client:
        kept = create(client, storage="persistent")
        run_code(client, kept, "open('kept.txt', 'w').write('kept')")
    service.kill()
    aside = service.folder / "aside"
    aside.mkdir()
    key = service.key
    for path in [*service.folder.glob("warren.db*"), service.folder / "audit.key"]:
        path.rename(aside / path.name)
    service.start()
    assert kept in service.handles()
    assert "recovery.strays_skipped" in {each["event"] for each in service.log()}
    with service.client() as client:
        assert client.get("/sandboxes").json()["items"] == []
    assert service.stop() == 0

    for path in aside.iterdir():
        path.replace(service.folder / path.name)
    service.key = key
    (service.folder / "local" / "reach").write_text("0" * 32)
    service.start()
    with service.client() as client:
        assert client.delete(f"/sandboxes/{kept}").status_code == 409
        assert client.delete(f"/sandboxes/{kept}", params={"forget": True}).status_code == 204
        assert client.get(f"/sandboxes/{kept}").status_code == 404
    assert kept in service.handles()
