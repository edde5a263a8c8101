"""Whether Spark runs tasks twice on purpose, which does not go together with writing exactly once.

Python data sources do not receive Spark's configuration. What can be known before any task runs is what the Java
processes above this one were started with and Spark's file of defaults; the leases notice the rest when a second
attempt of a task wants to write. Outside of Linux only they do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from odradek.spark.option_names import OptionError

_NAME: Final = "spark.speculation"
_REFUSAL: Final = (
    "spark.speculation runs tasks twice, and each could write: switch it off, or write with "
    "deliveryGuarantee=at-least-once"
)


def refuse(value: str | None) -> None:
    """Raise OptionError if the value of spark.speculation is true."""
    if (value or "").strip().lower() == "true":
        raise OptionError(_REFUSAL)


def refuse_here() -> None:
    """`refuse_where_known` for this process, which is looked at once."""
    _refuse_in(os.getpid())


@cache
def _refuse_in(pid: int) -> None:
    refuse_where_known()


def refuse_where_known(environment: Mapping[str, str] = os.environ, processes: Path = Path("/proc")) -> None:
    """Raise OptionError if this process descends from a Spark with speculation."""
    found: dict[str, str] = {}
    files: list[Path] = []
    for arguments in _ancestors(os.getpid(), processes):
        found = {**dict(_settings(arguments)), **found}
        files += [Path(value) for name, value in pairwise(arguments) if name == _FILE]
    for variable, below in (("SPARK_CONF_DIR", ""), ("SPARK_HOME", "conf")):
        if variable in environment:
            files.append(Path(environment[variable]) / below / "spark-defaults.conf")
    refuse(found[_NAME] if _NAME in found else _from_file(files))


_FILE: Final = "--properties-file"


def _ancestors(pid: int, processes: Path) -> Iterator[list[str]]:
    """The command lines of a process and those that it descends from."""
    while pid > 1:
        try:
            arguments = (processes / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            fields = (processes / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return
        yield arguments
        pid = int(fields[1])


def _settings(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """What a command line of spark-submit or Java sets."""
    for before, argument in pairwise(["", *arguments]):
        text = argument.removeprefix("-D") if argument.startswith("-D") else argument
        if before in ("--conf", "-c") or argument.startswith(("-D", "--conf=")):
            name, _, value = text.removeprefix("--conf=").partition("=")
            yield name.strip(), value


def _from_file(files: list[Path]) -> str | None:
    """The value in the first of the files that is there: lines of a name and a value."""
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            words = line.replace("=", " ", 1).split()
            if words[:1] == [_NAME] and len(words) > 1:
                return words[1]
        return None
    return None
