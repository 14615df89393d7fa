"""HTML of our own: one style, no script, and a Content-Security-Policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from warren.gateway.api.operations import Reply

STYLE = """
body{font:16px/1.6 system-ui,sans-serif;max-width:46rem;margin:4rem auto;padding:0 1.25rem}
body{color:#1c2430;background:#fff}
h1{font-size:1.6rem;margin:0 0 .5rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}small{font-weight:400;color:#667}
code,pre{font:13px/1.6 ui-monospace,monospace}
pre{background:#f4f6f9;padding:.8rem 1rem;border-radius:6px;overflow-x:auto}
ul{padding:0;list-style:none}li{margin:.2rem 0}a{color:#1a56b0}
@media(prefers-color-scheme:dark){body{background:#12161c;color:#d8dee8}pre{background:#1b222c}a{color:#8ab4f8}
small{color:#8a94a3}}
"""


def hash_source(source: bytes) -> str:
    """Build the source of a Content-Security-Policy that allows exactly this inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; style-src {hash_source(STYLE.encode())}; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def build_page(title: str, body: str) -> Reply:
    """Build the answer. `body` is HTML."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body>{body}</body></html>"
    )
    return html_reply(page, _POLICY)


def html_reply(page: str, policy: str) -> Reply:
    """Build an answer of HTML with its Content-Security-Policy."""
    headers = (
        (b"content-type", b"text/html; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"content-security-policy", policy.encode()),
    )
    return Reply(page.encode(), 200, headers)


def redirect(location: str) -> Reply:
    """Build the answer that leads elsewhere; browsers keep the fragment."""
    return Reply(b"", 307, ((b"location", location.encode()),))


def prefers_html(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a browser asks: it names `text/html`; programs accept `*/*` or JSON."""
    return any(b"text/html" in value for name, value in headers if name == b"accept")
