"""Blocking clients have the types of the asyncio clients."""

from odradek.client import (
    BlockingAdmin,
    BlockingConsumer,
    BlockingDelivery,
    BlockingProducer,
    BlockingTransactionalProducer,
    GroupMembershipOperation,
    KafkaError,
    NewTopic,
    TimestampType,
)

with BlockingAdmin(bootstrap_servers="127.0.0.1:9092", client_id="clerk") as admin:
    for name, created in admin.create_topics([NewTopic("t", 1)], validate_only=True).items():
        print(name.upper(), created.code if isinstance(created, KafkaError) else created.hex())
    admin.create_topics("t", validate_only=True)  # E: [arg-type]
    admin.create_topics([], validate=True)  # E: [call-arg]
    for group in admin.groups.list():
        print(group.group_id.upper(), group.protocol_type.upper(), group.state)
    print(admin.features.describe().finalized, admin.transactions.list(), admin.config["client_id"])
    admin.groups.describe(5)  # E: [arg-type]
BlockingAdmin(linger_ms=5)  # E: [call-arg]

with BlockingProducer(key_serializer=str.encode, value_serializer=str.encode) as producer:
    delivery: BlockingDelivery = producer.send_nowait("t", "value", "key")
    print(delivery.result().offset + 1)
    producer.send_nowait("t", b"value")  # E: [arg-type]
    print([each.result().offset for each in producer.send_batch("t", 0, [b""])])

transactional = BlockingTransactionalProducer(transactional_id="copier")
with transactional.transaction() as transaction:
    print(transaction.send_and_wait("t", b"value").offset, transaction.identity.producer_id)
    transaction.flush(1.5, on_progress=print)

with BlockingConsumer("t", group_id="g", auto_offset_reset="by_duration:PT1H") as consumer:
    for record in consumer:
        print(record.timestamp_type is TimestampType.CREATE_TIME, consumer.positions())
    consumer.enforce_rebalance("a reason")
    consumer.close(membership=GroupMembershipOperation.REMAIN_IN_GROUP, timeout_ms=5_000)
    consumer.close(membership="remain_in_group")  # E: [arg-type]
