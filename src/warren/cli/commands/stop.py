"""`warren stop`: ends the service of a data folder."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.errors import EXIT_FAILED, EXIT_NO_SERVICE
from warren.cli.options import AsJson, DataDir, duration
from warren.cli.terminal.tables import print_either
from warren.cli.units import render_duration

if TYPE_CHECKING:
    from warren.cli.service.data_lock import Holder

EXAMPLES = """\b
Examples:
  warren stop
  warren stop --now                 # without waiting for the requests that are under way
  warren stop --data-dir ./data
"""

_MORE_S = 20.0
"""On top of the time that requests get to finish: for the service to write its last records."""


def stop(
    *,
    now: Annotated[bool, typer.Option("--now", help="Abort requests in progress.")] = False,
    timeout: Annotated[
        float | None, duration("How long to wait for its end; the drain time plus 20 s unless set.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> int:
    """Stop the service of a data folder and wait for its end.

    Requests in progress may finish first. Sandboxes keep running, and the next service finds them again. The exit code
    is 3 if no service runs.
    """
    from warren.cli.service.data_lock import COMMAND, find_holder
    from warren.domain.errors import ConfigError
    from warren.settings import Settings

    settings = Settings.load(flags={"data_dir": data_dir})
    holder = find_holder(settings.data_dir)
    if holder is None:
        return _tell(as_json, False, f"No service runs on {settings.data_dir}.", EXIT_NO_SERVICE)
    if holder.kind == COMMAND:
        raise ConfigError(f"{holder.what} is a command that uses {settings.data_dir}, not a service: it ends by itself")
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
    return _tell(as_json, True, f"The service, {holder.what}, has ended in {took}. Sandboxes keep running.", 0)


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
    print_either(as_json, {"stopped": stopped, "detail": sentence}, sentence)
    return code
