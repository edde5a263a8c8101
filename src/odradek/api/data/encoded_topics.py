"""Topics as they are in a Metadata answer, encoded once for each state that they are in.

Clients ask for the same topics over and over; a topic of 10,000 partitions as objects of the generated codec costs the
event loop a tenth of a second each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from struct import Struct, pack
from typing import Any

from odradek.metadata.image import NO_LEADER, ClusterImage, Topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataResponseTopic
from odradek.wire.primitives import write_unsigned_varint

_MOST_BYTES = 32 << 20
_EXAMINED = 4
"""Entries that are looked at for one that is added: more than one, so that outdated ones become fewer."""
_FLEXIBLE_FROM = 9
_EPOCH_FROM = 7
_OFFLINE_FROM = 5

_pack_int32 = Struct(">i").pack
_pack_head = Struct(">hii").pack
_pack_head_with_epoch = Struct(">hiii").pack


class EncodedTopic:
    """Stands where the codec expects a MetadataResponseTopic."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def encode(self, out: bytearray, version: int) -> None:
        """As the version that it was made for."""
        del version
        out += self.data


class _Partitions:
    """Stands where the codec expects a list of partitions: one element writes them all."""

    __slots__ = ("_brokers", "_topic")

    def __init__(self, topic: Topic, brokers: Mapping[int, Any]) -> None:
        self._topic = topic
        self._brokers = brokers

    def __len__(self) -> int:
        return len(self._topic.partitions)

    def __iter__(self) -> Iterator[_Partitions]:
        yield self

    def encode(self, out: bytearray, version: int) -> None:
        brokers = self._brokers
        lists: dict[tuple[int, ...], bytes] = {}
        tails: dict[tuple[tuple[int, ...], tuple[int, ...]], bytes] = {}
        end = b"\0" if version >= _FLEXIBLE_FROM else b""
        parts: list[bytes] = []
        for index, state in enumerate(self._topic.partitions):
            leader, code = state.leader, 0
            if leader not in brokers:
                leader, code = NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
            if version >= _EPOCH_FROM:
                parts.append(_pack_head_with_epoch(code, index, leader, state.leader_epoch))
            else:
                parts.append(_pack_head(code, index, leader))
            # Partitions of a topic have few different sets of replicas.
            key = (state.replicas, state.isr)
            tail = tails.get(key)
            if tail is None:
                tail = _ids(state.replicas, version, lists) + _ids(state.isr, version, lists)
                if version >= _OFFLINE_FROM:
                    offline = tuple(replica for replica in state.replicas if replica not in brokers)
                    tail += _ids(offline, version, lists)
                tails[key] = tail = tail + end
            parts.append(tail)
        out += b"".join(parts)


def _ids(ids: tuple[int, ...], version: int, known: dict[tuple[int, ...], bytes]) -> bytes:
    found = known.get(ids)
    if found is None:
        count = bytearray()
        if version >= _FLEXIBLE_FROM:
            write_unsigned_varint(count, len(ids) + 1)
        else:
            count += _pack_int32(len(ids))
        found = known[ids] = bytes(count) + pack(f">{len(ids)}i", *ids)
    return found


class EncodedTopics:
    """Remembers what it has encoded for as long as topic and brokers are the very objects that it was encoded from.

    Whenever it remembers one more, it looks at a few of the oldest and forgets those whose topic was deleted or has
    changed: without it, deleted topics would stay in memory.
    """

    __slots__ = ("_bytes", "_known")

    def __init__(self) -> None:
        self._bytes = 0
        self._known: OrderedDict[tuple[str, int, int], tuple[Topic, Mapping[int, Any], EncodedTopic]] = OrderedDict()

    def get(self, topic: Topic, image: ClusterImage, version: int, operations: int) -> EncodedTopic:
        """The topic's part of a Metadata response; `operations` are the authorized ones as a bit field.

        Encoded at most once as long as topic and brokers do not change.
        """
        key = (topic.name, version, operations)
        brokers = image.brokers
        known = self._known.get(key)
        if known is not None:
            if known[0] is topic and known[1] is brokers:
                return known[2]
            self._bytes -= len(known[2].data)
        else:
            self._forget_outdated(image)
        partitions: Any = _Partitions(topic, brokers)
        out = bytearray()
        MetadataResponseTopic(0, topic.name, topic.id, topic.is_internal, partitions, operations).encode(out, version)
        found = EncodedTopic(bytes(out))
        self._bytes += len(out)
        if self._bytes > _MOST_BYTES:
            self._known.clear()
            self._bytes = len(out)
        self._known[key] = (topic, brokers, found)
        return found

    def _forget_outdated(self, image: ClusterImage) -> None:
        """Look at the oldest few; those that still hold become the newest, so that all of them have their turn."""
        for _ in range(min(_EXAMINED, len(self._known))):
            key, entry = self._known.popitem(last=False)
            if image.topics.get(key[0]) is entry[0]:
                self._known[key] = entry
            else:
                self._bytes -= len(entry[2].data)
