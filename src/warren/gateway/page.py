"""The documentation page: the OpenAPI document as plain HTML. No script, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fff}
h1,h2{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid #d5dbe3}
details{border:1px solid #d5dbe3;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}code,pre{font:13px/1.5 ui-monospace,monospace}
pre{background:#f4f6f9;padding:.7rem;border-radius:6px;overflow-x:auto}
.method{display:inline-block;min-width:4.2rem;font-weight:600}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0}
td:first-child{white-space:nowrap}
@media(prefers-color-scheme:dark){body{background:#12161c;color:#d8dee8}pre{background:#1b222c}
details,h2{border-color:#333d4a}a{color:#8ab4f8}}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy that the page is served with."""


def build_page(document: dict[str, Any]) -> str:
    """Write the page."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation, document))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in by_tag.items())
    about = "".join(
        f"<p>{_inline(line.removeprefix('* '))}</p>" for line in document["info"]["description"].splitlines()
    )
    title = f"{document['info']['title']} {document['info']['version']}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}: API</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head>'
        f'<body><h1>{escape(title)}: API</h1>{about}<p>As a file: <a href="/openapi.json">openapi.json</a></p>'
        f"{sections}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    rows = [
        (f"{each['name']} <i>({escape(each['in'])})</i>", each.get("description", ""))
        for each in operation["parameters"]
    ]
    rows += [(name, field.get("description", "")) for name, field in _fields(operation, document).items()]
    shared = document["components"]["responses"]
    answers = [
        (status, response.get("description") or shared[response["$ref"].rpartition("/")[2]]["description"])
        for status, response in operation["responses"].items()
    ]
    return (
        f'<details><summary><span class="method">{method.upper()}</span> <code>{escape(path)}</code> '
        f"{escape(operation['summary'])}</summary><p>{_inline(operation['description'])}</p>"
        f"<pre>{escape(build_curl(method, path, operation, with_key='security' in document))}</pre>"
        f"{_table('Takes', rows)}{_table('Answers', answers)}</details>"
    )


def build_curl(method: str, path: str, operation: dict[str, Any], *, with_key: bool) -> str:
    """Build a line that tries an operation out."""
    for each in operation["parameters"]:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", str(each["example"]))
    parts = ["curl -sS"] + ([f"-X {method.upper()}"] if method != "get" else [])
    if with_key:
        parts.append('-H "Authorization: Bearer $WARREN_KEY"')
    content = operation.get("requestBody", {}).get("content", {})
    if "example" in content.get("application/json", {}):
        text = json.dumps(content["application/json"]["example"])
        parts += ["-H 'Content-Type: application/json'", f"-d '{text}'"]
    elif "application/octet-stream" in content:
        parts.append("--data-binary @file")
    elif "multipart/form-data" in content:
        parts.append("-F file=@file")
    return " ".join([*parts, f"http://127.0.0.1:8000{path}"])


def _fields(operation: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    fields: dict[str, Any] = document["components"]["schemas"].get(name, {}).get("properties", {})
    return fields


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    lines = "".join(f"<tr><td><code>{name}</code></td><td>{_inline(text)}</td></tr>" for name, text in rows)
    return f"<table><tr><th>{title}</th><th></th></tr>{lines}</table>"


def _inline(text: str) -> str:
    """Write text with `code` in it."""
    return "".join(
        f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(text.split("`"))
    )
