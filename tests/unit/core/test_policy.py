"""The operator's policy."""

from __future__ import annotations

import pytest

from warren.core.policy.policy import Policy, TenantLimits
from warren.domain.values import MIB, Limits


@pytest.mark.parametrize(
    ("asked", "most", "given"),
    [(0, None, 512), (256, None, 256), (2048, None, 2048), (2048, 1024, 1024), (256, 1024, 256), (0, 128, 128)],
)
def test_memory_is_as_asked_for_within_what_the_tenant_may_have(asked: int, most: int | None, given: int) -> None:
    largest = {} if most is None else {"memory_bytes": most * MIB}
    policy = Policy(limits=Limits(memory_bytes=512 * MIB), tenants={"acme": TenantLimits(largest=largest)})

    limits = policy.limits_with_memory("acme", asked * MIB)

    assert limits.memory_bytes == given * MIB
    assert limits.pids == policy.limits.pids
