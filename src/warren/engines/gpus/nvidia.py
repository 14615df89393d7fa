"""The NVIDIA GPUs and driver of this host as a CDI spec: for hosts without `nvidia-ctk cdi generate`."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import subprocess
from typing import Any

KIND = "nvidia.com/gpu"
_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_LIBRARIES = (
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-encode",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler",
    "libnvidia-sandboxutils",
)
"""Libraries for computing and monitoring; none for drawing on a screen."""
_FOLDERS = (
    f"/usr/lib/{os.uname().machine}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)
_PROGRAM_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/nvidia/bin")
_NUMBERED = re.compile(r"/dev/nvidia(\d{1,3})")
_LDCONFIG_S = 10.0


def describe() -> dict[str, Any] | None:
    """Build the spec: device nodes, driver libraries, `nvidia-smi`; None without a GPU."""
    numbers = sorted(int(match[1]) for path in glob.glob("/dev/nvidia*") if (match := _NUMBERED.fullmatch(path)))
    if not numbers:
        return None
    common = [f"/dev/{name}" for name in _COMMON if os.path.exists(f"/dev/{name}")]
    common += sorted(glob.glob("/dev/nvidia-caps/nvidia-cap*"))
    programs = (os.path.join(folder, "nvidia-smi") for folder in _PROGRAM_FOLDERS)
    program = next((os.path.realpath(path) for path in programs if os.access(path, os.X_OK)), None)
    files = [*find_libraries(), *([program] if program is not None else [])]
    return {
        "cdiVersion": "0.6.0",
        "kind": KIND,
        "devices": [
            {"name": str(number), "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{number}"}]}}
            for number in numbers
        ],
        "containerEdits": {
            "deviceNodes": [{"path": path} for path in common],
            "mounts": [{"hostPath": path, "containerPath": path} for path in files],
        },
    }


def find_cards() -> dict[str, dict[str, str]]:
    """Return the driver's facts about each GPU, by its device node: `model`, `uuid`."""
    cards: dict[str, dict[str, str]] = {}
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in file)}
            uuid = fields.get("GPU UUID", "")
            # WHY: until a program has opened the device, the driver writes question marks.
            known = {"model": fields.get("Model", ""), "uuid": "" if "?" in uuid else uuid}
            cards[f"/dev/nvidia{fields.get('Device Minor', '')}"] = known
    return cards


def find_libraries() -> list[str]:
    """Return the driver's libraries for this machine, as real files."""
    places = _load_cache()
    for folder in _FOLDERS:
        with contextlib.suppress(OSError):
            places += [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if ".so." in name]
    found: dict[str, str] = {}
    version = _driver_version()
    for path in places:
        name = os.path.basename(path).partition(".so")[0]
        real = os.path.realpath(path)
        if name in _LIBRARIES and os.path.isfile(real) and (not version or real.endswith(f".so.{version}")):
            found.setdefault(name, real)
    # Libraries with their own numbering, such as libnvidia-pkcs11, belong to the driver only if the version matches.
    return sorted(found.values())


def _load_cache() -> list[str]:
    """Return the libraries in the dynamic linker's cache, for this architecture."""
    program = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if program is None:
        return []
    try:
        said = subprocess.run([program, "-p"], capture_output=True, timeout=_LDCONFIG_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    kind = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(os.uname().machine, "")
    rows = (line.partition(" => ") for line in said.stdout.decode(errors="replace").splitlines())
    return [path.strip() for about, arrow, path in rows if arrow and kind in about]


def _driver_version() -> str:
    with contextlib.suppress(OSError), open("/sys/module/nvidia/version", encoding="ascii", errors="replace") as file:
        return file.read().strip()
    with contextlib.suppress(OSError), open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
        match = re.search(r"Kernel Module[^\d]*(\d+(?:\.\d+)+)", file.readline())
        return match[1] if match else ""
    return ""
