"""`warren completion`: the shell completes commands, options, images and the ids of sandboxes."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.completion import shell_complete

from warren.cli.options import argument, choose_from

EXAMPLES = """\b
Examples:
  warren completion bash > ~/.local/share/bash-completion/completions/warren
  warren completion zsh > ~/.zfunc/_warren      # ~/.zfunc being in $fpath before compinit
  warren completion fish > ~/.config/fish/completions/warren.fish
  source <(warren completion bash)              # for this shell only
"""
SHELLS = ("bash", "zsh", "fish")


def completion(
    ctx: typer.Context,
    shell: Annotated[str, argument("SHELL", "bash, zsh or fish.", autocompletion=choose_from(*SHELLS))],
) -> None:
    """Print a script that makes a shell complete commands, options, images and the ids of sandboxes."""
    if shell not in SHELLS:
        raise typer.BadParameter(f"there is completion for {', '.join(SHELLS)}, and not for {shell!r}.")
    shell_complete(ctx.find_root().command, {}, "warren", "_WARREN_COMPLETE", f"source_{shell}")
