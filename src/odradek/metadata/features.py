"""Features of the cluster (KIP-584): which levels this broker supports, and which one all brokers have agreed on."""

from __future__ import annotations

from typing import Final, NamedTuple


class Feature(NamedTuple):
    """Levels as in Kafka; `finalized` is the one in force."""

    name: str
    min_level: int
    max_level: int
    finalized: int


TRANSACTION_VERSION: Final = "transaction.version"
"""1: flexible records of the transaction log; 2: epochs that grow with every transaction (KIP-890)."""

FINALIZED_EPOCH: Final = 1
"""Grows with every change of a finalized level; clients take over the features with the highest."""

FEATURES: Final = (Feature(TRANSACTION_VERSION, 0, 2, 2),)
