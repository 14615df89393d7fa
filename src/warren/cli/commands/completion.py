"""`warren completion`: the shell completes commands, options, images and the ids of sandboxes."""

from __future__ import annotations

import os
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  warren completion bash > ~/.local/share/bash-completion/completions/warren
  warren completion zsh > ~/.zfunc/_warren      # ~/.zfunc being in $fpath before compinit
  warren completion fish > ~/.config/fish/completions/warren.fish
  source <(warren completion bash)              # for this shell only
"""
COMPLETE_EXAMPLES = "\b\nExample:\n  warren _complete -- sandbox exec 3f"
RAW = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""So that words that look like options are words."""

_BASH = """\
# Completion of warren for bash; `warren completion bash` printed it.
_warren() {
    local line
    COMPREPLY=()
    while IFS='' read -r line; do
        COMPREPLY+=("${line%%$'\\t'*}")
    done < <(warren _complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    # A colon ends what the shell replaces, so a space must not follow it.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o default -F _warren warren
"""
_ZSH = """\
#compdef warren
# Completion of warren for zsh; `warren completion zsh` printed it.
_warren() {
    local line
    local -a found=()
    while IFS='' read -r line; do
        found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done < <(warren _complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#found} )); then
        _describe warren found
    else
        _files
    fi
}
if [[ $funcstack[1] == _warren ]]; then
    _warren "$@"
else
    compdef _warren warren
fi
"""
_FISH = """\
# Completion of warren for fish; `warren completion fish` printed it.
function __warren_complete
    set -l words (commandline -opc) (commandline -ct)
    warren _complete -- $words[2..-1] 2>/dev/null
end
complete -c warren -a '(__warren_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", show_default=False, help="bash, zsh or fish.")],
) -> None:
    """Print a script that makes a shell complete commands, options, images and the ids of sandboxes."""
    script = _SCRIPTS.get(shell)
    if script is None:
        raise typer.BadParameter(f"there is completion for {', '.join(_SCRIPTS)}, and not for {shell!r}.")
    print(script, end="")


def complete(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD...]", help="What is typed so far; the last may be half a word.")
    ] = None,
) -> None:
    """Print what may stand where the last word is, a line each, with a tab before what it means."""
    from warren.cli.completing import find_candidates

    try:
        found = find_candidates(words or [""])
    except Exception:  # noqa: BLE001 - somebody is typing: whatever is wrong, now is not the time to say it
        return
    text = "".join(f"{word}\t{meaning}\n" for word, meaning in found)
    os.write(1, text.encode("utf-8", "replace"))
