"""Topics for a case, made and removed with confluent-kafka."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewTopic


def create(bootstrap: str, partitions: int) -> str:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})  # lives until the answer has come
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


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
