"""The files of Swagger UI in the package are those of its release, unchanged."""

from __future__ import annotations

import gzip
import hashlib

import pytest

from warren.gateway.pages.api import ASSETS, load_assets

RELEASED = {
    "swagger-ui-bundle.js": "36eeb4d5640b9c036b1d0f854499af1cceebbdb260b790a03a18be5e8488fbf5",
    "swagger-ui.css": "c3cfe8248c4b0b89673600fb829924eafbac6de4bc4b2b06f5f5243483074d0a",
}
"""SHA-256 of the files of swagger-ui-dist 5.34.1."""


@pytest.mark.parametrize("name", RELEASED)
def test_a_file_is_the_one_of_the_release(name: str) -> None:
    asset = load_assets()[ASSETS + name]

    assert hashlib.sha256(gzip.decompress(asset.content)).hexdigest() == RELEASED[name]
