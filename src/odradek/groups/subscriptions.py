"""The one look that the coordinator takes into a member's metadata: which topics it subscribes to.

Everything else of metadata and assignments is opaque, and so is all of it for other protocol types than "consumer"
(Connect's "connect", Karapace's "sr", ...). Source: Kafka's ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.primitives import DecodeError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of these subscriptions; None when one of them is not in the consumer protocol's format."""
    topics: set[str] = set()
    for subscription in metadata:
        view = memoryview(subscription)
        if len(view) < 2 or view[0] & 0x80:
            return None
        try:
            # Version 0 is a prefix of every later one, so that no future version is unreadable.
            topics.update(ConsumerProtocolSubscription.decode(view, 2, 0)[0].topics)
        except DecodeError:
            return None
    return frozenset(topics)
