"""Changes of topics, partitions and replicas, from requests and their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.api.audit.answered import CLUSTER, Answered
from odradek.api.audit.trail import Change
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.metadata.nodes import id_text
from odradek.wire.errors import ErrorCode

_TOPIC: Final = "TOPIC"


def created_topics(served: Answered) -> Iterator[Change]:
    """Of CreateTopics."""
    if served.request.validate_only:
        return
    for each in served.answer.topics:
        yield _of_topic(each.name, None, served, each.error_code)


def deleted_topics(served: Answered) -> Iterator[Change]:
    """Of DeleteTopics, whose answer names topics by name or by id."""
    for each in served.answer.responses:
        name = each.name or served.before.topic_names.get(each.topic_id) or id_text(each.topic_id)
        before = _topic(served.before, name)
        yield Change(_TOPIC, name, before, before if each.error_code else None, each.error_code)


def grown_topics(served: Answered) -> Iterator[Change]:
    """Of CreatePartitions."""
    if served.request.validate_only:
        return
    for each in served.answer.results:
        yield _of_topic(each.name, _topic(served.before, each.name), served, each.error_code)


def _of_topic(name: str, before: Mapping[str, Any] | None, served: Answered, code: int) -> Change:
    return Change(_TOPIC, name, before, before if code else _topic(served.after, name), code)


def _topic(image: ClusterImage, name: str) -> Mapping[str, Any] | None:
    topic = image.topics.get(name)
    if topic is None:
        return None
    return {
        "topic_id": id_text(topic.id),
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "configs": dict(topic.configs),
    }


def reassigned_partitions(served: Answered) -> Iterator[Change]:
    """Of AlterPartitionReassignments."""
    for topic in served.answer.responses:
        for each in topic.partitions:
            code = served.failure or each.error_code
            yield _of_partition(topic.name, each.partition_index, _replicas, served, code)


def elected_leaders(served: Answered) -> Iterator[Change]:
    """Of ElectLeaders, without the partitions that needed none."""
    for topic in served.answer.replica_election_results:
        for each in topic.partition_result:
            code = served.failure or each.error_code
            if code != ErrorCode.ELECTION_NOT_NEEDED:
                yield _of_partition(topic.topic, each.partition_id, _leader, served, code)


def _of_partition(topic: str, index: int, shown: Any, served: Answered, code: int) -> Change:
    before, after = (
        None if (state := image.partition(topic, index)) is None else {"partition": index, **shown(state)}
        for image in (served.before, served.after)
    )
    return Change(_TOPIC, topic, before, before if code else after, code)


def _replicas(state: PartitionState) -> dict[str, Any]:
    return {
        "replicas": list(state.replicas),
        "adding_replicas": list(state.adding_replicas),
        "removing_replicas": list(state.removing_replicas),
    }


def _leader(state: PartitionState) -> dict[str, Any]:
    return {"leader": state.leader, "isr": list(state.isr)}


def moved_replicas(served: Answered) -> Iterator[Change]:
    """Of AlterReplicaLogDirs: replicas of this broker get another log directory."""
    paths = {
        (topic.name, index): folder.path
        for folder in served.request.dirs
        for topic in folder.topics
        for index in topic.partitions
    }
    for topic in served.answer.results:
        for each in topic.partitions:
            path = paths.get((topic.topic_name, each.partition_index))
            after = None if each.error_code else {"partition": each.partition_index, "log_dir": path}
            yield Change(_TOPIC, topic.topic_name, None, after, each.error_code)


def deleted_records(served: Answered) -> Iterator[Change]:
    """Of DeleteRecords; `known` are the log start offsets by topic and partition."""
    for topic in served.answer.topics:
        for each in topic.partitions:
            index = each.partition_index
            start = served.known.get((topic.name, index))
            before = None if start is None else {"partition": index, "log_start_offset": start}
            after = {"partition": index, "log_start_offset": each.low_watermark}
            yield Change(_TOPIC, topic.name, before, before if each.error_code else after, each.error_code)


def updated_features(served: Answered) -> Iterator[Change]:
    """Of UpdateFeatures."""
    if served.request.validate_only:
        return
    names = [each.feature for each in served.request.feature_updates]
    before, after = ({name: (image.features or {}).get(name) for name in names} for image in served[2:4])
    code = served.failure or next((each.error_code for each in served.answer.results if each.error_code), 0)
    yield Change("CLUSTER", CLUSTER, before, before if code else after, code)


def unregistered_broker(served: Answered) -> Iterator[Change]:
    """Of UnregisterBroker."""
    number = served.request.broker_id
    before = {"registered": number in served.before.brokers}
    after = {"registered": number in served.after.brokers}
    yield Change("BROKER", str(number), before, after, served.failure)
