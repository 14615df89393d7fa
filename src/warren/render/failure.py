"""Why a render failed: a code for programs and one sentence for people. `job.py` lists the codes."""

from __future__ import annotations


class RenderFailed(Exception):
    """The deck cannot be rendered."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
