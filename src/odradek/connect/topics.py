"""The compacted topics of a worker: offsets of sources, and configurations. Their records are those of Kafka Connect.

| topic | key | value |
|---|---|---|
| offsets | `["NAME",{source partition}]` | `{source offset}`, or null |
| configurations | `connector-NAME` | `{"properties":{…}}`, or null |
| configurations | `target-state-NAME` | `{"state":"STARTED"}` (or PAUSED; `state.v2` adds STOPPED), or null |
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.enums import ConfigResourceType
from odradek.client.admin.topics import NewTopic
from odradek.client.consumer.consumer import Consumer
from odradek.client.model import LATEST, ConsumerRecord
from odradek.client.offsets import list_offsets
from odradek.connect.errors import ConnectError
from odradek.connect.model import Target
from odradek.connect.sources.source import StoredOffsets, partition_text
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

OFFSETS_PARTITIONS: Final = 25
"""Partitions of a new offsets topic, as Kafka Connect's offset.storage.partitions."""
_CONNECTOR: Final = "connector-"
_TARGET: Final = "target-state-"


async def create_compacted(admin: Admin, name: str, partitions: int) -> None:
    """Create the topic if it is missing. Raises ConnectError if it is there and is not compacted, KafkaError."""
    made = await admin.create_topics([NewTopic(name, partitions, -1, configs={"cleanup.policy": "compact"})])
    error = made[name]
    if not isinstance(error, KafkaError):
        return
    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    found = (await admin.describe_configs([resource], keys=["cleanup.policy"]))[resource]
    if isinstance(found, KafkaError):
        raise found
    policy = found["cleanup.policy"].value
    if policy != "compact":
        raise ConnectError(
            f"topic {name} has cleanup.policy={policy}: it would lose what it has to keep; set it to compact"
        )


async def read_all(options: Mapping[str, Any], topic: str) -> AsyncIterator[ConsumerRecord[Any, Any]]:
    """The committed records of a topic, from its beginning to its end as of now.

    It waits for transactions that are open: records behind the first one of them may be committed already.
    """
    own = {**options, "isolation_level": "read_committed", "allow_auto_create_topics": False}
    async with Consumer(**own) as consumer:
        partitions = [TopicPartition(topic, each.partition) for each in await consumer.partitions_for(topic)]
        begins = await consumer.beginning_offsets(partitions)
        # the consumer's own end offsets are those of its isolation level: they lie before open transactions
        logged = await list_offsets(consumer.cluster, dict.fromkeys(partitions, LATEST))
        ends = {each: at.offset for each, at in logged.items() if at.offset > begins[each]}
        if not ends:
            return
        consumer.assign(ends)
        for each in ends:
            consumer.seek(each, begins[each])
        while True:
            for record in await consumer.poll(timeout_ms=100):
                yield record
            reached = consumer.positions()
            if all(each in reached and reached[each].offset >= end for each, end in ends.items()):
                return


def offset_key(connector: str, partition: Mapping[str, Any]) -> bytes:
    """The key of a source partition in the offsets topic. JSON has an escape for text that is no Unicode."""
    text = f"[{json.dumps(connector, ensure_ascii=False)},{partition_text(partition)}]"
    return text.encode(errors="backslashreplace")


def offset_value(offset: Mapping[str, Any] | None) -> bytes | None:
    """The value of a source offset; None removes it."""
    if offset is None:
        return None
    return json.dumps(offset, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")


async def read_offsets(options: Mapping[str, Any], topic: str, connector: str) -> StoredOffsets:
    """The offsets of a connector."""
    found = StoredOffsets()
    async for record in read_all(options, topic):
        parsed = parse_offset(record.key, record.value)
        if parsed is not None and parsed[0] == connector:
            found.set(parsed[1], parsed[2])
    return found


def parse_offset(key: bytes | None, value: bytes | None) -> tuple[str, dict[str, Any], Mapping[str, Any] | None] | None:
    """(connector, source partition, source offset) of a record; None for a record of another kind."""
    try:
        name, partition = json.loads(key or b"")
        offset = None if value is None else json.loads(value)
    except (ValueError, TypeError):
        return None
    if not isinstance(name, str) or not isinstance(partition, dict) or not isinstance(offset, dict | None):
        return None
    return name, partition, offset


class StoredConnectors:
    """Configurations and targets as the records of a configurations topic leave them. Pure."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        """Configurations by connector."""
        self.targets: dict[str, Target] = {}
        """Targets by connector, where they are not STARTED."""

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record. Those of other kinds (Kafka Connect's tasks and keys) are skipped."""
        name = (key or b"").decode(errors="replace")
        try:
            document = None if value is None else json.loads(value)
        except ValueError:
            return
        if name.startswith(_CONNECTOR):
            connector = name.removeprefix(_CONNECTOR)
            properties = document.get("properties") if isinstance(document, dict) else None
            if isinstance(properties, dict):
                # null is how Kafka Connect stores a setting that was sent as null
                self.configs[connector] = {each: str(text) for each, text in properties.items() if text is not None}
            else:
                self.configs.pop(connector, None)
        elif name.startswith(_TARGET):
            connector = name.removeprefix(_TARGET)
            text = document.get("state.v2") or document.get("state") if isinstance(document, dict) else None
            self.targets.pop(connector, None)
            if text in (Target.PAUSED, Target.STOPPED):
                self.targets[connector] = Target(text)


def config_record(connector: str, config: Mapping[str, str] | None) -> tuple[bytes, bytes | None]:
    """(key, value) of a connector's configuration; None removes it."""
    value = None if config is None else json.dumps({"properties": dict(config)}, ensure_ascii=False).encode()
    return f"{_CONNECTOR}{connector}".encode(), value


def target_record(connector: str, target: Target | None) -> tuple[bytes, bytes | None]:
    """(key, value) of what the user wants of a connector; None removes it."""
    if target is None:
        return f"{_TARGET}{connector}".encode(), None
    # Workers before Kafka 3.5 know no STOPPED, and read the first field.
    first = Target.PAUSED if target is Target.STOPPED else target
    return f"{_TARGET}{connector}".encode(), json.dumps({"state": first, "state.v2": target}).encode()
