"""Replays golden files: requests of a dialect's clients, and the answers that its contract promises.

A file is `<dialect>/<name>.json` beside this one:

    {"about": "one sentence",
     "steps": [{"does": "makes a session",
                "as": "ann",
                "request": {"method": "POST", "path": "/sessions", "json": {}},
                "response": {"status": 201, "headers": {"content-type": "application/json"},
                             "json": {"session_id": "<keep:session:sbx_[0-9a-f]{24}>", "created_at": "<time>"}}},
               {"does": "ends it", "always": true,
                "request": {"method": "DELETE", "path": "/sessions/{{session}}"},
                "response": {"status": 204, "empty": true}}]}

`as` is who asks (ann, bob, rita, adam, anonymous; ann unless said), with `"key_in": "path"` by `/k/<key>`, with
`"key_in": "x-api-key"` by that header. A step with `always` is also taken after a failure, to clean up.

A request has a `method` and `path`, and if it needs them `query`, `headers` and one body: `json`; `text`; `base64`;
`form`, an object; or `multipart`, a list of `{"name", "filename", "content_type", "text" or "base64"}` in which a part
without a filename is a form field. `{{name}}` anywhere in a step is what an earlier step kept.

A response has a `status` and if they matter `headers` (null: it must not be there) and one body: `json`, `text`,
`base64`, `empty`, or `events`, a list of `{"event", "id", "data"}` of which `event` and `id` may be left out. With
`"join": ["stream", "text"]` events in a row that have the same `stream` in their data are one, of all their `text`.
Objects must have exactly the keys that are written, lists exactly the values. A string may be a placeholder:

    <any>          anything            <string>         a string           <string:REGEX>       that matches, all of it
    <number>       a number            <number:0..5>    in that range      <int> <int:0..5>     no fraction; an end may
    <time>         seconds since the epoch, about now                                           be left out
    <iso>          a time of about now, as ISO 8601
    <keep:NAME:REGEX>                  a string that matches, and that later steps know as {{NAME}}
    <keep:NAME>                        any value but null, the same
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import pathlib
import re
import time
from typing import TYPE_CHECKING, Any

from api.served import read_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from api.served import Served

FOLDER = pathlib.Path(__file__).parent
_NOW_S = 600.0
_PLACEHOLDER = re.compile(r"<(any|string|number|int|time|iso|keep)(?::(.*))?>", re.DOTALL)
_KEPT = re.compile(r"\{\{(\w+)\}\}")


def names(dialect: str) -> list[str]:
    """List the golden files of a dialect."""
    return sorted(path.stem for path in (FOLDER / dialect).glob("*.json"))


def replay(served: Served, dialect: str, name: str) -> None:
    """Take every step of a file; fail at the first answer that is not as written."""
    golden = json.loads((FOLDER / dialect / f"{name}.json").read_text())
    kept: dict[str, Any] = {}
    failure: AssertionError | None = None
    for step in golden["steps"]:
        if failure is not None and not step.get("always"):
            continue
        try:
            _take(served, step, kept)
        except (AssertionError, KeyError) as exc:
            # After a failure, what a step wants may never have been kept.
            failure = failure or AssertionError(f"{name}: {step['does']}: {exc!r}")
    if failure is not None:
        raise failure


def _take(served: Served, step: dict[str, Any], kept: dict[str, Any]) -> None:
    request, response = _fill(step["request"], kept), _fill(step["response"], kept)
    with _client(served, step) as client:
        built = client.build_request(
            request["method"],
            request["path"],
            params=request.get("query"),
            headers=request.get("headers"),
            **_body(request),
        )
        answer = client.send(built, stream=True)
        try:
            found = _read(answer, response)
        finally:
            answer.close()
    assert answer.status_code == response["status"], f"{answer.status_code}: {found!r}"
    for header, wanted in response.get("headers", {}).items():
        _match(answer.headers.get(header), wanted, kept, header)
    for kind in ("json", "text", "base64", "events"):
        if kind in response:
            _match(found, response[kind], kept, "")
    if response.get("empty"):
        assert found == ""


def _client(served: Served, step: dict[str, Any]) -> httpx.Client:
    who, where = step.get("as", "ann"), step.get("key_in", "header")
    if where == "header":
        client = served.client(who)
        client.base_url = served.url
        return client
    client = served.client("anonymous", headers={"X-API-Key": served.keys[who]} if where == "x-api-key" else {})
    client.base_url = f"{served.url}/k/{served.keys[who]}" if where == "path" else served.url
    return client


def _body(request: dict[str, Any]) -> dict[str, Any]:
    if "json" in request:
        return {"json": request["json"]}
    if "form" in request:
        return {"data": request["form"]}
    if "multipart" in request:
        parts = [
            (part["name"], (part.get("filename"), _bytes(part), part.get("content_type")))
            for part in request["multipart"]
        ]
        return {"files": parts}
    return {"content": _bytes(request)} if {"text", "base64"} & set(request) else {}


def _bytes(holder: dict[str, Any]) -> bytes:
    return base64.b64decode(holder["base64"]) if "base64" in holder else str(holder["text"]).encode()


def _read(answer: httpx.Response, response: dict[str, Any]) -> Any:
    if "events" in response and answer.headers.get("content-type", "").startswith("text/event-stream"):
        return list(_events(answer, response))
    content = answer.read()
    if "base64" in response:
        return base64.b64encode(content).decode()
    if "json" in response:
        try:
            return json.loads(content)
        except ValueError:
            raise AssertionError(f"{answer.status_code}, no JSON: {content[:500]!r}") from None
    return content.decode()


def _events(answer: httpx.Response, response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    by, text = response.get("join", (None, None))
    last: dict[str, Any] | None = None
    for event in read_events(answer):
        found = {"event": event.name, "id": event.id, "data": event.data}
        found = {key: value for key, value in found.items() if key in response["events"][0] or key == "data"}
        if last is not None and text in event.data and last["data"].get(by) == event.data.get(by, ""):
            last["data"][text] += event.data[text]
            continue
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield last


def _fill(value: Any, kept: dict[str, Any]) -> Any:
    """Put in what earlier steps kept."""
    if isinstance(value, str):
        whole = _KEPT.fullmatch(value)
        return kept[whole[1]] if whole else _KEPT.sub(lambda found: str(kept[found[1]]), value)
    if isinstance(value, dict):
        return {key: _fill(each, kept) for key, each in value.items()}
    if isinstance(value, list):
        return [_fill(each, kept) for each in value]
    return value


def _match(found: Any, wanted: Any, kept: dict[str, Any], where: str) -> None:
    """Raise AssertionError that says where something else was found than is wanted."""
    placeholder = _PLACEHOLDER.fullmatch(wanted) if isinstance(wanted, str) else None
    if placeholder is not None:
        fits = _fits(found, placeholder[1], placeholder[2], kept)
        assert fits, f"at {where or 'the top'}: {found!r} is no {wanted}"
    elif isinstance(wanted, dict) and isinstance(found, dict):
        assert set(found) == set(wanted), f"at {where or 'the top'}: keys {sorted(found)}, not {sorted(wanted)}"
        for key, each in wanted.items():
            _match(found[key], each, kept, f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list):
        assert len(found) == len(wanted), f"at {where or 'the top'}: {found!r}, not {wanted!r}"
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            _match(one, other, kept, f"{where}[{number}]")
    else:
        same = found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
        assert same, f"at {where or 'the top'}: {found!r}, not {wanted!r}"


def _fits(found: Any, kind: str, detail: str | None, kept: dict[str, Any]) -> bool:
    if kind == "keep":
        name, _, pattern = (detail or "").partition(":")
        kept[name] = found
        return found is not None and (not pattern or _fits(found, "string", pattern, kept))
    if kind == "string":
        return isinstance(found, str) and re.fullmatch(detail or ".*", found, re.DOTALL) is not None
    if kind in {"number", "int"}:
        low, _, high = (detail or "..").partition("..")
        is_kind = not isinstance(found, bool) and isinstance(found, int if kind == "int" else int | float)
        return is_kind and float(low or "-inf") <= found <= float(high or "inf")
    return kind == "any" or _is_now(found, kind)


def _is_now(found: Any, kind: str) -> bool:
    if kind == "iso":
        then = dt.datetime.fromisoformat(found)
        found = (then if then.tzinfo else then.replace(tzinfo=dt.UTC)).timestamp()
    return isinstance(found, int | float) and abs(found - time.time()) < _NOW_S
