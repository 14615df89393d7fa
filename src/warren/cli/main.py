"""The entry of the command line: what needs the standard library only is answered before anything else is imported."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


HELP_PAGE = f"{__file__.removesuffix('main.py')}quick/help.txt"
"""What `warren --help` prints; written by `make docs`, compared by a test."""
_HELP_COLUMNS = 80
_INSTALL = "run `make setup` in a clone of Warren, or `pip install 'warren_sandbox-….whl[server]'` with its wheel"
"""Not by the name of the distribution: no index has it, and a stranger could register it."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    _open_standard_streams()
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def _open_standard_streams() -> None:
    """Put /dev/null in the place of each standard stream that is closed.

    The next file or socket would get its number, and the output of a program in a sandbox would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one. The keeper and other children get it too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def run(words: list[str]) -> int:
    """Run the command line and return its exit code."""
    from warren.cli.quick.arguments import expand

    words = expand(words)
    try:
        asked, code = _answer(words)
    except KeyboardInterrupt:
        return 130
    except Exception as exc:  # noqa: BLE001 - raised again where every command's failures are explained
        return _explain(exc)
    if code is not None:
        return code
    try:
        from warren.cli.app import run_app
    except ModuleNotFoundError as exc:
        print(f"warren: {exc.name} is not installed: {_INSTALL}", file=sys.stderr)
        return 2
    return run_app(words, asked)


def _answer(words: list[str]) -> tuple[dict[str, Any] | None, int | None]:
    """Return the quick form of a command, and its exit code; None for what there is not."""
    name = words[0] if words and sys.platform == "linux" else ""
    if words in (["--help"], ["-h"]):
        return None, _print_help()
    if words in (["--version"], ["version"]):
        return None, _print_version()
    if name not in {"run", "ps"}:
        return None, None
    from warren.cli.quick.arguments import parse

    asked = parse(name, words[1:])
    if asked is None:
        return None, None
    if name == "run":
        from warren.cli.quick.run import run as run_program

        return asked, run_program(asked)
    from warren.cli.quick.ps import ps

    return None, ps(asked)


def _print_help() -> int | None:
    """Print the page that `make docs` wrote, unless the window is too narrow for it."""
    try:
        if os.get_terminal_size(1).columns < _HELP_COLUMNS:
            return None
    except OSError:
        pass  # not a terminal
    with open(HELP_PAGE, encoding="utf-8") as page:
        print(page.read(), end="", flush=True)
    return 0


def _print_version() -> int:
    import warren

    print(f"warren {warren.__version__}", flush=True)
    return 0


def _explain(exc: Exception) -> int:
    from warren.cli.app import run_explained

    def fail() -> None:
        raise exc

    return run_explained(fail)
