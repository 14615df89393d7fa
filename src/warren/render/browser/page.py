"""The page of one job: its requests are answered from memory, dialogs are dismissed, and leaving it is an error."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from warren.render.browser import deck as decks
from warren.render.browser.browser import HEIGHT, WIDTH
from warren.render.browser.deck import RenderFailed

if TYPE_CHECKING:
    from warren.render.browser.browser import Browser
    from warren.render.browser.deck import Answer, Deck
    from warren.render.browser.mirror import Mirror

MAX_REQUESTS = 5000
"""Of one deck, answered and refused together; what comes later gets no answer."""
_MAX_NOTED = 50
_NOTED_LENGTH = 180
_FRAMED = re.compile(r"Framing '([^']{1,400})")
_LOADING_S = 30.0
_ANSWERING_S = 2.0
_SCRIPTS = [
    {
        "script": script,
        "fontFamilies": {
            "standard": f"Noto Sans CJK {region}",
            "sansSerif": f"Noto Sans CJK {region}",
            "serif": f"Noto Serif CJK {region}",
            "fixed": "Noto Sans Mono CJK JP" if region == "JP" else "Monospace",
        },
    }
    for script, region in (("Hans", "SC"), ("Hant", "TC"), ("Jpan", "JP"), ("Hang", "KR"), ("Kore", "KR"))
]
"""What Chromium paints such text with. WHY told: its shell knows no fonts by script, and fakes their bold."""


class Page:
    """Loads one deck, once."""

    def __init__(self, browser: Browser, deck: Deck, mirror: Mirror | None = None) -> None:
        self.session = browser.page
        self._connection = browser.connection
        self._deck = deck
        self._mirror = mirror
        self._loader = ""
        self._loaded = asyncio.Event()
        self._requests = 0
        self._under_way: dict[str, str] = {}
        """Addresses of pending requests, by id."""
        self._idle = asyncio.Event()
        self._last_request = 0.0
        self.missing: Counter[str] = Counter()
        """What the deck asked for and did not get; of its own files as it names them."""
        self.errors: list[str] = []
        """Exceptions of the deck's own scripts."""
        self.left = False
        """Whether the deck went to another page."""

    async def load(self) -> None:
        """Load the deck up to its `load` event, or until the deadline. Raises RenderFailed without a page at all."""
        session = self.session
        session.on("Inspector.targetCrashed", self._crashed)
        session.on("Page.javascriptDialogOpening", self._dismiss)
        session.on("Page.loadEventFired", lambda _: self._loaded.set())
        session.on("Page.frameStoppedLoading", self._stopped)
        session.on("Page.frameNavigated", self._navigated)
        session.on("Runtime.exceptionThrown", self._thrown)
        session.on("Log.entryAdded", self._logged)
        session.on("Network.requestWillBeSent", self._began)
        session.on("Network.loadingFinished", self._ended)
        session.on("Network.loadingFailed", self._refused)
        self._connection.on("Fetch.requestPaused", self._asked)
        for method, params in self._preparations():
            session.post(method, params)
        await self._connection.call("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})
        began = await session.call("Page.navigate", {"url": decks.URL})
        if problem := began.get("errorText"):
            raise RenderFailed("load_failed", f"the deck could not be loaded: {problem}")
        self._loader = began["loaderId"]
        try:
            async with asyncio.timeout(_LOADING_S):
                await self._loaded.wait()
        except TimeoutError:
            self.errors.append(f"the page had not finished loading after {_LOADING_S:.0f} seconds")
        await session.enter_world()

    @property
    def quiet_s(self) -> float:
        """Seconds since the last request ended; 0 while one is in flight."""
        return 0.0 if self._under_way else time.monotonic() - self._last_request

    async def answered(self) -> None:
        """Wait until all requests of the page are answered, for a bounded time."""
        if self._under_way:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWERING_S):
                    await self._idle.wait()

    def check(self) -> None:
        """Raise RenderFailed when the deck is no longer on its page."""
        if self.left:
            raise RenderFailed("page_left", "the deck went to another page while it was rendered: remove what does")

    def _preparations(self) -> list[tuple[str, dict[str, Any]]]:
        metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        return [
            ("Page.enable", {}),
            ("Runtime.enable", {}),
            ("Log.enable", {}),
            ("Network.enable", {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0}),
            ("Emulation.setDeviceMetricsOverride", metrics),
            ("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}),
            ("Emulation.setFocusEmulationEnabled", {"enabled": True}),
            ("Page.setFontFamilies", {"fontFamilies": {"fixed": "Monospace"}, "forScripts": _SCRIPTS}),
        ]

    def _asked(self, params: dict[str, Any]) -> None:
        self._requests += 1
        if self._requests > MAX_REQUESTS:
            return
        url = params["request"]["url"]
        is_frame = params.get("resourceType") == "Document"
        is_main = is_frame and params.get("frameId") == self.session.frame_id
        answer = None
        if params["request"]["method"] == "GET" and not (is_main and self._loader):
            answer = self._deck.answer(url, is_frame=is_frame, is_main=is_main, mirror=self._mirror)
        if answer is None:
            self._note_missing(url)
            # WHY another reason: for the main page, this one keeps the current document instead of showing an error.
            reason = "Aborted" if is_main else "BlockedByClient"
            refusal = {"requestId": params["requestId"], "errorReason": reason}
            self._connection.post("Fetch.failRequest", refusal)
        else:
            self._connection.post("Fetch.fulfillRequest", _fulfilment(params["requestId"], answer))

    def _began(self, params: dict[str, Any]) -> None:
        url = params["request"]["url"]
        if not url.startswith("data:") and len(self._under_way) < MAX_REQUESTS:
            self._under_way[params["requestId"]] = url[: _NOTED_LENGTH * 2]
            self._last_request = time.monotonic()

    def _refused(self, params: dict[str, Any]) -> None:
        # Local files and requests that the policy forbids; all others were intercepted and noted then.
        if params.get("blockedReason") in {"other", "csp"}:
            self._note_missing(self._under_way.get(params["requestId"], ""))
        self._ended(params)

    def _logged(self, params: dict[str, Any]) -> None:
        # WHY from the log: of a page in a frame that the policy forbids nothing else is said.
        framed = _FRAMED.match(str(params.get("entry", {}).get("text", "")))
        if framed is not None:
            self._note_missing(framed[1])

    def _ended(self, params: dict[str, Any]) -> None:
        self._under_way.pop(params["requestId"], None)
        if not self._under_way:
            self._idle.set()
        self._last_request = time.monotonic()

    def _note_missing(self, url: str) -> None:
        named = url.removeprefix(decks.URL)
        if not named:
            return
        short = named if len(named) <= _NOTED_LENGTH else named[:_NOTED_LENGTH] + "…"
        if short in self.missing or len(self.missing) < _MAX_NOTED:
            self.missing[short] += 1

    def _dismiss(self, params: dict[str, Any]) -> None:
        self.session.post("Page.handleJavaScriptDialog", {"accept": params.get("type") == "beforeunload"})

    def _navigated(self, params: dict[str, Any]) -> None:
        frame = params["frame"]
        if frame["id"] == self.session.frame_id and urlsplit(frame["url"]).hostname != decks.HOST:
            self.left = True

    def _stopped(self, params: dict[str, Any]) -> None:
        # WHY besides the load event: a page that tries to leave while it loads never gets one.
        if params.get("frameId") == self.session.frame_id and self._loader:
            self._loaded.set()

    def _thrown(self, params: dict[str, Any]) -> None:
        if len(self.errors) < _MAX_NOTED:
            self.errors.append(_describe(params.get("exceptionDetails", {})))

    def _crashed(self, _params: dict[str, Any]) -> None:
        reason = "the page crashed: most often because its scripts or pictures need more memory than a render has"
        self._connection.end_session(self.session.id, reason)


def _describe(details: dict[str, Any]) -> str:
    """Describe a script error and its place in the deck."""
    said = details.get("exception", {}).get("description") or details.get("text", "")
    first = str(said).strip().partition("\n")[0][:_NOTED_LENGTH]
    return f"{first} (line {details.get('lineNumber', 0) + 1})" if details.get("url") == decks.URL else first


def _fulfilment(request_id: str, answer: Answer) -> dict[str, Any]:
    headers = {
        "Content-Type": answer.content_type,
        "Cache-Control": "no-store",
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "X-Content-Type-Options": "nosniff",
        "X-DNS-Prefetch-Control": "off",
        "Referrer-Policy": "no-referrer",
    }
    if answer.is_page or answer.content_type.startswith(("text/html", "image/svg+xml", "application/xhtml")):
        headers["Content-Security-Policy"] = decks.POLICY
    return {
        "requestId": request_id,
        "responseCode": 200,
        "responseHeaders": [{"name": name, "value": value} for name, value in headers.items()],
        "body": base64.b64encode(answer.body).decode(),
    }
