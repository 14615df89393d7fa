"""The client without `await` is the one with it, and is never edited."""

from __future__ import annotations

import subprocess
import sys

from house import sdk_page
from house.repository import ROOT, read
from house.sync_client import find_stale
from warren.sdk import public

SERVER = {
    "warren.bootstrap.app",
    "warren.cli",
    "warren.core",
    "warren.domain.values",
    "warren.engines",
    "warren.gateway",
    "warren.guest",
}
SERVER |= {"warren.settings", "warren.stores", "warren.testing"}


def loaded_after(program: str) -> set[str]:
    """Name the modules that are there once a program has run."""
    program += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_the_client_without_await_is_made_from_the_one_with_it() -> None:
    assert list(find_stale(ROOT)) == [], "run `make sdk`"


def test_the_page_on_the_client_is_what_its_code_says() -> None:
    assert read("docs/reference/sdk.md") == sdk_page.render(), "run `make docs`"


def test_every_public_name_is_on_its_page() -> None:
    page = read("docs/reference/sdk.md")
    unnamed = {"Error", "RequestError", "EngineError", "Event"}

    assert [name for name in public.__all__ if name.removeprefix("Async") not in page and name not in unnamed] == []


def test_importing_warren_imports_no_other_package() -> None:
    roots = {name.partition(".")[0] for name in loaded_after("import warren")}

    assert roots & {"httpx", "pydantic", "starlette", "anyio", "asyncio", "websockets", "typing"} == set()


def test_using_the_client_imports_nothing_of_the_service() -> None:
    loaded = loaded_after("import warren; warren.Client; warren.AsyncClient")

    assert {name for name in loaded if name in SERVER} == set()
    # httpx itself imports rich where that is installed.
    assert loaded & {"pydantic", "starlette", "uvicorn", "websockets", "typer"} == set()


def test_looking_for_a_module_of_the_service_does_not_import_the_client() -> None:
    assert "httpx" not in loaded_after("from warren.domain import errors; hasattr(__import__('warren'), 'nothing')")
