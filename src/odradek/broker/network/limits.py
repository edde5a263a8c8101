"""What one request may be and ask for: bytes and elements before it is decoded, topics and partitions after."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from odradek.api.requests.context import Configuration
from odradek.api.requests.declarations import DECLARATIONS, Audience, Declaration, Size
from odradek.api.requests.session import Session
from odradek.wire.apis import ApiKey
from odradek.wire.frames import SERVER_SPARE_BYTES, ReceiveBuffers

_SMALL_BYTES: Final = 65_536
_FEW_ELEMENTS: Final = 20_000
"""Of requests that name no topics: members of a group, groups, entries of a change."""
_MANY_ELEMENTS: Final = 300_000
"""Of requests that name topics and partitions, unless the configuration allows more of these."""
_PARTITIONS = ("partitions", "partition_indexes", "partition_data", "partition_ids")


class RequestLimits(NamedTuple):
    """What clients may ask for: bytes of any request but Produce, topics, and partitions.

    Requests of brokers are as large as the cluster: `socket.request.max.bytes` alone bounds them.
    """

    control_bytes: int = 4 << 20
    topics: int = 100_000
    partitions: int = 200_000

    def frame_bytes(self, session: Session, most: int) -> int:
        """Bytes of any request of a session, of which `socket.request.max.bytes` allows `most`."""
        return most if session.is_admitted else min(_SMALL_BYTES, most)

    def most_bytes(self, session: Session, key: int) -> int | None:
        """Bytes of a request of that key; None where `socket.request.max.bytes` alone bounds it."""
        if session.is_broker:
            return None
        if not session.is_admitted:
            return min(_SMALL_BYTES, self.control_bytes)
        declared = DECLARATIONS.get(key)
        if declared is None or declared.audience is not Audience.CLIENTS or declared.size is Size.SMALL:
            return min(_SMALL_BYTES, self.control_bytes)
        return None if declared.size is Size.LARGE else self.control_bytes

    def excess_bytes(self, session: Session, frame: memoryview) -> str | None:
        """Why a frame is too large for its API; None when it is not. Only the key is read."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        most = self.most_bytes(session, key)
        if most is None or len(frame) <= most:
            return None
        name = ApiKey(key).name if key in DECLARATIONS else f"API key {key}"
        setting = " (odradek.max.control.request.bytes)" if most == self.control_bytes else ""
        return f"{name} request of {len(frame)} bytes, the limit is {most}{setting}"

    def most_elements(self, declared: Declaration) -> int:
        """How many elements all arrays of a request may have together."""
        return max(_MANY_ELEMENTS, self.topics + self.partitions) if declared.names_topics else _FEW_ELEMENTS

    def excess(self, request: Any) -> str | None:
        """The excess of a decoded request, as a message; None without one."""
        topics = getattr(request, "topics", None)
        if not isinstance(topics, list):
            topics = getattr(request, "topic_data", None)
            if not isinstance(topics, list):
                return None
        if len(topics) > self.topics:
            return f"The request names more than {self.topics} topics (odradek.max.request.topics)"
        if sum(map(_partitions, topics)) > self.partitions:
            return f"The request names more than {self.partitions} partitions (odradek.max.request.partitions)"
        return None


def _partitions(topic: Any) -> int:
    if type(topic) is tuple:  # of a codec by hand: its key, its partitions
        return len(topic[1])
    for name in _PARTITIONS:
        found = getattr(topic, name, None)
        if isinstance(found, list):
            return len(found)
    return 0


def request_limits(config: Configuration) -> RequestLimits:
    """The limits of requests that a node's configuration sets."""
    return RequestLimits(
        config.number("odradek.max.control.request.bytes"),
        config.number("odradek.max.request.topics"),
        config.number("odradek.max.request.partitions"),
    )


def receive_buffers(config: Configuration) -> ReceiveBuffers:
    """The bytes of requests that a node has received and not served: `queued.max.request.bytes`."""
    limit = config.number("queued.max.request.bytes")
    return ReceiveBuffers(limit if limit > 0 else None, SERVER_SPARE_BYTES)
