"""Recorded and repeated answers beside each other: identities that the cluster chooses, and differences. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.records.batch import HEADER_SIZE, parse_header, patch_producer
from odradek.wire.apis import ApiKey
from odradek.wire.errors import error_code

_IDENTITIES: Final = frozenset({"topic_id", "producer_id", "producer_epoch", "member_id", "session_id", "cluster_id"})
"""Fields whose values a cluster chooses: a repeated request carries those of the repeated answers."""
_KEYS: Final = ("name", "topic", "group_id", "topic_id", "partition_index", "partition", "index", "node_id", "api_key")
"""Fields by which the elements of two lists are matched."""
_UNORDERED_SHAPES: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.API_VERSIONS})
"""APIs whose answers have other elements at other times, or on other brokers: only errors are compared."""
_BYTES: Final = bytes | bytearray | memoryview


class Identities:
    """What the recorded identities are in the repetition."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], Any] = {}

    def learn(self, recorded: Any, repeated: Any) -> None:
        """Match the fields of two messages of one kind."""
        for name in recorded.__slots__:
            before, now = getattr(recorded, name), getattr(repeated, name)
            if name in _IDENTITIES:
                if before != now and before not in (None, "", -1, 0, bytes(16)):
                    self._known[name, _hashable(before)] = now
            elif isinstance(before, list) and isinstance(now, list):
                for each, other in _pairs(before, now):
                    if _is_message(each) and other is not None:
                        self.learn(each, other)
            elif _is_message(before) and _is_message(now):
                self.learn(before, now)

    def replace(self, message: Any) -> None:
        """Put the repetition's identities into a request, and the producer's into its batches."""
        for name in message.__slots__:
            value = getattr(message, name)
            if name in _IDENTITIES:
                setattr(message, name, self._known.get((name, _hashable(value)), value))
            elif name == "records" and isinstance(value, _BYTES):
                setattr(message, name, self._with_producer(bytearray(value)))
            elif isinstance(value, list):
                for each in value:
                    if _is_message(each):
                        self.replace(each)
            elif _is_message(value):
                self.replace(value)

    def _with_producer(self, data: bytearray) -> bytearray:
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = parse_header(data, position)
            producer_id = self._known.get(("producer_id", header.producer_id))
            if producer_id is not None:
                epoch = self._known.get(("producer_epoch", header.producer_epoch), header.producer_epoch)
                patch_producer(memoryview(data), position, producer_id, epoch, header.base_sequence)
            position += header.size
        return data


def differences(key: int, recorded: Any, repeated: Any, path: str = "") -> Iterator[str]:
    """Differences of error codes, and of shape: elements that are missing or new, values that are null or not."""
    for name in recorded.__slots__:
        before, now = getattr(recorded, name), getattr(repeated, name)
        place = f"{path}.{name}" if path else name
        if name.endswith("error_code"):
            if before != now:
                yield f"{place}: {error_code(before).name} recorded, {error_code(now).name} now"
        elif isinstance(before, list) and isinstance(now, list):
            yield from _of_lists(key, before, now, place)
        elif _is_message(before) and _is_message(now):
            yield from differences(key, before, now, place)
        elif (before is None) != (now is None) and not name.endswith("message") and key not in _UNORDERED_SHAPES:
            found = ["null" if each is None else "a value" for each in (before, now)]
            yield f"{place}: {found[0]} recorded, {found[1]} now"


def _of_lists(key: int, before: list[Any], now: list[Any], place: str) -> Iterator[str]:
    compares_shape = key not in _UNORDERED_SHAPES
    if compares_shape and len(before) != len(now):
        yield f"{place}: {len(before)} recorded, {len(now)} now"
    for index, (each, other) in enumerate(_pairs(before, now)):
        if not _is_message(each):
            continue
        name = _name_of(each)
        where = f"{place}[{index if name is None else name}]"
        if other is not None:
            yield from differences(key, each, other, where)
        elif compares_shape and len(before) == len(now):
            yield f"{where}: recorded, missing now"


def _pairs(before: list[Any], now: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each recorded element with the repeated one of the same name, or place where it has none; else with None."""
    by_name: Mapping[Any, Any] = {_name_of(each): each for each in now if _is_message(each)}
    for index, each in enumerate(before):
        name = _name_of(each) if _is_message(each) else None
        if name is not None and name in by_name:
            yield each, by_name[name]
        elif name is None or (len(before) == len(now) == 1):
            yield each, now[index] if index < len(now) else None
        else:
            yield each, None


def _name_of(message: Any) -> Any:
    for field in _KEYS:
        value = getattr(message, field, None)
        if value is not None and value != "" and not (field == "topic_id" and not any(value)):
            return value.hex() if isinstance(value, bytes) else value
    return None


def _is_message(value: Any) -> bool:
    return hasattr(type(value), "__slots__") and hasattr(value, "encode") and not isinstance(value, str)


def _hashable(value: Any) -> Any:
    return bytes(value) if isinstance(value, _BYTES) else value
