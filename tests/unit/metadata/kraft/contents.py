"""What the records of KRaft carry of an image, and records as a log returns them."""

from __future__ import annotations

from typing import Any

from odradek.kraft.metadata_records import decode_metadata_record, encode_metadata_record
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.partition_records import carried
from odradek.metadata.kraft.record_versions import versioned


def content(image: ClusterImage) -> dict[str, Any]:
    """All of an image that records carry."""
    return {
        "topics": {
            topic.name: (topic.id, tuple(map(carried, topic.partitions)), topic.configs)
            for topic in image.topics.values()
        },
        "names": image.topic_names,
        "brokers": {each.id: each._replace(unclean=False) for each in image.brokers.values()},
        "controllers": image.controllers,
        "broker configs": image.broker_configs,
        "group configs": image.group_configs,
        "metrics": image.client_metrics,
        "clients": {entity: found for entity, found in image.client_configs.items() if found},
        "acls": image.acls,
        "tokens": image.tokens,
        "features": image.features or {},
        "producer id": image.next_producer_id,
    }


def through_bytes(records: list[Any], metadata_version: int = 30) -> list[Any]:
    """The records as a log returns them that was written at this metadata.version."""
    values = [encode_metadata_record(*each) for each in versioned(records, metadata_version)]
    return [decode_metadata_record(memoryview(value)).record for value in values]
