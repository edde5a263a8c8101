"""Profiles: named connections in `$XDG_CONFIG_HOME/odradek/profiles.toml` (`~/.config` where that is not set).

    current = "local"

    [profiles.local]
    bootstrap_servers = "127.0.0.1:9092"

A profile belongs to its servers: where the command line or the environment names other servers, the current profile is
left out, so that the credentials of one cluster are never sent to another. The file has the mode 0600.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.variables import PROFILE_VARIABLE

HIDDEN: Final = "********"
"""Shown instead of a secret."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Field(NamedTuple):
    """A field of a profile. `option` is the client's option."""

    about: str
    option: str
    secret: bool = False


FIELDS: Final[Mapping[str, Field]] = {
    "bootstrap_servers": Field("brokers to connect to first: HOST:PORT,…", "bootstrap_servers"),
    "client_id": Field("name of this client in quotas and logs", "client_id"),
    "security_protocol": Field("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", "security_protocol"),
    "tls_ca": Field("file with the certificates of the authorities to trust", "ssl_cafile"),
    "tls_certificate": Field("file with the client's certificate", "ssl_certfile"),
    "tls_key": Field("file with the client's private key", "ssl_keyfile"),
    "tls_key_password": Field("password of the private key", "ssl_password", secret=True),
    "sasl_mechanism": Field("PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI", "sasl_mechanism"),
    "sasl_kerberos_service_name": Field("first part of the brokers' Kerberos names", "sasl_kerberos_service_name"),
    "sasl_username": Field("user name", "sasl_plain_username"),
    "sasl_password": Field("password", "sasl_plain_password", secret=True),
}


class Profiles(NamedTuple):
    """The contents of the file: fields by profile, and the name of the profile in use."""

    current: str | None
    profiles: dict[str, dict[str, str]]


def path() -> Path:
    """The file of profiles."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "odradek" / "profiles.toml"


def read() -> Profiles:
    """All profiles; none where there is no file. Raises UsageError."""
    file = path()
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read()
    except FileNotFoundError:
        return Profiles(None, {})
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    import tomllib

    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}") from error
    found = _checked(document, file)
    if mode & _OTHERS and any(FIELDS[name].secret for fields in found.profiles.values() for name in fields):
        raise UsageError(f"{file} holds passwords and other users can read it: chmod 600 {file}")
    return found


def _checked(document: Mapping[str, Any], file: Path) -> Profiles:
    """Raises UsageError for unknown names and values that are not text."""
    profiles = document.get("profiles", {})
    current = document.get("current")
    if document.keys() - {"current", "profiles"} or not isinstance(profiles, dict):
        raise UsageError(f'{file}: only "current" and [profiles.NAME] are expected')
    for name, fields in profiles.items():
        if not isinstance(fields, dict):
            raise UsageError(f"{file}: [profiles.{name}] expected")
        for field, value in fields.items():
            if field not in FIELDS:
                raise UsageError(f"{file}: profile {name}: unknown field {field} (fields: {', '.join(FIELDS)})")
            if not isinstance(value, str):
                raise UsageError(f"{file}: profile {name}: {field} is not text in quotes")
    if current is not None and current not in profiles:
        raise UsageError(f"{file}: current = {current!r}, but there is no such profile")
    return Profiles(current, profiles)


def write(found: Profiles) -> None:
    """Replace the file atomically; only its owner can read it. Raises CommandError."""
    import tempfile

    file = path()
    lines = [] if found.current is None else [f"current = {_toml_text(found.current)}", ""]
    for name, fields in sorted(found.profiles.items()):
        lines += [f"[profiles.{name}]", *(f"{field} = {_toml_text(value)}" for field, value in fields.items()), ""]
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp creates files that only their owner can read.
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".profiles-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as opened:
                opened.write("\n".join(lines))
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(temporary, file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error


def _toml_text(text: str) -> str:
    """A TOML basic string. The escapes are those of JSON, but for a control character that JSON leaves as it is."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def check_name(name: str) -> str:
    """A name that needs no quotes in TOML. Raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"profile {name!r}: a name consists of letters, digits, - and _")
    return name


def named(found: Profiles, name: str) -> dict[str, str]:
    """The fields of a profile. Raises UsageError."""
    try:
        return found.profiles[name]
    except KeyError:
        known = f"; profiles: {', '.join(sorted(found.profiles))}" if found.profiles else ""
        raise UsageError(f"there is no profile {name}{known}") from None


def chosen(option: str | None, *, has_servers: bool) -> dict[str, str]:
    """The client options of the profile that applies; `option` is the value of `--profile`.

    `--profile`, then $ODRADEK_PROFILE name it; empty, they choose none. Otherwise it is the current one, unless the
    servers are named elsewhere. Raises UsageError.
    """
    name = option if option is not None else os.environ.get(PROFILE_VARIABLE)
    if name is None and not has_servers:
        name = read().current
    if not name:
        return {}
    return {FIELDS[field].option: value for field, value in named(read(), name).items()}
