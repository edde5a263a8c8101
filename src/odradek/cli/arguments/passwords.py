"""Passwords for a command: from a file, the environment, a prompt or standard input, never from an argument."""

from __future__ import annotations

import getpass
import os
import sys

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.variables import PASSWORD_VARIABLE


def read_password(user: str, file: str | None) -> str:
    """The password of a user, not empty. Raises UsageError."""
    if file is not None:
        source = file
        try:
            with open(file, encoding="utf-8") as opened:
                password = opened.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise UsageError(f"--password-file {file}: {why}") from error
    elif PASSWORD_VARIABLE in os.environ:
        source, password = f"${PASSWORD_VARIABLE}", os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        source, password = "the prompt", getpass.getpass(f"password of {user}: ")
        if password != getpass.getpass("the same again: "):
            raise UsageError("the two passwords differ")
    else:
        source, password = "standard input", sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError(f"the password is empty (from {source})")
    return password
