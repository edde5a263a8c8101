"""Misspelt options and values of a wrong type are found before the program runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.client import (
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    RecordMetadata,
    TopicPartition,
    TransactionalProducer,
)

Producer(linger_ms=5, compression_type="zstd", acks="all")
Producer(lingr_ms=5)  # E: [call-arg]
Producer(linger_ms="5")  # E: [arg-type]
Consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
Consumer("t", groupid="g")  # E: [call-arg]
TransactionalProducer(transactional_id="a", transaction_timeout_ms=1000)
TransactionalProducer(transactional_idd="a")  # E: [call-arg]
TransactionalProducer(transactional_id=7)  # E: [arg-type]


class Audit:
    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None: ...

    def on_consume(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Sequence[ConsumerRecord[Any, Any]]:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...


class Wrong:
    def on_send(self, topic: str) -> None: ...


Producer(interceptors=[Audit()])
Consumer(interceptors=[Audit()])
Producer(interceptors=[Wrong()])  # E: [list-item]


async def main(consumer: Consumer[Any, Any]) -> None:
    partition = TopicPartition("t", 0)
    await consumer.commit({partition: 5})
    await consumer.commit({partition: OffsetAndMetadata(5, "note")})
    await consumer.commit({("t", 0): 5})  # E: [dict-item]
    consumer.seek(partition, "5")  # E: [arg-type]
    task = consumer.commit_async(callback=lambda offsets, error: print(len(offsets), error))
    await task
