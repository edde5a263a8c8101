"""The schema tables (`schema/*.toml`) as objects.

A table per message: `key` (request, response) or `record_type` (coordinator records), `versions` that are valid,
`flexible` versions (KIP-482), `fields`, and under `structs` the fields of nested structs. A field: `name`, `type`
(`[]T` is an array), and where they differ from the usual: `versions` (else all), `nullable` versions, `default`
("null" is null), `tag` (a tagged field in all its versions), `ignorable` (dropped without complaint in a version that
lacks it), `flexible = "none"` (never compact).
"""

from __future__ import annotations

import keyword
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA_DIR = Path(__file__).parent / "schema"
_OPEN = 0x7FFF


class Versions(NamedTuple):
    """An inclusive range; empty if high < low."""

    low: int
    high: int

    def clip(self, other: Versions) -> Versions:
        """The versions that both ranges have."""
        return Versions(max(self.low, other.low), min(self.high, other.high))

    def covers(self, other: Versions) -> bool:
        """Whether every version of the other range is in this one."""
        return self.low <= other.low and self.high >= other.high

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


NO_VERSIONS = Versions(0, -1)


def parse_versions(text: str) -> Versions:
    """ "3", "3-5", "3+" or "none"."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _OPEN)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message or struct: its type, its versions, and its values by default."""

    name: str
    element: str  # the type, of an array that of its elements; a struct's local name starts with a capital
    array: bool
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None
    ignorable: bool
    never_flexible: bool

    @property
    def attribute(self) -> str:
        """The name of the Python attribute."""
        return snake(self.name) + "_" * keyword.iskeyword(snake(self.name))

    @property
    def tagged(self) -> Versions:
        """The versions in which this is a tagged field."""
        return NO_VERSIONS if self.tag is None else self.versions

    @property
    def is_struct(self) -> bool:
        """Whether the field is a struct or an array of structs."""
        return self.element[0].isupper()


@dataclass(slots=True)
class Struct:
    """`versions` are those in which the struct occurs at all."""

    name: str
    fields: list[Field]
    versions: Versions = NO_VERSIONS


@dataclass(slots=True)
class Message:
    """A request, response or record with its structs, as the schema defines it."""

    name: str
    key: int | None
    record_type: int | None
    versions: Versions
    flexible: Versions
    root: Struct
    structs: dict[str, Struct] = field(default_factory=dict)

    def class_name(self, struct: str) -> str:
        """The name of the generated class of a struct."""
        return struct if struct == self.name else self.name + struct

    def struct(self, name: str) -> Struct:
        """The struct of that name. Raises KeyError."""
        return self.root if name == self.name else self.structs[name]


def words(name: str) -> list[str]:
    """The words of a name in camel case."""
    return re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+", name)


def snake(name: str) -> str:
    """A name in camel case as a Python attribute."""
    return "_".join(words(name)).lower()


def _field(row: dict[str, Any], valid: Versions) -> Field:
    known = {"name", "type", "versions", "nullable", "default", "tag", "ignorable", "flexible"}
    if row.keys() - known:
        raise ValueError(f"unknown keys {sorted(row.keys() - known)} in {row}")
    versions = parse_versions(row["versions"]).clip(valid) if "versions" in row else valid
    return Field(
        name=row["name"],
        element=row["type"].removeprefix("[]"),
        array=row["type"].startswith("[]"),
        versions=versions,
        nullable=parse_versions(row.get("nullable", "none")).clip(valid),
        default=row.get("default"),
        tag=row.get("tag"),
        ignorable=row.get("ignorable", False),
        never_flexible=row.get("flexible") == "none",
    )


def _message(name: str, table: dict[str, Any]) -> Message:
    valid = parse_versions(table["versions"])
    message = Message(
        name=name,
        key=table.get("key"),
        record_type=table.get("record_type"),
        versions=valid,
        flexible=parse_versions(table["flexible"]).clip(valid),
        root=Struct(name, [_field(row, valid) for row in table["fields"]], valid),
        structs={
            struct: Struct(struct, [_field(row, valid) for row in rows])
            for struct, rows in table.get("structs", {}).items()
        },
    )
    _reach(message, message.root)
    for struct in message.structs.values():
        if not struct.versions:
            raise ValueError(f"{name}: struct {struct.name} is not used")
    return message


def _reach(message: Message, parent: Struct) -> None:
    """Give each struct the hull of the versions of the fields that hold it."""
    for each in parent.fields:
        if each.is_struct:
            struct = message.structs[each.element]
            seen = each.versions.clip(parent.versions)
            old = struct.versions
            struct.versions = Versions(min(old.low, seen.low), max(old.high, seen.high)) if old else seen
            _reach(message, struct)


def load_messages(path: Path) -> list[Message]:
    """The messages of one schema file, in its order."""
    with path.open("rb") as file:
        tables = tomllib.load(file)
    return [_message(name, table) for name, table in tables.items()]


def load_all(directory: Path = SCHEMA_DIR) -> dict[str, list[Message]]:
    """Module name -> its messages."""
    return {path.stem: load_messages(path) for path in sorted(directory.glob("*.toml"))}
