"""What there is of NVIDIA on this host, as a CDI spec: for hosts on which nobody has run `nvidia-ctk cdi generate`."""

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
"""What computing and looking at a GPU need; nothing for drawing on a screen."""
_FOLDERS = (
    f"/usr/lib/{os.uname().machine}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)
_PROGRAMS = ("nvidia-smi",)
_PROGRAM_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/nvidia/bin")
_NUMBERED = re.compile(r"/dev/nvidia(\d{1,3})")
_LDCONFIG_S = 10.0


def describe() -> dict[str, Any] | None:
    """Build the spec of what is found: device nodes, driver libraries, `nvidia-smi`; None where there is no GPU."""
    numbers = sorted(int(match[1]) for path in glob.glob("/dev/nvidia*") if (match := _NUMBERED.fullmatch(path)))
    if not numbers:
        return None
    common = [f"/dev/{name}" for name in _COMMON if os.path.exists(f"/dev/{name}")]
    common += sorted(glob.glob("/dev/nvidia-caps/nvidia-cap*"))
    files = [*find_libraries(), *_find_programs()]
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
    """Return what the driver says of each GPU, by its device node: `model`, `uuid`."""
    cards: dict[str, dict[str, str]] = {}
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in file)}
            uuid = told.get("GPU UUID", "")
            # WHY: until somebody has opened it, the driver writes question marks.
            known = {"model": told.get("Model", ""), "uuid": "" if "?" in uuid else uuid}
            cards[f"/dev/nvidia{told.get('Device Minor', '')}"] = known
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
    # Those with a numbering of their own, such as libnvidia-pkcs11, are the driver's only where the version says so.
    return sorted(found.values())


def _load_cache() -> list[str]:
    """Return what the dynamic linker knows, of this machine's own kind."""
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


def _find_programs() -> list[str]:
    found = []
    for name in _PROGRAMS:
        paths = (os.path.join(folder, name) for folder in _PROGRAM_FOLDERS)
        path = next((os.path.realpath(path) for path in paths if os.access(path, os.X_OK)), None)
        found += [path] if path is not None else []
    return found
