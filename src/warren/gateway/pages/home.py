"""Warren's own page at `/`, and the page at `/docs/` where no documentation site was built."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import warren
from warren.gateway.pages.html import build_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.gateway.api.operations import Reply

_QUICK_START = """export WARREN_URL=http://127.0.0.1:8000   # the address of this page
{key}curl -sS {header}-H 'Content-Type: application/json' \\
  -d '{{"code": "print(1 + 1)"}}' "$WARREN_URL/api/v1/run\""""
_KEY = "export WARREN_API_KEY=wrn_…               # the key that `warren serve` printed\n"
_HEADER = '-H "Authorization: Bearer $WARREN_API_KEY" '


def build_home(links: Mapping[str, str], *, with_auth: bool) -> Reply:
    """Build the page. `links` are addresses and their names."""
    key, header = (_KEY, _HEADER) if with_auth else ("", "")
    start = _QUICK_START.format(key=key, header=header)
    return build_page(
        "Warren",
        f"<h1>Warren <small>{escape(warren.__version__)}</small></h1><p>Sandboxes that run code for AI agents.</p>"
        f"<ul>{_list(links)}</ul><h2>Quick start</h2><pre>{escape(start)}</pre>",
    )


def build_docs_home(links: Mapping[str, str]) -> Reply:
    """Build the page of `/docs/` without a site."""
    return build_page(
        "Warren: documentation",
        "<h1>Documentation</h1><p>This installation has no documentation site; <code>make docs-site</code> in a "
        f"checkout builds it.</p><ul>{_list(links)}</ul>",
    )


def _list(links: Mapping[str, str]) -> str:
    return "".join(f'<li><a href="{escape(where)}">{escape(name)}</a></li>' for where, name in links.items())
