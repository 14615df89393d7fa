"""Containment plan: the steps that contain a sandbox, as a list that can be printed, reviewed and tested without root.

Two plans. A child of the keeper performs the *root plan* once for each image: it makes the read-only root in which the
zygote lives. The process that becomes an agent performs the *sandbox plan* once for each sandbox: it removes everything
that the zygote's root still allows. `contain.py` performs both, step by step, in this order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SANDBOX_ID = 1000
"""User and group id of everything in a sandbox, as seen inside."""
WORKSPACE = "/workspace"
GUEST = "/opt/warren"
SHARED = "/run/warren"
"""Where a rootless zygote sees the persistent workspaces; hidden in every sandbox."""

DRIVER = "/opt/gpu"
"""Where a sandbox with GPUs sees the driver's libraries (`lib`) and programs (`bin`)."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/cgroups",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
)
"""The kernel's own secrets, and files that show disks, groups, load and boot options of the host: other tenants."""
READ_ONLY = ("/proc/bus", "/proc/driver", "/proc/irq", "/proc/sys")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
RANDOM_ID = "/proc/sys/kernel/random/uuid"
"""Shown in place of the boot id, which names the host: another one at each reading, and always well-formed."""
HOST_FILES = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/texmf",
    "/var/lib/texmf",
)
"""Files outside /usr that the host's programs read, if they exist: all of them come from packages."""
ROOT_FOLDERS = ("/bin", "/lib", "/lib64", "/sbin")
"""Links into /usr; folders of their own on hosts that have not merged them."""
USERS = "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
GROUPS = "sandbox:x:1000:\nnogroup:x:65534:\n"
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"


@dataclass(frozen=True, slots=True)
class Step:
    """One act of containment: the name of a function in contain.py and its arguments."""

    act: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return " ".join((self.act, *(f"{key}={value}" for key, value in self.args.items())))


def step(act: str, **args: Any) -> Step:
    """Build a step."""
    return Step(act, args)


@dataclass(frozen=True, slots=True, kw_only=True)
class RootRequest:
    """The input of the root plan."""

    root: str
    """`host`, or a folder with a root filesystem."""
    image_path: str
    guest_path: str
    interpreter_prefix: str
    interpreter_inside: str
    shared_path: str | None = None
    driver: Mapping[str, Any] | None = None
    """Of a zygote whose sandboxes have GPUs: `libraries` and `programs` of this host. Never a device."""


def build_root_plan(request: RootRequest, *, exists: Iterable[str]) -> tuple[Step, ...]:
    """Plan the root in which a zygote lives; `exists` lists the HOST_FILES and other host paths that exist."""
    there = frozenset(exists)
    steps = [step("make_root")]
    if request.root == "host":
        steps += _host_root_steps(there)
    else:
        folders = (*ROOT_FOLDERS, "/usr")
        steps += [step("bind", source=f"{request.root}{path}", target=path) for path in folders]
    steps += [step("bind", source=os.path.join(request.image_path, "venv"), target="/opt/image")]
    if not request.interpreter_inside.startswith("/usr"):
        steps += [step("bind", source=request.interpreter_prefix, target=request.interpreter_inside)]
    steps += [step("bind", source=request.guest_path, target=GUEST)]
    if request.driver is not None:
        steps += _driver_steps(request.driver, from_host=request.root == "host")
    steps += [step("write", path=path, text=text) for path, text in _ETC_FILES]
    steps += [step("make_devices", names=DEVICES)]
    steps += [step("make_folder", path=path) for path in ("/proc", "/tmp", "/home", WORKSPACE)]
    steps += [step("link", path="/home/sandbox", target=WORKSPACE)]
    if request.shared_path is not None:
        steps += [step("bind", source=request.shared_path, target=SHARED, readonly=False)]
    steps += [step("proc", target="/proc")]
    steps += [step("tmpfs", target="/tmp", size_bytes=64 << 20, inodes=4096)]
    steps += [step("enter_root")]
    return tuple(steps)


_ETC_FILES = (
    ("/etc/passwd", USERS),
    ("/etc/group", GROUPS),
    ("/etc/hosts", HOSTS),
    ("/etc/nsswitch.conf", NSSWITCH),
    ("/etc/resolv.conf", ""),
    ("/etc/hostname", "sandbox\n"),
)


def _host_root_steps(there: frozenset[str]) -> list[Step]:
    steps = [step("bind", source="/usr", target="/usr")]
    for path in ROOT_FOLDERS:
        own = path in there
        steps += [step("bind", source=path, target=path) if own else step("link", path=path, target=f"usr{path}")]
    steps += [step("bind", source=path, target=path) for path in HOST_FILES if path in there]
    return steps


def _driver_steps(driver: Mapping[str, Any], *, from_host: bool) -> list[Step]:
    """Show the driver's files under one folder, for any root; files in the host's /usr are only linked."""
    files = [(library["path"], f"{DRIVER}/lib/{library['name']}") for library in driver["libraries"]]
    files += [(path, f"{DRIVER}/bin/{os.path.basename(path)}") for path in driver["programs"]]
    steps = [step("make_folder", path=f"{DRIVER}/{name}") for name in ("lib", "bin")]
    for target, source in {target: source for source, target in files}.items():
        if from_host and source.startswith("/usr/"):
            steps += [step("link", path=target, target=source)]
        else:
            steps += [step("bind", source=source, target=target)]
    names = {library["name"] for library in driver["libraries"]}
    links = {link: library["name"] for library in driver["libraries"] for link in library["links"]}
    return [
        *steps,
        *(step("link", path=f"{DRIVER}/lib/{link}", target=name) for link, name in links.items() if link not in names),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """The input of the sandbox plan."""

    memory_bytes: int
    open_files: int
    pids: int
    workspace: str
    """`attach` for a mount of the keeper, `tmpfs`, or the name of a folder below SHARED."""
    disk_bytes: int
    disk_inodes: int
    tmp_bytes: int = 0
    """Size of /tmp; 0 is a quarter of the memory."""
    layers: frozenset[str]
    """The layers in force; steps of other layers are left out."""
    nodes: tuple[str, ...] = ()
    """Device nodes that the keeper passes, by their paths inside."""


def build_sandbox_plan(request: SandboxRequest) -> tuple[Step, ...]:
    """Plan one sandbox.

    The order is the security argument: mounts need privilege, so they come first; capabilities go
    before the system-call filter, which is last because the steps before it need what it forbids.
    """
    # Files in memory take at most half of the memory, so that filling them up never kills the agent; unless the
    # operator wants a larger /tmp, where a program that fills it is ended as one that takes too much memory.
    tmpfs_bytes = request.memory_bytes // 4
    steps = [
        step("become", uid=SANDBOX_ID, gid=SANDBOX_ID),
        step("proc", target="/proc"),
        step("mask", paths=MASKED),
        step("make_read_only", paths=READ_ONLY),
        step("bind_again", source=RANDOM_ID, target=BOOT_ID),
        step("tmpfs", target="/tmp", size_bytes=request.tmp_bytes or tmpfs_bytes, inodes=request.disk_inodes),
        *([step("add_devices", names=DEVICES, paths=request.nodes)] if request.nodes else []),
        step("tmpfs", target="/dev/shm", size_bytes=tmpfs_bytes, inodes=request.disk_inodes),
        step("devpts", target="/dev/pts"),
        _workspace_step(request),
        step("hide", path=SHARED),
        step("hostname", name="sandbox"),
        step("loopback"),
        step("limit", resource="NOFILE", value=request.open_files),
        step("limit", resource="CORE", value=0),
        step("limit", resource="MEMLOCK", value=8 << 20),
    ]
    if "uid" not in request.layers:
        # All sandboxes share one host uid then, and only a limit set inside the namespace counts for each sandbox.
        steps += [step("limit", resource="NPROC", value=request.pids)]
    steps += [step("enter", path=WORKSPACE)]
    if "landlock" in request.layers:
        steps += [step("landlock", writable=("/workspace", "/tmp", "/dev", "/proc"))]
    steps += [step("drop_capabilities"), step("seccomp"), step("check_sealed", uid=SANDBOX_ID)]
    return tuple(steps)


def _workspace_step(request: SandboxRequest) -> Step:
    if request.workspace == "attach":
        return step("attach", target=WORKSPACE)
    if request.workspace == "tmpfs":
        return step("tmpfs", target=WORKSPACE, size_bytes=request.disk_bytes, inodes=request.disk_inodes)
    return step("bind_again", source=f"{SHARED}/{request.workspace}", target=WORKSPACE)


def build_environment(image: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Build the complete environment of user code: the image's variables, then the sandbox's; none of the host's."""
    return {
        # Commands of installed packages come first, as their modules do.
        "PATH": f"{WORKSPACE}/.packages/bin:/opt/image/bin:{WORKSPACE}/.packages/npm/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/home/sandbox",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "XDG_CACHE_HOME": "/tmp/.cache",
        "MPLCONFIGDIR": "/tmp/.matplotlib",
        **image,
        **own,
    }


def add_driver(environment: Mapping[str, str], driver: Mapping[str, Any] | None) -> dict[str, str]:
    """Add the variables, libraries and programs of a driver to an environment."""
    if driver is None:
        return dict(environment)
    libraries = ":".join(filter(None, (f"{DRIVER}/lib", environment.get("LD_LIBRARY_PATH", ""))))
    path = f"{environment.get('PATH', '/usr/bin:/bin')}:{DRIVER}/bin"
    # Otherwise compiled kernels would be files of the workspace.
    caches = {"CUDA_CACHE_PATH": "/tmp/.nv"}
    return {**caches, **driver["env"], **environment, "LD_LIBRARY_PATH": libraries, "PATH": path}
