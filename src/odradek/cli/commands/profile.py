"""`odradek profile create|use|list|show|set|delete`: named connections, see `profile_file`."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any, Final

from odradek.cli.arguments import profile_file
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_output
from odradek.cli.arguments.profile_file import FIELDS, HIDDEN, Profiles
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document

ACTIONS: Final = ("create", "use", "list", "show", "set", "delete")
COLUMNS: Final = (
    Column("PROFILE", "name", 15),
    Column("CURRENT", "current"),
    Column("BOOTSTRAP-SERVERS", "bootstrap_servers", 25),
    Column("SECURITY", "security_protocol"),
)


EXAMPLES: Final = """
# keep a connection
odradek profile create local -b 127.0.0.1:9092
# use it when nothing else names the servers
odradek profile use local
# use it for one command
odradek topics --profile local
# list profiles
odradek profile list
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions on profiles."""
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the profile (show: default is the current one)")
    fields = "; ".join(f"{name}: {each.about}" for name, each in FIELDS.items())
    parser.add_argument(
        "fields",
        nargs="*",
        metavar="FIELD=VALUE",
        help=f"create and set: {fields}. An empty value removes the field; - as a password asks for it",
    )
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT,…", help="the same as bootstrap_servers=…")
    add_output(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action on the file of profiles; the exit code."""
    action = arguments.action
    if action == "list" and arguments.name is not None:
        raise UsageError("list takes no NAME")
    if action not in ("list", "show") and arguments.name is None:
        raise UsageError(f"{action} needs the NAME of a profile")
    if action not in ("create", "set") and (arguments.fields or arguments.bootstrap_server):
        raise UsageError(f"{action} takes no fields")
    found = profile_file.read()
    if action == "list":
        return list_profiles(found, arguments.output)
    if action == "show":
        return show_profile(found, arguments)
    changes = {"create": create, "use": use, "set": set_fields, "delete": delete}
    profile_file.write(changes[action](found, arguments))
    return 0


def list_profiles(found: Profiles, output: str | None) -> int:
    """Print all profiles without their secrets."""
    rows = [{**row(found, name), "current": name == found.current} for name in sorted(found.profiles)]
    if output is None:
        rows = [{**each, "current": "*" if each["current"] else None} for each in rows]
    show(rows, COLUMNS, output)
    return 0


def row(found: Profiles, name: str) -> dict[str, Any]:
    """A profile to be shown: no secret is in it."""
    fields = profile_file.named(found, name)
    return {"name": name, **{field: HIDDEN if FIELDS[field].secret else value for field, value in fields.items()}}


def show_profile(found: Profiles, arguments: argparse.Namespace) -> int:
    """Print the fields of one profile. Raises UsageError."""
    name = arguments.name or found.current
    if name is None:
        raise UsageError("there is no current profile: odradek profile show NAME")
    fields = row(found, name)
    if arguments.output in DOCUMENTS:
        show_document(fields, "json" if arguments.output == "jsonl" else arguments.output)
        return 0
    rows = [{"field": field, "value": value} for field, value in fields.items()]
    show(rows, (Column("FIELD", "field", 20), Column("VALUE", "value")), arguments.output)
    return 0


def create(found: Profiles, arguments: argparse.Namespace) -> Profiles:
    """Add a profile; the first one becomes the current one. Raises UsageError."""
    name = profile_file.check_name(arguments.name)
    if name in found.profiles:
        raise UsageError(f"profile {name} exists: odradek profile set {name} FIELD=VALUE changes it")
    fields = {field: value for field, value in given(arguments).items() if value}
    current = found.current or name
    print(f"Created profile {name}{', which is now used' if current == name else ''}.")
    return Profiles(current, {**found.profiles, name: fields})


def use(found: Profiles, arguments: argparse.Namespace) -> Profiles:
    """Make a profile the current one. Raises UsageError."""
    profile_file.named(found, arguments.name)
    print(f"Using profile {arguments.name}.")
    return found._replace(current=arguments.name)


def set_fields(found: Profiles, arguments: argparse.Namespace) -> Profiles:
    """Set and remove fields. Raises UsageError."""
    changes = given(arguments)
    if not changes:
        raise UsageError("set needs FIELD=VALUE")
    fields = {**profile_file.named(found, arguments.name), **changes}
    print(f"Changed profile {arguments.name}.")
    return found._replace(profiles={**found.profiles, arguments.name: {f: v for f, v in fields.items() if v}})


def delete(found: Profiles, arguments: argparse.Namespace) -> Profiles:
    """Remove a profile. Raises UsageError."""
    profile_file.named(found, arguments.name)
    was_used = found.current == arguments.name
    print(f"Deleted profile {arguments.name}{'; no profile is used now' if was_used else ''}.")
    profiles = {name: fields for name, fields in found.profiles.items() if name != arguments.name}
    return Profiles(None if was_used else found.current, profiles)


def given(arguments: argparse.Namespace) -> dict[str, str]:
    """The fields of the command line; a secret is read from the terminal or standard input. Raises UsageError."""
    fields: dict[str, str] = {}
    for text in arguments.fields:
        field, equals, value = text.partition("=")
        if not equals or field not in FIELDS:
            raise UsageError(f"{field}: FIELD=VALUE expected, FIELD is one of {', '.join(FIELDS)}")
        if FIELDS[field].secret and value:
            value = secret(field, value)
        fields[field] = value
    if arguments.bootstrap_server:
        if "bootstrap_servers" in fields:
            raise UsageError("--bootstrap-server and bootstrap_servers=… are the same field")
        fields["bootstrap_servers"] = arguments.bootstrap_server
    return fields


def secret(field: str, value: str) -> str:
    """Raises UsageError for a secret on the command line, which other users of the machine can read."""
    if value != "-":
        raise UsageError(f"{field} must not stand on a command line: {field}=- asks for it, or reads standard input")
    if sys.stdin.isatty():
        return getpass.getpass(f"{field}: ")
    return sys.stdin.readline().rstrip("\r\n")
