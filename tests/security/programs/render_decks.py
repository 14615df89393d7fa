"""Renders hostile decks, each in a process of its own as a service does; tells what came of them, and who was called.

ARGUMENTS: where Warren's code is; by name, the HTML of decks, in which PORT is a port that must never be reached; what
else the job file holds; and those decks that must have the memory for themselves. Prints JSON.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

LIBRARY, DECKS, ORDERS, ALONE = ARGUMENTS  # type: ignore[name-defined] # noqa: F821 - arena.report puts it above
GRACE_S = 100
called: list[str] = []


def listen() -> int:
    """Record every connection, over TCP and UDP, at one port of the loopback."""
    streams, packets = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    port: int = streams.getsockname()[1]
    packets.bind(("127.0.0.1", port))

    def accept() -> None:
        while True:
            caller, _ = streams.accept()
            called.append("tcp")
            caller.close()

    def receive() -> None:
        while True:
            packets.recvfrom(2000)
            called.append("udp")

    for each in (accept, receive):
        threading.Thread(target=each, daemon=True).start()
    return port


def browsers() -> int:
    """Count the browser's processes that still run; what was killed may take a moment to give its memory back."""
    deadline = time.monotonic() + 20
    while (count := len(running())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return count


def running() -> list[str]:
    """List the browser's processes."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                found += [name] if b"--remote-debugging-pipe" in file.read() else []
        except OSError:
            continue
    return found


def read_words(archive: zipfile.ZipFile) -> str:
    """Return all words of the presentation, visible or not."""
    content = archive.read(next(name for name in archive.namelist() if name.endswith(".pptx")))
    with zipfile.ZipFile(io.BytesIO(content)) as pptx:
        slides = [pptx.read(name).decode() for name in pptx.namelist() if re.match(r"ppt/(slides|notesSlides)/", name)]
    return " ".join(slides)


def colours(png: bytes) -> int:
    """Count the colours of a picture, at most 64 of them."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        found = image.convert("RGB").getcolors(64)
    return 64 if found is None else len(found)


def render(name: str, html: str) -> dict[str, object]:
    """Render one deck and look at what it left."""
    with tempfile.TemporaryDirectory() as folder:
        for path, content in (("index.html", html), ("job.json", json.dumps(ORDERS.get(name, {"timeout_s": 60})))):
            with open(os.path.join(folder, path), "w") as file:
                file.write(content)
        command = [sys.executable, "-m", "warren.render.job", os.path.join(folder, "job.json")]
        env = {**os.environ, "PYTHONPATH": LIBRARY}
        try:
            ran = subprocess.run(command, env=env, capture_output=True, timeout=GRACE_S, check=False)
        except subprocess.TimeoutExpired:
            return {"error": "it did not end"}
        try:
            with open(os.path.join(folder, "result.json")) as file:
                result: dict[str, object] = json.load(file)
        except OSError:
            return {"error": "it left no result", "stderr": ran.stderr.decode()[-2000:]}
        if result["ok"]:
            with zipfile.ZipFile(os.path.join(folder, "out.zip")) as archive:
                result["words"] = read_words(archive)
                result["colours"] = [colours(archive.read(each)) for each in archive.namelist() if each.endswith("png")]
    return {**result, "exit": ran.returncode}


port = listen()
with open("/tmp/secret.txt", "w") as secret:
    secret.write("OPEN-SESAME")
ready = {name: html.replace("PORT", str(port)) for name, html in DECKS.items()}
together = [name for name in ready if name not in ALONE]
with ThreadPoolExecutor(3) as pool:
    found = dict(zip(together, pool.map(lambda name: render(name, ready[name]), together), strict=True))
found |= {name: render(name, ready[name]) for name in ready if name in ALONE}
print(json.dumps({"decks": found, "called": called, "browsers": browsers()}))
