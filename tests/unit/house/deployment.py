"""What deploy/ says: its commands, settings and documents, for the tests that hold them against the real parsers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.unit.house.sources import ROOT

DEPLOY = ROOT / "deploy"


def documents(name: str) -> list[dict[str, Any]]:
    """The YAML documents of a file below deploy/."""
    return [each for each in yaml.safe_load_all((DEPLOY / name).read_text()) if each is not None]


def document(name: str, kind: str, of: str) -> dict[str, Any]:
    """The Kubernetes object of a kind and a name."""
    (found,) = [each for each in documents(name) if (each["kind"], each["metadata"]["name"]) == (kind, of)]
    return found


def containers() -> Iterator[dict[str, Any]]:
    """The containers of both StatefulSets."""
    for name, of in (("kubernetes/odradek.yaml", "odradek"), ("kubernetes/zookeeper.yaml", "zookeeper")):
        yield from document(name, "StatefulSet", of)["spec"]["template"]["spec"]["containers"]


def commands_of(value: Any) -> Iterator[list[str]]:
    """The words of every `odradek …` in a command line or an exec array, a shell's script among them."""
    if isinstance(value, list) and value[:2] == ["sh", "-c"]:
        yield from commands_of(" ".join(value[2:]))
    elif isinstance(value, list) and value and value[0] == "odradek":
        yield value[1:]
    elif isinstance(value, str):
        for part in re.findall(r"(?:^|exec |[|;] *|/bin/)odradek ([^|;]*)", value):
            yield shlex.split(part)


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, arguments) of a container file; continued lines are one."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE))
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in text.splitlines() if line.strip()]
