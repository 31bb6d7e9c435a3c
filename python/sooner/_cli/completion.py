"""`sooner completion`: a script that completes the words of the `sooner` command, made from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

_BASH = """_sooner() {
    local words
    if [[ $COMP_CWORD -eq 1 ]]; then
        words="%(commands)s"
    else
        case "${COMP_WORDS[1]}" in
%(cases)s
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _sooner sooner
"""


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for a shell.

    Args:
        shell: "bash", "zsh" or "fish".
        parser: The command's parser.
    """
    commands = _commands(parser)
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands))
    cases = "\n".join(f'            {name}) words="{" ".join(_words(made))}" ;;' for name, made in commands.items())
    text = _BASH % {"commands": " ".join(commands), "cases": cases}
    return text if shell == "bash" else "autoload -U +X bashcompinit && bashcompinit\n" + text


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
    return found


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        yield from action.choices or ()


def _fish(commands: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    for name, parser in commands.items():
        about = (parser.description or "").replace("'", "")
        yield f"complete -c sooner -n __fish_use_subcommand -a {name} -d '{about}'"
        seen = f"complete -c sooner -n '__fish_seen_subcommand_from {name}'"
        for action in parser._actions:
            for option in action.option_strings:
                yield f"{seen} {'-l' if option.startswith('--') else '-s'} {option.lstrip('-')}"
            if action.choices:
                yield f"{seen} -a '{' '.join(action.choices)}'"
