"""The page on egress, followed in a shell, with a host outside that is on this machine."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from e2e.test_docs_run import ROOTLESS, Reader, blocks, stop_engine
from warren.bootstrap.app import build_policy
from warren.domain.egress import EgressMode
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image

PAGE = "docs/howto/egress.md"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[str]:
    """A server that sandboxes reach through egress alone: `host:port`."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "index.html").write_text("from outside\n")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def served(tmp_path: Path, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path / "data"
    folder.mkdir()
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    served = Served(
        Settings.model_validate(
            {
                "data_dir": str(folder),
                "image": python_image.name,
                "optional_layers": ("memory", "cpu") if ROOTLESS else (),
                "pool": {"size": 1},
                "tenant": {"egress_hosts": ("127.0.0.0/8",)},
            }
        )
    )
    served.start()
    yield served
    served.stop()
    stop_engine(folder)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")
def test_the_page_on_egress_can_be_followed(tmp_path: Path, served: Served, outside: str) -> None:
    reader = Reader(tmp_path, served)
    script = "\n".join(blocks(PAGE)) + "python3 - << 'END'\n" + "\n".join(blocks(PAGE, "python")) + "END\n"
    said = reader.run(script, WARREN_URL=served.url, WARREN_API_KEY=served.keys["ann"], TRY=outside)
    with served.client("adam") as adam:
        rows = adam.get("/audit", params={"limit": 1000}).json()["items"]
        made = adam.post("/sandboxes", json=json.loads(blocks(PAGE, "json")[0]))
        adam.delete(f"/sandboxes/{made.json()['id']}")

    assert said.startswith(f"{outside} may not be reached: this sandbox reaches no host (its egress is none).")
    assert said.count("from outside\n") == 3
    assert "wsec_" in said
    assert "A connection was refused: example.com:80 may not be reached: no rule" in said
    connected = [row["details"] for row in rows if row["action"] == "egress.connect"]
    assert {each["verdict"] for each in connected} == {"allowed", "refused"}
    assert any(each["rule"].startswith("grant ") for each in connected)
    assert "the-real-token" not in said + json.dumps(rows)
    assert made.status_code == 201


def test_the_settings_of_the_page_are_settings(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "toml")
    (tmp_path / "warren.toml").write_text(text)
    policy = build_policy(Settings.load({}, str(tmp_path)))

    assert policy.egress.mode is EgressMode.PACKAGES
    assert policy.ceiling_of("anybody").egress.mode is EgressMode.PACKAGES
    assert policy.ceiling_of("research").egress.mode is EgressMode.OPEN
    assert [rule.host for rule in policy.ceiling_of("research").egress.rules] == ["*.corp.example", "10.20.0.0/16"]
