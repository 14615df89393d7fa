"""Decks that attack: with a real browser in a real sandbox they read nothing, reach nothing, and end in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from security import hostile_decks
from security.arena import report
from warren.domain.values import GIB, Limits

if TYPE_CHECKING:
    from warren.domain.values import Image
    from warren.testing.subject import Subject

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.timeout(600),
    pytest.mark.rest("a browser renders every hostile deck: two minutes of processor time"),
]
_LIBRARY = "/opt/warren"
_LIMITS = Limits(memory_bytes=2 * GIB, cpus=2, pids=300)


async def _render(subject: Subject, image: Image, decks: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Render decks in one sandbox, as a hostile program would, and check what holds for all of them."""
    async with subject.linked_sandbox(image=image, limits=_LIMITS) as agent:
        told = await report(
            agent, "render_decks", _LIBRARY, decks, hostile_decks.ORDERS, hostile_decks.ALONE, timeout_s=400
        )
    assert (told["called"], told["browsers"]) == ([], 0)
    found: dict[str, dict[str, Any]] = told["decks"]
    for name, result in found.items():
        assert "ok" in result, f"{name}: {result}"
        assert "OPEN-SESAME" not in str(result), f"{name} read a file"
    return found


async def test_what_a_deck_tries_does_not_happen_and_its_slides_are_there(
    subject: Subject, office_image: Image
) -> None:
    found = await _render(subject, office_image, hostile_decks.HARMLESS)

    assert {name: result.get("error") for name, result in found.items() if not result["ok"]} == {}
    for name in ("tries", "poison", "dialogs", "leaving", "restless", "frames"):
        assert (found[name]["slides"], found[name]["width"], found[name]["height"]) == (1, 1280, 720), name
        assert "innocent" in found[name]["words"]
        assert "LEAK" not in found[name]["words"]
        assert "PWNED" not in found[name]["words"]
    # The frame's own border is all that is seen of a file, and nothing of the rest.
    assert found["shown"]["colours"][1:] == [1, 1, 1, 1]
    assert found["shown"]["colours"][0] <= 5


async def test_a_deck_that_cannot_be_rendered_ends_in_an_error_that_says_why(
    subject: Subject, office_image: Image
) -> None:
    decks = {name: html for name, (html, _) in hostile_decks.REFUSED.items()}
    found = await _render(subject, office_image, {**decks, **hostile_decks.EITHER})

    for name, (_, codes) in hostile_decks.REFUSED.items():
        assert found[name]["ok"] is False, name
        assert found[name]["error"]["code"] in codes, f"{name}: {found[name]['error']}"
    for name, result in found.items():
        assert result["exit"] == (0 if result["ok"] else 1), name
        assert result["ok"] or (result["error"]["message"] and "\n" not in result["error"]["message"]), name
