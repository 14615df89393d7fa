"""The documentation page: the OpenAPI document as plain HTML. No script, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.settings import Settings

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fff}
h1,h2{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid #d5dbe3}
details{border:1px solid #d5dbe3;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}code,pre{font:13px/1.5 ui-monospace,monospace}
pre{background:#f4f6f9;padding:.7rem;border-radius:6px;overflow-x:auto}
.method{display:inline-block;min-width:4.2rem;font-weight:600}nav a{margin-right:1rem}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0}
td:first-child{white-space:nowrap}td:nth-child(2){width:30%}:target{background:#fff3c4}
@media(prefers-color-scheme:dark){body{background:#12161c;color:#d8dee8}pre{background:#1b222c}
details,h2{border-color:#333d4a}a{color:#8ab4f8}:target{background:#4a3f12}}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_SHELL = """export WARREN_URL=http://127.0.0.1:8000   # where you read this
{key}{ids}"""
_NATIVE_IDS = """sandbox=sbx_…                             # the id that making a sandbox answers
execution=exe_…                           # the execution_id that running something answers
skill=skl_…                               # the id that uploading a skill answers"""
_KEY = "export WARREN_API_KEY=wrn_…               # the key that `warren serve` printed\n"
_IDS = {"sandbox_id": "$sandbox", "execution_id": "$execution", "skill_id": "$skill"}

POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy that the page is served with."""


def has_docs(settings: Settings) -> bool:
    """Whether the documentation is served: unless the operator says, everywhere but in production."""
    return settings.env != "production" if settings.serve.docs is None else settings.serve.docs


def build_page(
    document: dict[str, Any],
    problems: dict[str, tuple[int, str]],
    *,
    file: str = "/openapi.json",
    others: Mapping[str, str] | None = None,
) -> str:
    """Write the page. `problems` are a code's status and meaning; the type of a problem leads to its row.

    `file` is where the document itself is, and `others` are further pages: where each is, and what it is called.
    """
    by_tag: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append(_operation(method, path, operation, document))
    sections = {tag: "".join(parts) for tag, parts in by_tag.items()}
    if problems:
        rows = [(code, str(status), text) for code, (status, text) in problems.items()]
        sections["Problems"] = _table(("code", "status", ""), rows, with_ids=True)
    about = "".join(f"<p>{_inline(each.removeprefix('* '))}</p>" for each in _paragraphs(document))
    links = "".join(f'<a href="{escape(where)}">{escape(name)}</a>' for where, name in (others or {}).items())
    elsewhere = f"<nav>Further pages: {links}</nav>" if links else ""
    title = f"{document['info']['title']} {document['info']['version']}: API"
    contents = "".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in sections)
    body = "".join(f'<h2 id="{_anchor(tag)}">{escape(tag)}</h2>{section}' for tag, section in sections.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head>'
        f'<body><h1>{escape(title)}</h1>{about}<p>As a file: <a href="{escape(file)}">{escape(file)}</a></p>{elsewhere}'
        f"<p>The lines below are for a shell that knows this:</p>"
        f"<pre>{escape(_build_shell(document))}</pre><nav>{contents}</nav>{body}"
        "</body></html>"
    )


def _build_shell(document: dict[str, Any]) -> str:
    """Write the lines that a shell must know before any other: where, who, and ids."""
    parameters = [
        each for methods in document["paths"].values() for one in methods.values() for each in one["parameters"]
    ]
    unknown = dict.fromkeys(each["name"] for each in parameters if each["in"] == "path" and "example" not in each)
    is_native = any(each["name"] in _IDS for each in parameters)
    ids = _NATIVE_IDS if is_native else "\n".join(f"{name}=…" for name in unknown)
    return _SHELL.format(key=_KEY if "security" in document else "", ids=ids).rstrip()


def _paragraphs(document: dict[str, Any]) -> list[str]:
    """Return what stands between the marks of a list, or between empty lines."""
    text: str = document["info"]["description"].replace("\n* ", "\n\n* ")
    return [part.strip().replace("\n", " ") for part in text.strip().split("\n\n")]


def _anchor(tag: str) -> str:
    return tag.lower().replace(" ", "-")


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    takes = [
        (f"{each['name']} ({each['in']})", _kind(each["schema"], document), each.get("description", ""))
        for each in operation["parameters"]
    ] + _fields(operation.get("requestBody", {}), document, ", required")
    answers: list[tuple[str, str, str]] = []
    for status, response in operation["responses"].items():
        if "$ref" not in response:
            fields = _fields(response, document)
            answers += [(status, "", response["description"]), *([] if fields[:1] == answers[1:2] else fields)]
    refusals = [status for status, response in operation["responses"].items() if "$ref" in response]
    needs_key = "security" in document and operation.get("security") != []
    return (
        f'<details><summary><span class="method">{method.upper()}</span> <code>{escape(path)}</code> '
        f"{escape(operation['summary'])}</summary><p>{_inline(operation['description'])}</p>"
        f"<pre>{escape(build_curl(method, path, operation, with_key=needs_key))}</pre>"
        f"{_table(('takes', '', ''), takes)}{_table(('answers', '', ''), answers)}"
        f"<p>Or {_failure(document)}: {', '.join(refusals)}.</p></details>"
    )


def _failure(document: dict[str, Any]) -> str:
    is_native = "Problem" in document["components"]["schemas"]
    return 'a <a href="#problems">problem</a>' if is_native else "what went wrong, in <code>detail</code>"


def build_curl(method: str, path: str, operation: dict[str, Any], *, with_key: bool) -> str:
    """Build a line that tries an operation out, in a shell that knows the variables at the top of the page."""
    for each in operation["parameters"]:
        if each["in"] == "path":
            name = each["name"]
            path = path.replace(f"{{{name}}}", _IDS.get(name) or str(each.get("example", f"${name}")))
    # WHY: curl -X HEAD waits for a body that never comes.
    parts = ["curl -sS", *({"get": [], "head": ["--head"]}.get(method, [f"-X {method.upper()}"]))]
    if list(operation["responses"].get("200", {}).get("content", ())) == ["text/event-stream"]:
        parts.append("-N")
    if with_key:
        parts.append('-H "Authorization: Bearer $WARREN_API_KEY"')
    content = operation.get("requestBody", {}).get("content", {})
    if "example" in content.get("application/json", {}):
        body = json.dumps(content["application/json"]["example"], ensure_ascii=False)
        parts += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(body)}"]
    elif "multipart/form-data" in content:
        parts.append(f"-F file=@{content['multipart/form-data'].get('example', {}).get('file', 'file')}")
    elif content and "application/json" not in content:
        parts += [f"-H 'Content-Type: {next(iter(content))}'", "--data-binary @file"]
    return " ".join([*parts, f'"$WARREN_URL{path}"'])


def _fields(holder: dict[str, Any], document: dict[str, Any], mark: str = "") -> list[tuple[str, str, str]]:
    """Return the fields of a JSON body: name, kind and meaning; `mark` is put to those that must be there."""
    schema = _resolve(holder.get("content", {}).get("application/json", {}).get("schema", {}), document)
    schema = _resolve(schema.get("items", schema), document)
    required = schema.get("required", ())
    return [
        (name, _kind(field, document) + (mark if name in required else ""), field.get("description", ""))
        for name, field in schema.get("properties", {}).items()
    ]


def _resolve(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _kind(schema: dict[str, Any], document: dict[str, Any]) -> str:
    """Say what a value may be: its type, its bounds, and what it is when it is not there."""
    default = f"; {json.dumps(schema['default'])} unless set" if "default" in schema else ""
    options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return " or ".join(_one_kind(_resolve(each, document), document) for each in options) + default


def _one_kind(schema: dict[str, Any], document: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(json.dumps(each) for each in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), document)}"
    if "properties" in schema:
        return f"object of {', '.join(schema['properties'])}"
    least, most = (schema.get(name) for name in ("minimum", "maximum"))
    bounds = [f"from {least}"] if least is not None else []
    bounds += [f"to {most}"] if most is not None else []
    return " ".join([str(schema.get("format") or schema.get("type", "anything")), *bounds])


def _table(heads: tuple[str, ...], rows: list[tuple[str, str, str]], *, with_ids: bool = False) -> str:
    if not rows:
        return ""
    top = "".join(f"<th>{each}</th>" for each in heads)
    lines = "".join(
        f"<tr{f' id={name!r}' if with_ids else ''}><td><code>{escape(name)}</code></td><td>{escape(kind)}</td>"
        f"<td>{_inline(text)}</td></tr>"
        for name, kind, text in rows
    )
    return f"<table><tr>{top}</tr>{lines}</table>"


def _inline(text: str) -> str:
    """Write text with `code` in it."""
    return "".join(
        f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(text.split("`"))
    )
