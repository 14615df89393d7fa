from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from typing import Any

import pytest

import warren
from warren import Display, Result
from warren.sdk.results import build_result
from warren.sdk.values import build
from warren.sdk.values_sandboxes import SandboxInfo

RAW: dict[str, Any] = {
    "execution_id": "exe_1",
    "sandbox_id": "sbx_1",
    "status": "finished",
    "kind": "cell",
    "started_at": "2026-01-01T00:00:00.000+00:00",
    "exit_code": 0,
    "cause": "exited",
    "encoding": "utf-8",
}


def result(**more: Any) -> Result:
    return build_result(RAW | more)


def shown(data: dict[str, str], *, is_result: bool = False) -> dict[str, Any]:
    return {"data": data, "metadata": {}, "is_result": is_result}


class Page(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_text_is_what_a_person_would_read() -> None:
    assert result(stdout="one\n").text == "one\n"
    assert result(stdout="one\n", displays=[shown({"text/plain": "2"}, is_result=True)]).text == "one\n2"
    failed = result(cause="error", exit_code=1, error={"name": "E", "value": "v", "traceback": "Traceback: E v\n"})
    assert failed.text == "Traceback: E v\n"
    assert "oom" in result(cause="oom", exit_code=-9, hint="Use less.").text


def test_a_traceback_that_the_kernel_wrote_is_told_once() -> None:
    error = {"name": "E", "value": "v", "traceback": "Traceback: E v"}
    failed = result(cause="error", exit_code=1, stderr="Traceback: E v\n", error=error)

    late = result(cause="timeout", stderr="Traceback: E v\n", error=error, hint="Take longer.")

    assert failed.text == "Traceback: E v\n"
    assert late.text == "Traceback: E v\ntimeout: Take longer."
    assert failed._repr_html_().count("Traceback") == 1


def test_at_a_prompt_a_result_is_one_short_line() -> None:
    table = shown({"text/plain": "42", "image/png": "iVBORw==" * 1000}, is_result=True)
    big = result(stdout="x" * 1_000_000, displays=[table])

    assert repr(big).startswith("Result(exited, value='42', stdout='xxx")
    assert len(repr(big)) < 250
    assert repr(big.displays[0]) == "Display(text/plain, image/png)"
    assert repr(result(exit_code=3)) == "Result(exited, exit_code=3)"
    assert repr(result(status="running", cause=None)) == "Result(running)"


def test_only_a_good_end_passes_the_check() -> None:
    good = result()

    assert good.check() is good
    for wrong in ({"exit_code": 1}, {"cause": "timeout", "exit_code": -9}, {"status": "running", "cause": None}):
        with pytest.raises(warren.ExecutionFailed):
            result(**wrong).check()


def test_output_is_exact_where_it_came_so() -> None:
    exact = result(stdout="//4=", encoding="base64")

    assert (exact.raw_stdout, exact.stdout) == (b"\xff\xfe", "\ufffd\ufffd")
    assert result(stdout="ä").raw_stdout == "ä".encode()


def test_fields_of_a_newer_service_are_passed_over_and_missing_ones_told() -> None:
    assert result(of_next_year=1).ok
    with pytest.raises(warren.NotUnderstood, match="SandboxInfo"):
        build(SandboxInfo, {"id": "sbx_1"})
    with pytest.raises(warren.NotUnderstood):
        build(SandboxInfo, ["no", "mapping"])


def test_results_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        result().stdout = "other"  # type: ignore[misc]  # that is the point


def test_a_notebook_shows_output_tables_and_images() -> None:
    table = shown({"text/html": "<table><tr><td>1</td></tr></table>", "text/plain": "1"})
    image = shown({"image/png": "iVBORw==", "text/plain": "<Figure>"})
    page = Page(result(stdout="said\n", displays=[table, image])._repr_html_())

    tags = dict(page.tags)
    assert "said" in page.text
    assert tags["img"]["src"] == "data:image/png;base64,iVBORw=="
    policy, _, framed = (tags["iframe"]["srcdoc"] or "").partition(">")
    assert policy.startswith('<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; ')
    assert framed == "<table><tr><td>1</td></tr></table>"
    bundle = result(stdout="said\n")._repr_mimebundle_(include=None, exclude=None)
    assert bundle["text/plain"] == "said\n"
    assert set(bundle) == {"text/html", "text/plain"}


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.mark.parametrize("mime", ["text/html", "text/plain", "image/svg+xml", "image/png", "application/javascript"])
def test_what_a_sandbox_made_runs_nothing_in_a_notebook(mime: str) -> None:
    evil = result(
        stdout=EVIL,
        stderr=EVIL,
        cause="error",
        hint=EVIL,
        displays=[shown({mime: EVIL})],
        error={"name": EVIL, "value": EVIL, "traceback": EVIL},
    )
    for page in (Page(evil._repr_html_()), Page(evil.displays[0]._repr_mimebundle_()["text/html"])):
        assert {tag for tag, _ in page.tags} <= {"div", "pre", "b", "img", "iframe"}
        for tag, attributes in page.tags:
            assert not any(name.startswith("on") for name in attributes)
            if tag == "img":
                assert str(attributes["src"]).startswith("data:image/")
            if tag == "iframe":
                assert attributes["sandbox"] is None  # there, and allows nothing


def test_colours_of_a_terminal_are_left_out_and_long_text_is_cut() -> None:
    assert Page(result(stdout="\x1b[31mred\x1b[0m")._repr_html_()).text == "red"
    assert len(result(stdout="x" * 1_000_000)._repr_html_()) < 200_000


def test_a_terminal_obeys_nothing_of_what_is_shown_there_unasked() -> None:
    evil = "\x1bc\x1b]0;title\x07\x9b31mred\u202e\r"
    bad = result(stdout=evil, cause="error", error={"name": "E", "value": evil, "traceback": evil})
    with pytest.raises(warren.ExecutionFailed) as failure:
        bad.check()
    plain = (bad._repr_mimebundle_()["text/plain"], str(failure.value), repr(bad))

    for text in plain:
        assert all(each.isprintable() for each in text.replace("\n", ""))
    assert warren.Display(data={"text/plain": evil})._repr_mimebundle_()["text/plain"].isprintable()


def test_images_are_found_and_saved(tmp_path: Any) -> None:
    found = result(displays=[shown({"image/svg+xml": "<svg/>"}), shown({"image/png": "not base64!"}), shown({})])

    (picture,) = found.images
    picture.save(str(tmp_path / "image.svg"))
    assert (picture.mime, (tmp_path / "image.svg").read_text()) == ("image/svg+xml", "<svg/>")
    assert "6 bytes" in picture._repr_mimebundle_()["text/plain"]
    assert Display(data={}).text == ""
