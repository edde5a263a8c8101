"""`odradek completion bash|zsh|fish`: a script that asks this program for candidates: options, topics, settings, …

The scripts call `odradek completion --complete WORD…` with the words of the line; it prints one candidate per line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import Parser, add_connection

if TYPE_CHECKING:
    from odradek.client.admin import Admin

SHELLS: Final = ("bash", "zsh", "fish")
_TOPIC_OPTIONS: Final = ("--topic", "-t", "--include")
_SETTINGS: Final = {("topics", "--config"): "topics", ("serve", "--set"): "", ("configs", "--add-config"): "",
                    ("configs", "--delete-config"): ""}  # fmt: skip
"""Options that take names of settings, and the resource where the command fixes it."""
_CONNECT_MS: Final = 800
_FILES: Final = ("FILE", "CSV", "DIR", "server.properties")

_SCRIPTS: Final = {
    "bash": """\
_odradek() {
    # COMP_WORDS is broken at colons, which addresses have.
    local line=${COMP_LINE:0:COMP_POINT} words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local IFS=$'\\n'
    COMPREPLY=($(odradek completion --complete "${words[@]:1}" 2>/dev/null))
    if [[ ${COMPREPLY[0]} == : ]]; then
        compopt -o default
        COMPREPLY=()
    elif [[ ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -F _odradek odradek
""",
    "zsh": """\
#compdef odradek
_odradek() {
    local -a found
    found=("${(@f)$(odradek completion --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${found[1]} == : ]]; then
        _files
    elif [[ ${found[1]} == *= ]]; then
        compadd -S '' -- "${found[@]}"
    else
        compadd -- "${found[@]}"
    fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _odradek "$@"
else
    compdef _odradek odradek
fi
""",
    "fish": """\
function __odradek_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (odradek completion --complete $words[2..-1] 2>/dev/null)
    if test "$found[1]" = :
        __fish_complete_path (commandline -ct)
    else
        string join \\n -- $found
    end
end
complete -c odradek -f -a '(__odradek_complete)'
""",
}

_HELP: Final = """\
bash: eval "$(odradek completion bash)" in ~/.bashrc
zsh:  odradek completion zsh > "${fpath[1]}/_odradek"
fish: odradek completion fish > ~/.config/fish/completions/odradek.fish
"""


EXAMPLES: Final = """
# complete commands, options, topics and settings
eval "$(odradek completion bash)"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the shell as the only argument."""
    parser.epilog = _HELP
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="shell that runs the script")
    parser.add_argument("--complete", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Print the completion script of the shell, or candidates when the script itself calls; the exit code."""
    if arguments.complete is not None:
        found = candidates(arguments.complete or [""])
        if found:
            print("\n".join(found))
        return 0
    if arguments.shell is None:
        raise UsageError(f"which shell? {', '.join(SHELLS)}")
    sys.stdout.write(_SCRIPTS[arguments.shell])
    return 0


def candidates(words: list[str]) -> list[str]:
    """What may stand for the last of the words behind `odradek`; `:` alone means: names of files."""
    from odradek.cli.catalog import COMMANDS, load

    last = words[-1]
    if len(words) == 1:
        return sorted(each for each in (*COMMANDS, "--help", "--version") if each.startswith(last))
    if words[0] not in COMMANDS:
        return []
    parser = Parser(prog="odradek", add_help=True, allow_abbrev=False)
    load(words[0]).configure(parser)
    options = {name: action for action in parser._actions for name in action.option_strings}
    before = words[-2]
    if before in options and takes_value(options[before]):
        return [each for each in values_of(words, before, options[before]) if each == ":" or each.startswith(last)]
    found = []
    if not last.startswith("-"):
        for action in positionals(parser):
            found += [each for each in positional_values(words, action) if each == ":" or each.startswith(last)]
        if last or found == [":"]:
            return found
    given = set(words[1:-1])
    return found + sorted(
        name
        for name, action in options.items()
        if name.startswith(last or "--")
        and action.help != argparse.SUPPRESS
        and (name not in given or is_repeated(action))
    )


def positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments without a leading dash."""
    return [each for each in parser._actions if not each.option_strings]


def takes_value(action: argparse.Action) -> bool:
    """Whether a value follows the option."""
    return action.nargs != 0


def is_repeated(action: argparse.Action) -> bool:
    """Whether the option may be given several times."""
    return isinstance(action.default, list)


def choices(action: argparse.Action) -> list[str]:
    """The fixed values of an option, or `:` where it takes a file."""
    if action.choices is not None:
        return [str(each) for each in action.choices]
    return [":"] if action.metavar in _FILES else []


def values_of(words: list[str], option: str, action: argparse.Action) -> list[str]:
    """Values of an option, asked of the cluster if they are topics or groups."""
    if option in _TOPIC_OPTIONS:
        return asked(words, topics)
    if option in ("--group", "-g"):
        return asked(words, groups)
    if option == "--profile":
        return profiles()
    if (words[0], option) in _SETTINGS:
        return settings(words, option)
    return choices(action)


def settings(words: list[str], option: str) -> list[str]:
    """`NAME=` for each setting (NAME to delete one), after the settings that stand before it in a list with commas."""
    from odradek.broker.configuration.setting_names import BROKER_SETTINGS, DYNAMIC_SETTINGS

    command, typed = words[0], words[-1]
    if command == "serve":
        names: Iterable[str] = BROKER_SETTINGS
    else:
        names = DYNAMIC_SETTINGS.get(_SETTINGS[command, option] or _entity_type(words), ())
    before = typed.rpartition(",")[0] + "," if command == "configs" and "," in typed else ""
    equals = "" if option == "--delete-config" else "="
    return sorted(f"{before}{name}{equals}" for name in names)


def _entity_type(words: list[str]) -> str:
    """The type of the entity that a line of `configs` names."""
    from odradek.cli.commands.configs import DEFAULT_SHORTCUTS, SHORTCUTS

    for at, word in enumerate(words):
        short = word.removeprefix("--")
        if word.startswith("--") and short in {**SHORTCUTS, **DEFAULT_SHORTCUTS}:
            return {**SHORTCUTS, **DEFAULT_SHORTCUTS}[short]
        if word == "--entity-type" and at + 1 < len(words):
            return words[at + 1]
    return ""


def positional_values(words: list[str], action: argparse.Action) -> list[str]:
    """Values of a positional argument."""
    if action.metavar == "TOPIC":
        return asked(words, topics)
    if action.metavar == "GROUP":
        return asked(words, groups)
    if words[0] == "profile" and action.dest == "name":
        return profiles()
    return choices(action)


def profiles() -> list[str]:
    """Names of profiles; none where the file is wrong."""
    from odradek.cli.arguments import profile_file

    try:
        return sorted(profile_file.read().profiles)
    except UsageError:
        return []


async def topics(admin: Admin) -> list[str]:
    """Candidates for a topic's name, internal ones included."""
    return await admin.list_topics(include_internal=True)


async def groups(admin: Admin) -> list[str]:
    """Candidates for a group's id."""
    return [each.group_id for each in await admin.groups.list()]


def asked(words: list[str], question: Any) -> list[str]:
    """What the cluster that the line speaks of answers; nothing where it cannot be reached soon."""
    from odradek.cli.session import run_admin

    parser = Parser(add_help=False, allow_abbrev=False)
    add_connection(parser)
    parser.add_argument("--timeout", type=int)
    try:
        arguments, _ = parser.parse_known_args(words[1:-2])
        arguments.connect_timeout = arguments.timeout = _CONNECT_MS
        found: list[str] = run_admin(arguments, question)
    except (CommandError, UsageError):
        return []
    return found
