"""Producer, consumer and admin for Odradek and Apache Kafka: asyncio, and blocking faces for threads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.client.admin import Admin as Admin
    from odradek.client.admin import NewTopic as NewTopic
    from odradek.client.admin.blocking_admin import BlockingAdmin as BlockingAdmin
    from odradek.client.avro_serializers import AvroDeserializer as AvroDeserializer
    from odradek.client.avro_serializers import AvroSerializer as AvroSerializer
    from odradek.client.blocking import Blocking as Blocking
    from odradek.client.blocking_clients import BlockingDelivery as BlockingDelivery
    from odradek.client.blocking_clients import BlockingProducer as BlockingProducer
    from odradek.client.blocking_clients import BlockingTransactionalProducer as BlockingTransactionalProducer
    from odradek.client.consumer.avro_columns import AvroValues as AvroValues
    from odradek.client.consumer.blocking_consumer import BlockingConsumer as BlockingConsumer
    from odradek.client.consumer.consumer import Consumer as Consumer
    from odradek.client.consumer.record_batches import RecordBatch as RecordBatch
    from odradek.client.errors import BufferExhausted as BufferExhausted
    from odradek.client.errors import CallTimedOut as CallTimedOut
    from odradek.client.errors import ClientClosed as ClientClosed
    from odradek.client.errors import ClientError as ClientError
    from odradek.client.errors import CommitFailed as CommitFailed
    from odradek.client.errors import ConfigError as ConfigError
    from odradek.client.errors import DeliveryTimedOut as DeliveryTimedOut
    from odradek.client.errors import DeserializationError as DeserializationError
    from odradek.client.errors import IllegalState as IllegalState
    from odradek.client.errors import NoOffsetForPartition as NoOffsetForPartition
    from odradek.client.errors import OffsetOutOfRange as OffsetOutOfRange
    from odradek.client.errors import ProducerFenced as ProducerFenced
    from odradek.client.errors import SerializationError as SerializationError
    from odradek.client.errors import TransactionAborted as TransactionAborted
    from odradek.client.errors import UnsupportedByBroker as UnsupportedByBroker
    from odradek.client.framing import FixedSchemas as FixedSchemas
    from odradek.client.framing import Schemas as Schemas
    from odradek.client.group.rebalance_listener import RebalanceListener as RebalanceListener
    from odradek.client.json_schema_serializers import JsonSchemaDeserializer as JsonSchemaDeserializer
    from odradek.client.json_schema_serializers import JsonSchemaSerializer as JsonSchemaSerializer
    from odradek.client.model import ConsumerRecord as ConsumerRecord
    from odradek.client.model import GroupMembershipOperation as GroupMembershipOperation
    from odradek.client.model import OffsetAndMetadata as OffsetAndMetadata
    from odradek.client.model import OffsetAndTimestamp as OffsetAndTimestamp
    from odradek.client.model import RecordMetadata as RecordMetadata
    from odradek.client.model import TimestampType as TimestampType
    from odradek.client.producer.accumulator import Delivery as Delivery
    from odradek.client.producer.producer import Producer as Producer
    from odradek.client.producer.transactions import TransactionalProducer as TransactionalProducer
    from odradek.client.protobuf_messages import ProtobufMessages as ProtobufMessages
    from odradek.client.protobuf_messages import message_fields as message_fields
    from odradek.client.protobuf_serializers import ProtobufDeserializer as ProtobufDeserializer
    from odradek.client.protobuf_serializers import ProtobufSerializer as ProtobufSerializer
    from odradek.client.pydantic_serializers import PydanticDeserializer as PydanticDeserializer
    from odradek.client.pydantic_serializers import PydanticSerializer as PydanticSerializer
    from odradek.client.registry import RegistryError as RegistryError
    from odradek.client.registry import RegistrySchemas as RegistrySchemas
    from odradek.client.registry import SchemaReference as SchemaReference
    from odradek.client.serializers import DataclassDeserializer as DataclassDeserializer
    from odradek.client.serializers import DataclassSerializer as DataclassSerializer
    from odradek.client.serializers import DoubleDeserializer as DoubleDeserializer
    from odradek.client.serializers import DoubleSerializer as DoubleSerializer
    from odradek.client.serializers import IntegerDeserializer as IntegerDeserializer
    from odradek.client.serializers import IntegerSerializer as IntegerSerializer
    from odradek.client.serializers import JsonDeserializer as JsonDeserializer
    from odradek.client.serializers import JsonSerializer as JsonSerializer
    from odradek.client.serializers import LongDeserializer as LongDeserializer
    from odradek.client.serializers import LongSerializer as LongSerializer
    from odradek.client.serializers import StringDeserializer as StringDeserializer
    from odradek.client.serializers import StringSerializer as StringSerializer
    from odradek.client.share.acknowledgements import AcknowledgeType as AcknowledgeType
    from odradek.client.share.blocking_share_consumer import BlockingShareConsumer as BlockingShareConsumer
    from odradek.client.share.records import ShareRecord as ShareRecord
    from odradek.client.share.share_consumer import ShareConsumer as ShareConsumer
    from odradek.records.topic_partition import TopicPartition as TopicPartition
    from odradek.wire.errors import ErrorCode as ErrorCode
    from odradek.wire.errors import KafkaError as KafkaError

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AvroDeserializer",
    "AvroSerializer",
    "AvroValues",
    "Blocking",
    "BlockingAdmin",
    "BlockingConsumer",
    "BlockingDelivery",
    "BlockingProducer",
    "BlockingShareConsumer",
    "BlockingTransactionalProducer",
    "BufferExhausted",
    "CallTimedOut",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "ConfigError",
    "Consumer",
    "ConsumerRecord",
    "DataclassDeserializer",
    "DataclassSerializer",
    "Delivery",
    "DeliveryTimedOut",
    "DeserializationError",
    "DoubleDeserializer",
    "DoubleSerializer",
    "ErrorCode",
    "FixedSchemas",
    "GroupMembershipOperation",
    "IllegalState",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "JsonSerializer",
    "KafkaError",
    "LongDeserializer",
    "LongSerializer",
    "NewTopic",
    "NoOffsetForPartition",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "Producer",
    "ProducerFenced",
    "ProtobufDeserializer",
    "ProtobufMessages",
    "ProtobufSerializer",
    "PydanticDeserializer",
    "PydanticSerializer",
    "RebalanceListener",
    "RecordBatch",
    "RecordMetadata",
    "RegistryError",
    "RegistrySchemas",
    "SchemaReference",
    "Schemas",
    "SerializationError",
    "ShareConsumer",
    "ShareRecord",
    "StringDeserializer",
    "StringSerializer",
    "TimestampType",
    "TopicPartition",
    "TransactionAborted",
    "TransactionalProducer",
    "UnsupportedByBroker",
    "message_fields",
]

# Loaded on first use: a command that only lists topics needs neither producer nor consumer.
_HOMES = {
    "AcknowledgeType": "odradek.client.share.acknowledgements",
    "Admin": "odradek.client.admin",
    "AvroDeserializer": "odradek.client.avro_serializers",
    "AvroSerializer": "odradek.client.avro_serializers",
    "AvroValues": "odradek.client.consumer.avro_columns",
    "Blocking": "odradek.client.blocking",
    "BlockingAdmin": "odradek.client.admin.blocking_admin",
    "BlockingConsumer": "odradek.client.consumer.blocking_consumer",
    "BlockingDelivery": "odradek.client.blocking_clients",
    "BlockingProducer": "odradek.client.blocking_clients",
    "BlockingShareConsumer": "odradek.client.share.blocking_share_consumer",
    "BlockingTransactionalProducer": "odradek.client.blocking_clients",
    "BufferExhausted": "odradek.client.errors",
    "CallTimedOut": "odradek.client.errors",
    "ClientClosed": "odradek.client.errors",
    "ClientError": "odradek.client.errors",
    "CommitFailed": "odradek.client.errors",
    "ConfigError": "odradek.client.errors",
    "Consumer": "odradek.client.consumer.consumer",
    "ConsumerRecord": "odradek.client.model",
    "DataclassDeserializer": "odradek.client.serializers",
    "DataclassSerializer": "odradek.client.serializers",
    "Delivery": "odradek.client.producer.accumulator",
    "DeliveryTimedOut": "odradek.client.errors",
    "DeserializationError": "odradek.client.errors",
    "DoubleDeserializer": "odradek.client.serializers",
    "DoubleSerializer": "odradek.client.serializers",
    "ErrorCode": "odradek.wire.errors",
    "FixedSchemas": "odradek.client.framing",
    "GroupMembershipOperation": "odradek.client.model",
    "IllegalState": "odradek.client.errors",
    "IntegerDeserializer": "odradek.client.serializers",
    "IntegerSerializer": "odradek.client.serializers",
    "JsonDeserializer": "odradek.client.serializers",
    "JsonSchemaDeserializer": "odradek.client.json_schema_serializers",
    "JsonSchemaSerializer": "odradek.client.json_schema_serializers",
    "JsonSerializer": "odradek.client.serializers",
    "KafkaError": "odradek.wire.errors",
    "LongDeserializer": "odradek.client.serializers",
    "LongSerializer": "odradek.client.serializers",
    "NewTopic": "odradek.client.admin",
    "NoOffsetForPartition": "odradek.client.errors",
    "OffsetAndMetadata": "odradek.client.model",
    "OffsetAndTimestamp": "odradek.client.model",
    "OffsetOutOfRange": "odradek.client.errors",
    "Producer": "odradek.client.producer.producer",
    "ProducerFenced": "odradek.client.errors",
    "ProtobufDeserializer": "odradek.client.protobuf_serializers",
    "ProtobufMessages": "odradek.client.protobuf_messages",
    "ProtobufSerializer": "odradek.client.protobuf_serializers",
    "PydanticDeserializer": "odradek.client.pydantic_serializers",
    "PydanticSerializer": "odradek.client.pydantic_serializers",
    "RebalanceListener": "odradek.client.group.rebalance_listener",
    "RecordBatch": "odradek.client.consumer.record_batches",
    "RecordMetadata": "odradek.client.model",
    "RegistryError": "odradek.client.registry",
    "RegistrySchemas": "odradek.client.registry",
    "SchemaReference": "odradek.client.registry",
    "Schemas": "odradek.client.framing",
    "SerializationError": "odradek.client.errors",
    "ShareConsumer": "odradek.client.share.share_consumer",
    "ShareRecord": "odradek.client.share.records",
    "StringDeserializer": "odradek.client.serializers",
    "StringSerializer": "odradek.client.serializers",
    "TimestampType": "odradek.client.model",
    "TopicPartition": "odradek.records.topic_partition",
    "TransactionAborted": "odradek.client.errors",
    "TransactionalProducer": "odradek.client.producer.transactions",
    "UnsupportedByBroker": "odradek.client.errors",
    "message_fields": "odradek.client.protobuf_messages",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
