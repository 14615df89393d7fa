"""Quotas that stores enforce: the comparisons, and the sentences of the refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import QuotaExceeded
from warren.stores.base import ResourceUseExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.domain.records import Owner, ResourceUse, Skill, StoredFile
    from warren.stores.base import Ceilings

_RETRY_S = 60.0
"""A full quota stays full until files or skills are deleted or expire."""
_WORDS = {
    "sandboxes": ("sandboxes", "delete one"),
    "active": ("active sandboxes", "stop or delete one"),
    "memory_bytes": ("bytes of memory in active sandboxes", "stop or delete one"),
    "disk_bytes": ("bytes of disk in sandboxes", "delete one"),
    "gpus": ("GPUs in active sandboxes", "stop or delete one"),
}


def check_use(owner: Owner, ceilings: Ceilings, use: Callable[[Owner | None, str | None], ResourceUse]) -> None:
    """Raise ResourceUseExceeded for the first ceiling that the use of an owner, a tenant or all users exceeds."""
    wholes = (
        ("your quota", owner, None),
        (f"the ceiling of tenant {owner.tenant!r}", None, owner.tenant),
        ("the quota of all users together", None, None),
    )
    for ceiling, (possessor, whose, tenant) in zip(ceilings, wholes, strict=True):
        if ceiling is None or not any(ceiling):
            continue
        over = use(whose, tenant).over(ceiling)
        if over:
            what, remedy = _WORDS[over]
            sentence = f"{possessor} of {getattr(ceiling, over)} {what} is used up: {remedy}"
            raise ResourceUseExceeded(sentence, whose or tenant)


def check_file(file: StoredFile, own_bytes: int, all_bytes: int, weigh: Callable[[Owner | None], int]) -> None:
    """Raise QuotaExceeded when a new file would exceed its owner's or the total limit of bytes."""
    for most, owner, whose in ((own_bytes, file.owner, "your files"), (all_bytes, None, "those of all owners")):
        if most and weigh(owner) + file.weight > most:
            raise QuotaExceeded(
                f"there is no room for a file of {file.size} bytes: {whose} may have {most} bytes together; "
                "delete some, or wait until they expire",
                retry_after_s=_RETRY_S,
            )


def check_skill_count(have: int, most: int) -> None:
    """Raise QuotaExceeded when an owner has as many skills as allowed."""
    if most and have >= most:
        raise QuotaExceeded(f"you have {have} skills and may have {most}: delete some", retry_after_s=_RETRY_S)


def check_skill_bytes(skill: Skill, *, was: int, have: int, most: int) -> None:
    """Raise QuotaExceeded when the packages of an owner would weigh more than they may, and more than before."""
    if most and skill.size > was and have - was + skill.size > most:
        raise QuotaExceeded(
            f"your skills have {have} bytes and may have {most}: this one would have {skill.size}, so delete some",
            retry_after_s=_RETRY_S,
        )
