"""Waits until a page is visually stable: by querying its state, never by a fixed delay or network silence.

Fonts and pictures report when they are loaded; finite animations are set to their end, endless ones to their
beginning. Drawings that scripts make step by step are watched until they stop changing, for a bounded time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.render.browser.page import Page

_STILL_S = 0.1
"""A scripted page that has changed nothing for so long has come to rest."""
_LOOKS = 2
"""So many times in a row it must be at rest. WHY: the first look may come between two steps of a busy page."""
_RESTLESS_S = 2.5
"""After so long an eternally moving page is taken as it is."""
_PICTURES_MS = 5000

LIBRARY = """
globalThis.settling = (() => {
  const frame = () => new Promise(done => requestAnimationFrame(() => done()));
  const within = (ms, promise) => Promise.race([promise, new Promise(done => setTimeout(done, ms))]);
  let moved = performance.now(), restless = false;
  const options = {subtree: true, childList: true, attributes: true, characterData: true};
  new MutationObserver(() => { moved = performance.now(); }).observe(document, options);
  const small = new OffscreenCanvas(48, 48).getContext('2d', {willReadFrequently: true});
  const look = canvas => {
    small.clearRect(0, 0, 48, 48);
    small.drawImage(canvas, 0, 0, 48, 48);
    return small.getImageData(0, 0, 48, 48).data.reduce((sum, value) => (sum * 31 + value) | 0, 7);
  };
  let drawn = [];
  const watch = () => {
    const now = Array.from(document.querySelectorAll('canvas')).slice(0, 50).map(canvas => {
      try { return canvas.width && canvas.height ? look(canvas) : 0; } catch { return 0; }
    });
    if (now.length !== drawn.length || now.some((value, i) => value !== drawn[i])) moved = performance.now();
    drawn = now;
  };
  const still = () => {
    let count = 0;
    for (const animation of document.getAnimations()) {
      try {
        if (animation.timeline !== document.timeline || animation.playState === 'finished') continue;
        const ends = animation.effect && Number.isFinite(animation.effect.getComputedTiming().endTime);
        if (ends) animation.finish(); else animation.cancel();
        count += 1;
      } catch { /* it belongs to something that is gone */ }
    }
    return count;
  };
  const pictures = async () => {
    const images = Array.from(document.images);
    for (const image of images) if (image.loading === 'lazy') image.loading = 'eager';
    await Promise.all(images.map(image => image.decode().catch(() => 0)));
  };
  const parsed = () => document.readyState !== 'loading' ? 0 :
    new Promise(done => document.addEventListener('DOMContentLoaded', done, {once: true}));
  const ready = async ms => {
    await within(ms, parsed());
    await within(ms, Promise.all([document.fonts.ready, pictures()]));
    still();
    await frame();
    await frame();
    watch();
    return document.scripts.length > 0;
  };
  const arrived = async () => {
    // A page without scripts is final; taking its picture makes the frame.
    if (document.scripts.length === 0) { still(); return; }
    await frame();
    const seen = performance.now();
    still();
    await frame();
    while (!restless && moved > seen && performance.now() < seen + 1000) {
      still();
      await frame();
      if (performance.now() > moved + 100) break;
    }
    if (still()) await frame();
  };
  const idle = () => new Promise(done => requestIdleCallback(() => done(), {timeout: 500}));
  const rested = async () => {
    still();
    watch();
    await frame();
    await idle();
    watch();
    return performance.now() - moved;
  };
  const give_up = () => { restless = true; };
  return {frame, still, ready, rested, arrived, give_up};
})();
0;
"""


async def settle(page: Page) -> None:
    """Wait until the page has come to rest. Its isolated world then has `settling`."""
    session = page.session
    await session.evaluate(LIBRARY)
    is_scripted = await session.evaluate(f"settling.ready({_PICTURES_MS})")
    if not is_scripted:
        return
    deadline, quiet = time.monotonic() + _RESTLESS_S, 0
    while quiet < _LOOKS and time.monotonic() < deadline:
        rested_ms = await session.evaluate("settling.rested()")
        quiet = quiet + 1 if min(rested_ms / 1000, page.quiet_s) >= _STILL_S else 0
    if quiet < _LOOKS:
        await session.evaluate("settling.give_up()")
    # Content that arrived meanwhile may need fonts and pictures.
    await session.evaluate(f"settling.ready({_PICTURES_MS})")
