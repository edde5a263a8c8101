"""What every record of `__consumer_offsets` has in common; each kind of group defines its own record types.

A key is the record's type as an int16 followed by the key's fields; a value is its version as an int16 followed by its
fields; a null value is a tombstone. Source: Kafka's CoordinatorRecordType.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class GroupRecord(Protocol):
    """A record that belongs to a group: a NamedTuple, so that equal records compare equal."""

    @property
    def group_id(self) -> str:
        """The group that it belongs to."""
        ...


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RecordType(Generic[R]):
    """How records of one type are written and read."""

    number: int
    """The int16 that the key begins with."""
    record: type[R]
    """The class of the decoded record."""
    encode: Callable[[R], tuple[bytes, bytes | None]] | None
    """Record -> (key, value); raises EncodeError. None for a type that is only read."""
    decode: Callable[[memoryview, memoryview | None], R]
    """(key, value) -> record; the value has at least two bytes. Raises DecodeError."""
