"""`warren serve --daemon`: a service that outlives the command, and what a service announces once it is ready."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from warren.cli.errors import EXIT_FAILED
from warren.cli.terminal.tables import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.settings import Settings

_PROGRAM = ("-P", "-c", "from warren.cli.main import main; main()")


@dataclass(frozen=True, slots=True)
class Announcement:
    """Where a service is, and how to get in."""

    address: str
    asks_for_key: bool
    api_key: str | None = None
    """Only when it has just been made."""
    pid: int = 0
    log: str | None = None
    """The log file of one that runs in the background."""
    has_docs: bool = True


def print_as_text(found: Announcement) -> None:
    """Tell a person, with a line that can be pasted."""
    print(f"Warren is at {found.address}" + (f"  (API: {found.address}/docs/api)" if found.has_docs else ""))
    header = ""
    if found.asks_for_key:
        if found.api_key is not None:
            print(f"Your API key, shown this once: {found.api_key}")
        else:
            print("Keys: `warren keys list` shows them, `warren keys create NAME` makes another.")
        header = f' -H "Authorization: Bearer {found.api_key or "$WARREN_API_KEY"}"'
    else:
        print("No key is needed: every client that reaches this address may run code.")
    if found.log is not None:
        print(f"It is process {found.pid} and logs to {found.log}; `warren status` shows it, `warren stop` ends it.")
    body = '{"code": "print(1 + 1)"}'
    print(f"Try: curl {found.address}/api/v1/run{header} -H 'Content-Type: application/json' -d '{body}'", flush=True)


def print_as_json(found: Announcement) -> None:
    """Tell a program, in a line."""
    print(json.dumps(asdict(found)), flush=True)


def leave_behind(settings: Settings, flags: Mapping[str, object], log_file: str | None, *, as_json: bool) -> int:
    """Start a service that outlives us, with these settings by flags, and return once it is ready, or has failed."""
    from warren.cli.service.data_lock import Held, find_holder

    holder = find_holder(settings.data_dir)
    if holder is not None:
        raise Held(f"{settings.data_dir} is served already, by {holder.what}: `warren status` shows it")
    log_path = os.path.abspath(log_file or os.path.join(settings.data_dir, "service.log"))
    os.makedirs(settings.data_dir, 0o755, exist_ok=True)
    # Truncating it from outside must not leave a hole: each line goes to where the end is then.
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    began_at = os.fstat(log).st_size
    arguments = ["serve", *_as_arguments(flags), "--detached", "--log-file", log_path]
    with subprocess.Popen(
        [sys.executable, *_PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    ) as child:
        os.close(log)
        said = _listen(child)
        if said:
            # The child is not ours to wait for.
            child.returncode = 0
    if not said:
        return _explain(log_path, began_at, child.returncode)
    if as_json:
        print_json(json.loads(said))
    else:
        print_as_text(Announcement(**json.loads(said)))
    return 0


def _as_arguments(flags: Mapping[str, object]) -> list[str]:
    """Write flags as they are typed."""
    found: list[str] = []
    for name, value in flags.items():
        option = f"--{name.rpartition('.')[2].replace('_', '-')}"
        if isinstance(value, bool):
            found.append(option if value else f"--no-{option[2:]}")
        elif value is not None:
            found += [option, str(value)]
    return found


def _listen(child: subprocess.Popen[bytes]) -> bytes:
    """Wait until the service says that it is ready; nothing when it ends before."""
    from warren.cli.terminal.progress import spinner

    assert child.stdout is not None
    try:
        with spinner("starting"):
            return child.stdout.readline()
    except BaseException:
        child.terminate()
        raise


def _explain(log_path: str, began_at: int, code: int) -> int:
    with open(log_path, "rb") as file:
        file.seek(began_at)
        lines = file.read().decode("utf-8", "replace").splitlines()
    told = [line for line in lines if line.startswith("warren")]
    print(told[-1] if told else f"warren: the service ended at once; {log_path} says why", file=sys.stderr)
    return code or EXIT_FAILED
