"""Topics for a case, made and removed with confluent-kafka."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

LED_S = 30


def create(bootstrap: str, partitions: int) -> str:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})  # lives until the answer has come
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def wait_until_led(bootstrap: str, name: str, partitions: int) -> None:
    """Return once the leader of each partition answers for it.

    Apache's broker names itself as the leader before it leads. A Java producer that is given the topic in between can
    fail: the first batch of a partition is rejected, a later one of the same connection is not, and from then on the
    first one is out of order until it expires. So it was with 64 partitions.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    deadline = time.monotonic() + LED_S
    waiting = [TopicPartition(name, each) for each in range(partitions)]
    while waiting:
        asked = admin.list_offsets({each: OffsetSpec.latest() for each in waiting})
        waiting = [each for each, answer in asked.items() if not _is_led(answer)]
        if waiting and time.monotonic() > deadline:
            raise RuntimeError(f"{name} has {len(waiting)} of {partitions} partitions without a leader")


def _is_led(answer: Any) -> bool:
    try:
        answer.result(LED_S)
    except KafkaException:
        return False
    return True


def delete(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    admin.delete_topics([name])[name].result(30)


@contextmanager
def fresh(bootstrap: str, partitions: int) -> Iterator[str]:
    name = create(bootstrap, partitions)
    try:
        yield name
    finally:
        delete(bootstrap, name)
