"""The machine that numbers were taken on; without it they mean nothing."""

from __future__ import annotations

import os
import platform
import time


def describe() -> dict[str, object]:
    """Say what matters for comparing two runs."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 1e6, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "root": os.getuid() == 0,
        "load_before": round(os.getloadavg()[0], 2),
    }


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "0 unknown"
