"""The headers of a record: decoding, at once or with the first look at them.

They are encoded as a count, and for each header the length of its key, the key, the length of its value, the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

from odradek.records.errors import CorruptRecords
from odradek.records.fields import Field, read_field, read_varint

Headers: TypeAlias = Sequence[tuple[str, bytes | bytearray | memoryview | None]]


def decode_headers(encoded: bytes | memoryview) -> list[tuple[str, Field]]:
    """The headers of one record from the end of its bytes, their count included. Raises CorruptRecords."""
    data, end = bytes(encoded), len(encoded)
    try:
        count, position = read_varint(data, 0)
        if not 0 <= count <= (end - position) >> 1:
            raise CorruptRecords(f"{count} headers in {end - position} bytes")
        headers: list[tuple[str, Field]] = []
        for _ in range(count):
            key, position = read_field(data, data, position, end)
            value, position = read_field(data, encoded, position, end)
            if key is None:
                raise CorruptRecords(f"header without a key before byte {position} of the headers")
            # Java decodes names with replacement characters: foreign bytes in a header must not stop a consumer.
            headers.append((str(key, "utf-8", "replace"), value))
    except IndexError as error:
        raise CorruptRecords(f"the headers are cut off after {end} bytes") from error
    if position != end:
        raise CorruptRecords(f"the headers end at byte {position} of {end}")
    return headers


class LazyHeaders(Sequence[tuple[str, bytes | None]]):
    """The headers of one record, decoded with the first look at them, which raises CorruptRecords for broken ones.

    It equals lists and tuples of the same pairs, and it can be pickled.
    """

    __slots__ = ("_decoded", "_encoded")

    def __init__(self, encoded: bytes) -> None:
        """`encoded` begins with the count of the headers."""
        self._encoded = encoded

    def _pairs(self) -> list[tuple[str, bytes | None]]:
        try:
            return self._decoded
        except AttributeError:
            self._decoded: list[tuple[str, bytes | None]]
            self._decoded = decode_headers(self._encoded)  # type: ignore[assignment]  # bytes give bytes
            return self._decoded

    def __len__(self) -> int:
        return len(self._pairs())

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        return iter(self._pairs())

    @overload
    def __getitem__(self, index: int) -> tuple[str, bytes | None]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, bytes | None]]: ...

    def __getitem__(self, index: int | slice) -> tuple[str, bytes | None] | list[tuple[str, bytes | None]]:
        return self._pairs()[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (LazyHeaders, list, tuple)):
            return self._pairs() == list(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._pairs()))

    def __repr__(self) -> str:
        return repr(self._pairs())

    def __reduce__(self) -> tuple[type[LazyHeaders], tuple[bytes]]:
        return LazyHeaders, (self._encoded,)


def lazy_headers(encoded: Sequence[bytes]) -> Sequence[Sequence[tuple[str, bytes | None]]]:
    """The headers of several records; empty bytes stand for none."""
    if not any(encoded):
        return ((),) * len(encoded)
    return [LazyHeaders(each) if each else () for each in encoded]
