"""`warren serve --daemon` and `warren stop`: a service that goes on by itself, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.codes import EXIT_FAILED, EXIT_NO_SERVICE
from warren.cli.options import AsJson
from warren.cli.service.offline_store import DataDir
from warren.cli.terminal.tables import print_json, wants_json
from warren.cli.units import parse_duration, render_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.cli.service.data_lock import Holder
    from warren.settings import Settings

STOP_EXAMPLES = """\b
Examples:
  warren stop
  warren stop --now                 # without waiting for the requests that are under way
  warren stop --data-dir ./data
"""

_PROGRAM = ("-P", "-c", "from warren.cli.main import main; main()")
_MORE_S = 20.0
"""On top of what requests get to finish, for the service to write down what it still has to write."""


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
    _show(json.loads(said), as_json)
    return 0


def _as_arguments(flags: Mapping[str, object]) -> list[str]:
    """Write flags as somebody would type them."""
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


def _show(said: dict[str, object], as_json: bool) -> None:
    from warren.cli.service.announcement import Announcement, print_as_text

    if wants_json(as_json):
        print_json(said)
    else:
        print_as_text(Announcement(**said))  # type: ignore[arg-type]  # as our own child wrote it


def stop(
    *,
    now: Annotated[bool, typer.Option("--now", help="End the requests that are under way too.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            show_default=False,
            help="Wait so long for it to end; as long as requests may take, and a little, unless set.",
        ),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> int:
    """Stop the service of a data folder, in the background or not, and wait for its end.

    Requests that are under way may finish first. Sandboxes live on, and the next service finds them again. Leaves with
    3 when no service runs.
    """
    from warren.cli.service.data_lock import COMMAND, find_holder
    from warren.domain.errors import ConfigError
    from warren.settings import Settings

    settings = Settings.load(flags={"data_dir": data_dir})
    holder = find_holder(settings.data_dir)
    if holder is None:
        return _tell(as_json, False, f"No service runs on {settings.data_dir}.", EXIT_NO_SERVICE)
    if holder.kind == COMMAND:
        raise ConfigError(
            f"{holder.what} has {settings.data_dir} for another command of yours, not for a service: it ends by itself"
        )
    began = time.monotonic()
    patience_s = timeout if timeout is not None else settings.serve.drain_s + _MORE_S
    _signal(holder, signal.SIGTERM)
    if not _wait_for_end(settings.data_dir, holder, patience_s, now):
        return _tell(
            as_json,
            False,
            f"The service, {holder.what}, is still stopping after {render_duration(patience_s)}: "
            "`warren stop --now` ends the requests it waits for.",
            EXIT_FAILED,
        )
    took = render_duration(time.monotonic() - began)
    return _tell(as_json, True, f"The service, {holder.what}, has ended in {took}. Sandboxes live on.", 0)


def _signal(holder: Holder, number: signal.Signals) -> None:
    from warren.domain.errors import ConfigError

    elsewhere = "the service runs where its process cannot be seen from here, in a container perhaps: stop it there"
    if holder.pid <= 1:
        raise ConfigError(elsewhere)
    try:
        os.kill(holder.pid, number)
    except ProcessLookupError:
        raise ConfigError(elsewhere) from None
    except PermissionError:
        raise ConfigError(f"the service, {holder.what}, is another user's: stop it as that user, or as root") from None


def _wait_for_end(data_dir: str, holder: Holder, patience_s: float, now: bool) -> bool:
    from warren.cli.service.data_lock import find_holder
    from warren.cli.terminal.progress import spinner

    until = time.monotonic() + patience_s
    with spinner(f"stopping {holder.what}: requests that are under way may finish"):
        if now:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGINT)
        while (current := find_holder(data_dir)) is not None and current.pid == holder.pid:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
    return True


def _tell(as_json: bool, stopped: bool, sentence: str, code: int) -> int:
    if wants_json(as_json):
        print_json({"stopped": stopped, "detail": sentence})
    else:
        print(sentence)
    return code
