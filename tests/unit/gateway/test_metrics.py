"""The numbers: what is counted, and that labels stay few."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from unit.gateway.whole import Whole, tell
from warren.core.telemetry.counters import SECONDS, Counters, Outcomes

if TYPE_CHECKING:
    from warren.domain.values import Image

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "reference", "metrics.md")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(autouse=True)
def _image(python_image: Image) -> None:
    assert python_image.name == "python"


async def scrape(whole: Whole) -> Samples:
    answer = await whole.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_what_was_done_is_counted(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        made = (await whole.client.post("/api/v1/sandboxes", json={})).json()["id"]
        at = f"/api/v1/sandboxes/{made}"
        await whole.client.post(f"{at}/exec", json={"code": "1 + 1"})
        await whole.client.post(f"{at}/exec", json={"code": "1 / 0"})
        await whole.client.put(f"{at}/files/a", content=b"12345")
        await whole.client.get(f"{at}/files/a")
        await whole.service.executions.flush()
        seen = await scrape(whole)
        assert seen[key("warren_sandboxes", status="running")] == 1
        assert seen[key("warren_executions_total", kind="cell", cause="exited")] == 1
        assert seen[key("warren_executions_total", kind="cell", cause="error")] == 1
        assert seen[key("warren_execution_seconds_count", kind="cell")] == 2
        assert seen[key("warren_create_seconds_count", source="engine")] == 1
        assert seen[key("warren_file_bytes_total", direction="in")] == 5
        assert seen[key("warren_file_bytes_total", direction="out")] == 5
        route = "/sandboxes/{sandbox_id}/exec"
        assert seen[key("warren_http_requests_total", method="POST", route=route, status="200")] == 2
        assert seen[key("warren_http_request_seconds_count", method="POST", route=route)] == 2
        assert seen[key("warren_http_bytes_total", direction="out")] > 5
        assert seen[key("warren_waiting", line="create")] == 0
        assert key("process_resident_memory_bytes") in seen

    tell(images_dir, story)


def test_labels_are_never_a_callers(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        await scrape(whole)
        for number in range(20):
            await whole.client.get(f"/nowhere/{number}")
            await whole.client.get(f"/api/v1/sandboxes/sbx_0000000000{number}/files/{number}")
            await whole.client.request(f"VERB{number}", "/livez")
        requests = {labels: value for (name, labels), value in (await scrape(whole)).items() if name == REQUESTS}
        assert requests == {
            labels("GET", "/metrics", 200): 1,
            labels("GET", "none", 404): 20,
            labels("GET", "/sandboxes/{sandbox_id}/files/{path:path}", 404): 20,
            labels("other", "none", 405): 20,
        }

    tell(images_dir, story)


REQUESTS = "warren_http_requests_total"


def labels(method: str, route: str, status: int) -> frozenset[tuple[str, str]]:
    return frozenset({("method", method), ("route", route), ("status", str(status))})


def test_every_number_is_on_its_page(images_dir: str) -> None:
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()

    async def story(whole: Whole) -> None:
        text = (await whole.client.get("/metrics")).text
        families = re.findall(r"^# TYPE (warren_\w+)", text, re.MULTILINE)
        named = set(re.findall(r"`(warren_\w+)`", page))
        assert {name for name in families if not name.endswith("_created")} == named

    tell(images_dir, story)


def test_two_services_in_one_process_count_for_themselves(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        await whole.client.get("/livez")
        assert (await scrape(whole))[key(REQUESTS, method="GET", route="/livez", status="200")] == 1

    tell(images_dir, story)
    tell(images_dir, story)


def test_a_duration_falls_into_the_first_bucket_that_holds_it() -> None:
    counted = Outcomes("things", "thing_seconds", CollectorRegistry())

    for seconds in (0.0, SECONDS[0], SECONDS[0] * 1.01, SECONDS[-1] * 2):
        counted.count("successful", seconds)

    [family] = counted.seconds.collect()
    read = {sample.labels["le"]: sample.value for sample in family.samples if sample.labels}
    assert (read[str(SECONDS[0])], read[str(SECONDS[1])], read["+Inf"]) == (2, 3, 4)
    assert (counted.read("successful"), counted.read("failed")) == (4, 0)


def test_an_observer_counts_by_a_few_words() -> None:
    observer = Counters()

    observer.rejected("executions")
    observer.rejected("executions")
    observer.sandbox_created("pool", 0.001)

    assert observer.registry.get_sample_value("warren_rejected_total", {"reason": "executions"}) == 2
    assert observer.registry.get_sample_value("warren_create_seconds_count", {"source": "pool"}) == 1
