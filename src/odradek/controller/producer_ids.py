"""Blocks of producer ids (KIP-730). Source: Kafka's `ProducerIdControlManager`."""

from __future__ import annotations

from typing import Final

from odradek.wire.errors import ErrorCode, KafkaError

PRODUCER_IDS_PER_BLOCK: Final = 1000
"""Producer ids that a broker gets at once."""
MAX_PRODUCER_ID: Final = (1 << 63) - 1
"""The largest producer id."""


def producer_id_block(first: int) -> range:
    """The block that begins with this id. Raises KafkaError if fewer ids are left."""
    after = first + PRODUCER_IDS_PER_BLOCK
    if after - 1 > MAX_PRODUCER_ID:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
    return range(first, after)
