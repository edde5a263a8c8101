"""Options that all commands share, and the client configuration that follows from them."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.suggestions import suggestion
from odradek.cli.arguments.variables import PROFILE_VARIABLE, SERVER_VARIABLE
from odradek.version import __version__

FORMATS: Final = ("table", "wide", "json", "jsonl", "yaml", "tsv")
DEFAULT_SERVER: Final = "127.0.0.1:9092"
CONNECT_MS: Final = 3_000
ANSWER_MS: Final = 30_000
_SECURITY: Final = ("ssl.", "sasl.", "security.")


class Parser(argparse.ArgumentParser):
    """An argument parser that raises its errors as UsageError, so that they are one line."""

    def parse(self, words: Sequence[str], namespace: argparse.Namespace | None = None) -> argparse.Namespace:
        """Parse all words. Raises UsageError, for an unknown option with the nearest known one."""
        # Arguments of the kind "*" may stand on both sides of options only if all options are read first.
        mixed = any(not each.option_strings and each.nargs == "*" for each in self._actions)
        found, unknown = (self.parse_known_intermixed_args if mixed else self.parse_known_args)(words, namespace)
        if unknown:
            hint = ""
            if unknown[0].startswith("-"):
                options = [
                    name for each in self._actions if each.help != argparse.SUPPRESS for name in each.option_strings
                ]
                hint = suggestion(unknown[0].partition("=")[0], options)
            raise UsageError(
                f"unrecognized arguments: {' '.join(unknown)} ({hint or f'`{self.prog} --help` lists the options'})"
            )
        return found

    def error(self, message: str) -> NoReturn:
        """Raise UsageError, which becomes one line and exit code 2."""
        raise UsageError(f"{message} (`{self.prog} --help` lists the options)")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options with which every command reaches a cluster."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help=f"brokers to connect to first; default: ${SERVER_VARIABLE}, the profile, {DEFAULT_SERVER}",
    )
    group.add_argument(
        "--profile", metavar="NAME", help=f"connection of `odradek profile`; default: ${PROFILE_VARIABLE}"
    )
    group.add_argument("--command-config", metavar="FILE", help="client settings in a properties file")
    group.add_argument(
        "--connect-timeout",
        type=milliseconds,
        metavar="MS",
        help=f"time limit for the first connection (default: {CONNECT_MS})",
    )
    group.add_argument("--version", action="version", version=f"odradek {__version__}", help=argparse.SUPPRESS)


def add_admin(parser: argparse.ArgumentParser) -> None:
    """Add connection options, --timeout and -o, for a command that asks the cluster and prints the answer."""
    add_connection(parser)
    parser.add_argument(
        "--timeout", type=milliseconds, metavar="MS", help=f"time limit for responses (default: {ANSWER_MS})"
    )
    add_output(parser)


def add_output(parser: argparse.ArgumentParser, *, stream: bool = False) -> None:
    """Add `-o`; a stream prints each result as it comes, so its JSON is one object per line."""
    json = "json and jsonl: one object per line" if stream else "json: one document, jsonl: one object per line"
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"table (wide: all columns), {json}, yaml, or tsv without a heading",
    )


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def milliseconds(text: str) -> int:
    """A whole number of milliseconds from 0 on. Raises ArgumentTypeError."""
    value = _whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def positive(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError."""
    value = _whole(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not greater than 0")
    return value


def from_zero_whole(text: str) -> int:
    """A whole number from 0 on, such as a broker's id or a partition."""
    value = _whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def broker_ids(text: str) -> list[int]:
    """Ids of brokers separated by commas, each once."""
    return list(dict.fromkeys(from_zero_whole(each.strip()) for each in text.split(",")))


def or_unlimited(text: str) -> int:
    """A number from 0 on; -1 is no limit."""
    value = _whole(text)
    if value < -1:
        raise argparse.ArgumentTypeError(f"{text} is negative (-1 is no limit)")
    return value


def seconds(text: str) -> float:
    """A finite number of seconds above 0. Raises ArgumentTypeError."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not greater than 0")
    return value


def from_zero(text: str) -> float:
    """Of parts of something, 1 is all of it."""
    value = _number(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def adopt_positional(arguments: argparse.Namespace, option: str, actions: Iterable[str] = ()) -> None:
    """Treat the positional argument as the value of `--option`. Raises UsageError if both are given.

    The name of an action (`odradek topics list`, a habit of rpk) is rejected: it would be mistaken for a topic's name.
    """
    given = arguments.positional
    if given is None:
        return
    if given in actions:
        raise UsageError(f"did you mean --{given}? ({option} {given!r} is written --{option} {given})")
    before = getattr(arguments, option)
    if before:
        raise UsageError(f"{given} and --{option} name the {option} twice")
    setattr(arguments, option, [given] if isinstance(before, list) else given)


def delimiter(text: str) -> str:
    r"""A delimiter as kcat writes it: text with `\n`, `\t`, `\r`, `\0`, `\\` and `\xNN` (ASCII)."""
    import re

    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "x" and len(escape) == 3 and int(escape[1:], 16) < 128:
            return chr(int(escape[1:], 16))
        try:
            return {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}[escape]
        except KeyError:
            raise argparse.ArgumentTypeError(
                f"\\{escape} is not one of \\n, \\t, \\r, \\0, \\\\, \\x00 to \\x7f"
            ) from None

    if not text:
        raise argparse.ArgumentTypeError("a delimiter is empty")
    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", character, text)


def exactly_one(
    arguments: argparse.Namespace, names: Iterable[str], what: str = "action", *, default: str | None = None
) -> str:
    """The one of these flags that is given, or the default if none is. Raises UsageError."""
    given = [each for each in names if is_given(arguments, each)]
    if not given and default is not None:
        return default
    if len(given) != 1:
        raise UsageError(f"exactly one {what} is needed: {', '.join('--' + each for each in names)}")
    return given[0]


def is_given(arguments: argparse.Namespace, option: str) -> bool:
    """Whether the option has a value other than its empty default; `option` is without leading dashes."""
    value = getattr(arguments, option.replace("-", "_"))
    return value is not None and value is not False and value != []


def only_with(arguments: argparse.Namespace, action: str, options: Iterable[str], allowed: Iterable[str]) -> None:
    """Refuse options that an action does not take. Raises UsageError."""
    for option in options:
        if is_given(arguments, option) and action not in allowed:
            raise UsageError(f"--{option} goes with {' or '.join('--' + each for each in allowed)} only")


def renamed(arguments: argparse.Namespace, old: str, new: str) -> Any:
    """The value of an option under its new or its old name, with Apache's warning for the old one (KIP-1147)."""
    before = getattr(arguments, old.replace("-", "_").replace(".", "_"))
    value = getattr(arguments, new.replace("-", "_"))
    if not before:
        return value
    if value:
        raise UsageError(f"--{old} is the old name of --{new}: give only one of them")
    print(
        f"Option --{old} is deprecated and will be removed in a future version. Use --{new} instead.", file=sys.stderr
    )
    return before


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` texts; an empty value is one. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--{option} {text}: name=value expected")
        found[name.strip()] = value
    return found


def read_properties(path: str, option: str) -> dict[str, str]:
    """A Java properties file. Raises UsageError."""
    import javaproperties

    try:
        with open(path, "rb") as file:
            found: dict[str, str] = javaproperties.load(file)
    except OSError as error:
        raise UsageError(f"--{option} {path}: {error.strerror or error}") from error
    except (ValueError, javaproperties.InvalidUEscapeError) as error:
        raise UsageError(f"--{option} {path}: {error}") from error
    if "config.providers" not in found:
        return found
    from odradek.ports.config_providers import ProviderError, resolve_references

    try:
        return resolve_references(found, lambda name: Path(name).read_bytes()).settings
    except ProviderError as error:
        raise UsageError(f"--{option} {path}: {error}") from error


def servers_of(
    arguments: argparse.Namespace, settings: Mapping[str, str] | None = None, profile: Mapping[str, str] | None = None
) -> str:
    """The servers of the option, the properties, `--profile`, the environment, the current profile, else the default.

    Raises UsageError for an option that is given and empty, like an unset variable of a script.
    """
    given = arguments.bootstrap_server
    if given is not None and not given.strip():
        raise UsageError("--bootstrap-server is empty: HOST:PORT expected")
    of_profile = (profile or {}).get("bootstrap_servers")
    candidates = (
        given,
        (settings or {}).get("bootstrap.servers"),
        of_profile if getattr(arguments, "profile", None) else None,
        os.environ.get(SERVER_VARIABLE),
        of_profile,
    )
    return str(next((each for each in candidates if each), DEFAULT_SERVER))


def profile_options(arguments: argparse.Namespace, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Client options of the profile that applies. Raises UsageError."""
    from odradek.cli.arguments import profile_file

    elsewhere = (arguments.bootstrap_server, (settings or {}).get("bootstrap.servers"), os.environ.get(SERVER_VARIABLE))
    return profile_file.chosen(getattr(arguments, "profile", None), has_servers=any(elsewhere))


def connect_ms(arguments: argparse.Namespace) -> int:
    """How long to try to reach a broker; `--timeout` of the commands that ask and answer counts, too."""
    if arguments.connect_timeout is not None:
        return int(arguments.connect_timeout)
    given = getattr(arguments, "timeout", None)
    return CONNECT_MS if given is None else int(given)


def client_settings(
    arguments: argparse.Namespace, known: Mapping[str, Any], given: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Options of a client (names with underscores): of the profile, the properties file, `given` properties, servers.

    A warning names settings without effect. Raises UsageError, also for a setting of TLS or SASL, which the client does
    not implement: it would connect without the protection that was asked for.
    """
    settings = read_properties(arguments.command_config, "command-config") if arguments.command_config else {}
    settings.update(given or {})
    profile = profile_options(arguments, settings)
    servers = servers_of(arguments, settings, profile)
    options: dict[str, Any] = {name: value for name, value in profile.items() if name in known}
    ignored = []
    for name, value in settings.items():
        option = name.replace(".", "_")
        if option in known:
            options[option] = value
        elif name.startswith(_SECURITY):
            raise UsageError(
                f"{name} is not implemented: docs/SECURITY.md lists the settings for TLS and logins that are"
            )
        elif not _is_known_anywhere(option):
            ignored.append(name)
    if ignored:
        print(f"not supported and ignored: {', '.join(sorted(ignored))}", file=sys.stderr)
    options["bootstrap_servers"] = servers
    options.setdefault("socket_connection_setup_timeout_ms", max(1, connect_ms(arguments)))
    return options


def _is_known_anywhere(option: str) -> bool:
    from odradek.client.config import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS

    return option in CONSUMER_DEFAULTS or option in PRODUCER_DEFAULTS
