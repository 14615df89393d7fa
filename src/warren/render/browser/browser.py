"""Browser process: starts with one empty page, and ends with all of its child processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from typing import TYPE_CHECKING, Self

from warren.render.browser.cdp import Connection, Session

if TYPE_CHECKING:
    from types import TracebackType

PROGRAMS = (
    "/usr/lib/chromium/chromium-headless-shell",
    "chromium-headless-shell",
    "chrome-headless-shell",
    "/usr/lib/chromium/chromium",
    "chromium",
    "chromium-browser",
    "google-chrome",
)
"""In this order. WHY the shell first: it starts three times faster and needs half of the memory."""
WIDTH, HEIGHT = 1920, 1080
START_TIMEOUT_S = 30.0
_ENDING_S = 10.0
_SCRIPT_MEMORY_MB = 512
_UNWANTED = (
    "Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,Prerender2,BackForwardCache,"
    "AutofillServerCommunication,IsolateOrigins,site-per-process,IsolateSandboxedIframes"
)
_FLAGS = (
    "--remote-debugging-pipe",
    # WHY: a sandbox forbids namespaces inside it. SAFE BECAUSE: one sandbox holds one job, and nothing else.
    "--no-sandbox",
    "--disable-setuid-sandbox",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-client-side-phishing-detection",
    "--disable-domain-reliability",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--no-pings",
    "--mute-audio",
    # Deterministic pictures, and no waiting for a display.
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--disable-checker-imaging",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--force-prefers-reduced-motion",
    # Second barrier behind interception: all names and the loopback lead to a closed port.
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--block-new-web-contents",
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    f"--disable-features={_UNWANTED}",
    f"--js-flags=--max-old-space-size={_SCRIPT_MEMORY_MB}",
    f"--window-size={WIDTH},{HEIGHT}",
)


class BrowserMissing(Exception):
    """No browser is installed here."""


def find_program() -> str:
    """Return the browser's path. Raises BrowserMissing."""
    for name in PROGRAMS:
        if path := shutil.which(name):
            return path
    raise BrowserMissing("no Chromium is installed: build the image `office`, or install chromium-headless-shell")


class Browser:
    """A browser for one job: `async with Browser() as browser`, then `browser.page`."""

    page: Session

    async def __aenter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="warren-browser-")
        try:
            self._start(find_program())
            await self._open_page()
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self, program: str) -> None:
        theirs_in, self._write_fd = _pipe()
        self._read_fd, theirs_out = _pipe()
        headless = () if "shell" in os.path.basename(program) else ("--headless=new",)
        arguments = [program, *headless, *_FLAGS, f"--user-data-dir={self._folder}", "about:blank"]

        def place_pipes() -> None:
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        with open(os.path.join(self._folder, "log"), "wb") as log:
            # WHY a function between fork and exec: the browser wants its pipes as descriptors 3 and 4 and nothing else.
            # SAFE BECAUSE: it only makes system calls. All other descriptors of ours are closed on exec.
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=place_pipes,  # noqa: PLW1509 - as above
                close_fds=False,
                start_new_session=True,
            )
        os.close(theirs_in)
        os.close(theirs_out)

    async def _open_page(self) -> None:
        self.connection = await Connection.open(self._read_fd, self._write_fd)
        self.connection.on("Target.targetCreated", self._close_others)
        targets = await self.connection.call("Target.getTargets", timeout_s=START_TIMEOUT_S)
        found = next((each for each in targets["targetInfos"] if each["type"] == "page"), None)
        if found is None:
            made = await self.connection.call("Target.createTarget", {"url": "about:blank"})
            found = {"targetId": made["targetId"]}
        target = found["targetId"]
        attached = await self.connection.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self.page = Session(self.connection, attached["sessionId"], target)
        tree = await self.page.call("Page.getFrameTree")
        self.page.frame_id = tree["frameTree"]["frame"]["id"]
        await self.connection.call("Target.setDiscoverTargets", {"discover": True})
        await self.connection.call("Browser.setDownloadBehavior", {"behavior": "deny"})

    def _close_others(self, params: dict[str, dict[str, str]]) -> None:
        target = params["targetInfo"]
        if target["type"] == "page" and target["targetId"] != self.page.target_id:
            self.connection.post("Target.closeTarget", {"targetId": target["targetId"]})

    def _end(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        if hasattr(self, "_process"):
            # WHY SIGKILL to the whole group: there is nothing to save, and a hung page would delay the exit.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_ENDING_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _pipe() -> tuple[int, int]:
    """Make a pipe whose descriptors do not collide with 3 and 4, which the browser uses."""
    made = os.pipe()
    high = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in made)
    for fd in made:
        os.close(fd)
    return high[0], high[1]
