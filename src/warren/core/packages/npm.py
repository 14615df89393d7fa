"""npm registry pages: parsed, rewritten with addresses of the service, and the hash of each file."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

import orjson

from warren.core.packages.fetch import Unfetched
from warren.core.packages.sources import SIZES, build_digest

if TYPE_CHECKING:
    from warren.core.packages.sources import Digest

ACCEPT = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8"
NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]{0,100}/)?[A-Za-z0-9~-][A-Za-z0-9._~-]{0,213}")
_FILE = re.compile(r"[A-Za-z0-9~@-][A-Za-z0-9._~+-]{0,250}\.tgz")
_SHA1 = re.compile(r"[0-9a-f]{40}")
_KEPT = (
    *("name", "version", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta"),
    *("bundleDependencies", "bundledDependencies", "acceptDependencies", "engines", "os", "cpu", "libc", "bin"),
    *("directories", "deprecated", "hasInstallScript", "funding", "_hasShrinkwrap"),
)

Version = dict[str, Any]
"""The registry's entry of a version, and `file`, `url`, `integrity`, `shasum`."""


def parse_page(url: str, _kind: str, body: bytes) -> dict[str, Any]:
    """Parse the registry's page of a package: `tags`, `versions` and `modified`. Raises Unfetched."""
    try:
        said = orjson.loads(body)
        found = {}
        for number, entry in said["versions"].items():
            version = _read_version(url, entry)
            if version is not None:
                found[number] = version
        return {
            "tags": dict(said.get("dist-tags", {})),
            "versions": found,
            "modified": str(said.get("modified") or said.get("time", {}).get("modified") or ""),
        }
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as exc:
        raise Unfetched("the npm registry sent a page that cannot be parsed") from exc


def render(name: str, page: dict[str, Any], base: str) -> bytes:
    """Render the page for npm."""
    versions = {}
    for number, version in page["versions"].items():
        dist = {"tarball": f"{base}/{name}/-/{version['file']}"}
        if version["integrity"]:
            dist["integrity"] = version["integrity"]
        if version["shasum"]:
            dist["shasum"] = version["shasum"]
        versions[number] = {**version["said"], "dist": dist}
    return orjson.dumps({"name": name, "dist-tags": page["tags"], "versions": versions, "modified": page["modified"]})


def find_file(page: dict[str, Any], file: str) -> Version | None:
    """Return the version that a file belongs to."""
    return next((version for version in page["versions"].values() if version["file"] == file), None)


def read_integrity(integrity: str) -> Digest | None:
    """Return the strongest digest of an integrity; None without a supported one."""
    found = []
    for part in integrity.split():
        algorithm, _, value = part.partition("?")[0].partition("-")
        try:
            digest = build_digest(algorithm, base64.b64decode(value, validate=True).hex())
        except (binascii.Error, ValueError):
            continue
        if digest is not None:
            found.append(digest)
    return max(found, key=lambda digest: SIZES[digest.algorithm], default=None)


def _read_version(url: str, entry: dict[str, Any]) -> Version | None:
    dist = entry["dist"]
    where = urljoin(url, str(dist["tarball"]))
    file = unquote(urlsplit(where).path.rpartition("/")[2])
    if not _FILE.fullmatch(file):
        return None
    shasum = str(dist.get("shasum", "")).lower()
    return {
        "said": {key: entry[key] for key in _KEPT if key in entry},
        "file": file,
        "url": where,
        "integrity": str(dist.get("integrity", ""))[:1000],
        "shasum": shasum if _SHA1.fullmatch(shasum) else "",
    }
