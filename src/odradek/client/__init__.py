"""Producer, consumer and admin for Odradek and Apache Kafka: asyncio, with a thin blocking face in `blocking`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.client.admin import Admin as Admin
    from odradek.client.admin import NewTopic as NewTopic
    from odradek.client.consumer import Consumer as Consumer
    from odradek.client.consumer import RebalanceListener as RebalanceListener
    from odradek.client.errors import ClientError as ClientError
    from odradek.client.model import ConsumerRecord as ConsumerRecord
    from odradek.client.model import OffsetAndMetadata as OffsetAndMetadata
    from odradek.client.model import OffsetAndTimestamp as OffsetAndTimestamp
    from odradek.client.model import RecordMetadata as RecordMetadata
    from odradek.client.model import TopicPartition as TopicPartition
    from odradek.client.producer import Producer as Producer
    from odradek.client.transactions import TransactionalProducer as TransactionalProducer
    from odradek.wire.errors import KafkaError as KafkaError

__all__ = [
    "Admin",
    "ClientError",
    "Consumer",
    "ConsumerRecord",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TopicPartition",
    "TransactionalProducer",
]

# Loaded on first use: a command that only lists topics needs neither producer nor consumer.
_HOMES = {
    "Admin": "odradek.client.admin",
    "ClientError": "odradek.client.errors",
    "Consumer": "odradek.client.consumer",
    "ConsumerRecord": "odradek.client.model",
    "KafkaError": "odradek.wire.errors",
    "NewTopic": "odradek.client.admin",
    "OffsetAndMetadata": "odradek.client.model",
    "OffsetAndTimestamp": "odradek.client.model",
    "Producer": "odradek.client.producer",
    "RebalanceListener": "odradek.client.consumer",
    "RecordMetadata": "odradek.client.model",
    "TopicPartition": "odradek.client.model",
    "TransactionalProducer": "odradek.client.transactions",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
