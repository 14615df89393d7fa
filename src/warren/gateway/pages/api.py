"""The API page: Swagger UI over an OpenAPI document, with every problem code explained below it (ADR 25).

`swagger_ui/` has the two files of swagger-ui-dist that the page needs, as gzip wrote them: they are sent as they are,
and a search of the source tree does not find 1.9 MB of minified code. Nothing is loaded from anywhere else.
"""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING, Any

from warren.gateway.pages.files import StaticFile
from warren.gateway.pages.html import html_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.gateway.api.operations import Reply

ASSETS = "/docs/api/assets/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Scripts of ours alone, and requests to ours alone: the key that a person types goes nowhere else."""

_START = """"use strict";
const root = document.getElementById("swagger-ui");
SwaggerUIBundle({
  domNode: root,
  url: root.dataset.document,
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  filter: true,
  requestSnippetsEnabled: true,
  tryItOutEnabled: true,
  validatorUrl: null,
  // The document above a problem's row has just grown.
  onComplete: () => document.getElementById(location.hash.slice(1))?.scrollIntoView(),
});
"""
_STYLE = """body{margin:0}
header,section{font:14px/1.6 system-ui,sans-serif;max-width:1460px;margin:0 auto;padding:1rem 20px}
header a{margin-right:1.2rem}table{border-collapse:collapse}td{vertical-align:top;padding:.2rem 1rem .2rem 0}
:target{background:#fff3c4}.swagger-ui .info{margin:1rem 0}
"""
_PACKED = ("swagger-ui-bundle.js", "swagger-ui.css")


def build_api_page(
    document: Mapping[str, Any], file: str, links: Mapping[str, str], problems: Mapping[str, tuple[int, str]]
) -> Reply:
    """Build the page of a document, which is at `file`. `problems` are the status and the meaning of each code."""
    title = f"{document['info']['title']}: API"
    others = "".join(f'<a href="{escape(where)}">{escape(name)}</a>' for where, name in links.items())
    rows = "".join(
        f'<tr id="{code}"><td><code>{code}</code></td><td>{status}</td><td>{escape(text)}</td></tr>'
        for code, (status, text) in problems.items()
    )
    table = f'<section><h2 id="problems">Problems</h2><table>{rows}</table></section>' if rows else ""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f'<link rel="stylesheet" href="{ASSETS}swagger-ui.css"><link rel="stylesheet" href="{ASSETS}page.css"></head>'
        f'<body><header>{others}<a href="{escape(file)}">{escape(file)}</a></header>'
        f'<div id="swagger-ui" data-document="{escape(file)}"><noscript>This page needs JavaScript.</noscript></div>'
        f'{table}<script src="{ASSETS}swagger-ui-bundle.js"></script><script src="{ASSETS}start.js"></script>'
        "</body></html>"
    )
    return html_reply(page, POLICY)


def load_assets() -> dict[str, StaticFile]:
    """Read the scripts and styles of the page, by address."""
    assets = [
        StaticFile(content=_START.encode(), name="start.js"),
        StaticFile(content=_STYLE.encode(), name="page.css"),
    ]
    for name in _PACKED:
        with open(os.path.join(os.path.dirname(__file__), "swagger_ui", f"{name}.gz"), "rb") as file:
            assets.append(StaticFile(content=file.read(), name=name, is_gzip=True))
    return {ASSETS + asset.name: asset for asset in assets}
