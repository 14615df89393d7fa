"""What every suite shares: images, built once into a folder of the repository and kept between runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from warren.core.images import Catalog

if TYPE_CHECKING:
    from warren.domain import Image

_CACHE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ".cache", "tests")


@pytest.fixture(scope="session")
def images_dir() -> str:
    """The data folder whose `images/` holds the built images; tests add nothing else to it."""
    return _CACHE


@pytest.fixture(scope="session")
def python_image(images_dir: str) -> Image:
    """The smallest image, built the first time it is asked for."""
    return Catalog(images_dir).build("python")
