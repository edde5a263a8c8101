"""Without serializers keys and values are bytes; a compacted topic's consumer says that values may be null."""

from odradek.client import Consumer, ConsumerRecord, Producer, TransactionalProducer


async def main() -> None:
    async with Producer(bootstrap_servers="127.0.0.1:9092", linger_ms=5) as producer:
        place = await producer.send_and_wait("t", b"value", key=b"key", headers={"a": b"1"})
        print(place.offset + 1)
        await producer.send("t", None, key=b"key")
        delivery = await producer.send("t", bytearray(b"value"), headers=[("a", b"1"), ("a", None)])
        print((await delivery).topic_partition.topic.upper())
        await producer.send("t", "text")  # E: [arg-type]
        await producer.send("t", 42)  # E: [arg-type]
        await producer.send("t", b"x", headers={"a": "text"})  # E: [dict-item]
    async with Consumer("t", group_id="g") as consumer:
        async for record in consumer:
            print(record.value.decode(), record.offset + 1)
            record.key.decode()  # E: [union-attr]
            print(upper(record))
        for each in await consumer.poll(timeout_ms=100):
            print(each.value.decode())
    compacted: Consumer[bytes, bytes | None] = Consumer("t")
    for change in await compacted.poll():
        print("deleted" if change.value is None else change.value.decode(), change.key.decode())
        change.value.decode()  # E: [union-attr]
    transactional = TransactionalProducer(transactional_id="copier", acks="all")
    async with transactional.transaction():
        await transactional.send("t", b"value")
        await transactional.send("t", "text")  # E: [arg-type]


def upper(record: ConsumerRecord) -> str:
    return record.value.decode().upper()
