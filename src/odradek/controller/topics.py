"""Topics: create, delete, grow. Pure decisions over the cluster image.

Source: Kafka's `ReplicationControlManager` and `ControllerApis`, for the order of the checks and for their messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.controller.aliveness import BY_SESSIONS, Aliveness
from odradek.controller.names import CLUSTER_METADATA_TOPIC, colliding, name_problem
from odradek.controller.outcome import STEP_PARTITIONS, Decision, Failure, Settings, Steps, drained
from odradek.controller.partition_changes import NEVER_LED
from odradek.controller.placement import TooFewBrokers, place
from odradek.metadata.changes import partition_creation, topic_head_creation
from odradek.metadata.configs.catalog import validate_topic_configs
from odradek.metadata.configs.definitions import InvalidConfig
from odradek.metadata.directories import default_directory
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import ConfigNode, DeletionNode, PartitionNode, TopicNode
from odradek.ports.randomness import Random
from odradek.ports.store import Create, Delete, Operation, Put
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

DEFAULT = -1
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_PARTITIONS_DELETED_AT_ONCE = 500


class NewTopic(NamedTuple):
    """A topic as a client asks for it. Either counts (DEFAULT: the broker's) or `assignments`: (partition, brokers)."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class CreatedTopic(NamedTuple):
    """Either `topic` or `failure`."""

    name: str
    failure: Failure | None
    topic: Topic | None


class TopicReference(NamedTuple):
    """A topic by name or by id (KIP-516), never both."""

    name: str | None
    id: bytes = ZERO_UUID


class DeletedTopic(NamedTuple):
    """The result for one topic; no failure means that it was deleted."""

    name: str | None
    id: bytes
    failure: Failure | None


class MorePartitions(NamedTuple):
    """`total` is the new count; `assignments`, if any, has the brokers of each added partition."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class GrownTopic(NamedTuple):
    """The result for one topic; no failure means that its partitions were added."""

    name: str
    failure: Failure | None


def create_topics(
    image: ClusterImage,
    topics: Sequence[NewTopic],
    settings: Settings,
    random: Random,
    *,
    validate_only: bool = False,
    aliveness: Aliveness = BY_SESSIONS,
) -> Decision[CreatedTopic]:
    """One reply for every distinct name."""
    steps = create_topics_in_steps(image, topics, settings, random, validate_only=validate_only, aliveness=aliveness)
    return drained(steps)


def create_topics_in_steps(
    image: ClusterImage,
    topics: Sequence[NewTopic],
    settings: Settings,
    random: Random,
    *,
    validate_only: bool = False,
    aliveness: Aliveness = BY_SESSIONS,
) -> Steps[Decision[CreatedTopic]]:
    """`create_topics`, yielding now and then: topics may have thousands of partitions."""
    counts = Counter(topic.name for topic in topics)
    excessive = sum(_asked_partitions(topic, settings) for topic in topics) > MAX_PARTITIONS_PER_REQUEST
    created: list[Topic] = []
    replies = []
    for topic in {topic.name: topic for topic in topics}.values():
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if excessive:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
            made = yield from _create_one(image, topic, settings, random, aliveness)
        except KafkaError as error:
            replies.append(CreatedTopic(topic.name, Failure(error.code, error.message), None))
        else:
            created.append(made)
            replies.append(CreatedTopic(topic.name, None, made))
    if validate_only or not created:
        return Decision((), image, replies)
    operations: list[Operation] = []
    cuts: list[int] = []
    for made in created:
        start = len(operations)
        operations += topic_head_creation(made)
        for first in range(0, len(made.partitions), STEP_PARTITIONS):
            if first:
                yield
            operations += partition_creation(made.name, first, made.partitions[first : first + STEP_PARTITIONS])
        # Configuration and assignment come together and first: states that are missing the next controller makes.
        cuts += [start, *range(start + 2, len(operations))]
    return Decision(operations, image.with_topics(created), replies, cuts[1:])


def _asked_partitions(topic: NewTopic, settings: Settings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.number("num.partitions") if topic.num_partitions == DEFAULT else max(0, topic.num_partitions)


def _create_one(
    image: ClusterImage, topic: NewTopic, settings: Settings, random: Random, aliveness: Aliveness
) -> Steps[Topic]:
    name = topic.name
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = colliding(name, image.topics)
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    try:
        configs = validate_topic_configs(dict(topic.configs), settings.value)
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    replicas: Iterable[tuple[int, ...]]
    if topic.assignments:
        replicas = _manual(image, topic)
    else:
        replicas = _placed(image, topic, settings, random)
    partitions = []
    for index, brokers in enumerate(replicas):
        if index and index % STEP_PARTITIONS == 0:
            yield
        partitions.append(_new_partition(image, brokers, index, aliveness))
    topic_id = random.uuid()
    while topic_id in image.topic_names:
        topic_id = random.uuid()
    return Topic(name, topic_id, tuple(partitions), configs)


def _manual(image: ClusterImage, topic: NewTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor != DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index: dict[int, tuple[int, ...]] = {}
    replication_factor: int | None = None
    for index, brokers in topic.assignments:
        if index in by_index:
            raise _bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        _check_assignment(image, brokers, replication_factor)
        replication_factor = len(brokers)
        by_index[index] = tuple(brokers)
    if sorted(by_index) != list(range(len(by_index))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _placed(image: ClusterImage, topic: NewTopic, settings: Settings, random: Random) -> Iterator[tuple[int, ...]]:
    copies, count = topic.replication_factor, topic.num_partitions
    if copies < DEFAULT or copies == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < DEFAULT or count == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    return _place(
        image,
        settings.number("num.partitions") if count == DEFAULT else count,
        settings.number("default.replication.factor") if copies == DEFAULT else copies,
        random,
    )


def _place(image: ClusterImage, count: int, copies: int, random: Random) -> Iterator[tuple[int, ...]]:
    try:
        return place([image.brokers[i] for i in sorted(image.brokers)], count, copies, random)
    except TooFewBrokers as error:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from error


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _check_assignment(image: ClusterImage, brokers: Sequence[int], replication_factor: int | None) -> None:
    if not brokers:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker in sorted(brokers):
        if broker not in image.brokers:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker == previous:
            raise _bad_assignment(f"The manual partition assignment includes the broker {broker} more than once.")
        previous = broker
    if replication_factor is not None and len(brokers) != replication_factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def _new_partition(image: ClusterImage, replicas: tuple[int, ...], index: int, aliveness: Aliveness) -> PartitionState:
    isr = tuple(broker for broker in replicas if image.brokers[broker].is_active)
    if not isr:
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
    brokers = [image.brokers[replica] for replica in replicas]
    return PartitionState(
        isr[0],
        0,
        replicas,
        isr,
        controller_epoch=image.controller_epoch,
        leader_broker_epoch=aliveness.elected_in(image.brokers[isr[0]]),
        directories=tuple(map(default_directory, brokers)) if any(broker.log_dirs for broker in brokers) else (),
    )


def delete_topics(
    image: ClusterImage,
    references: Sequence[TopicReference],
    settings: Settings,
    *,
    at_once: int = MAX_PARTITIONS_DELETED_AT_ONCE,
) -> Decision[DeletedTopic]:
    """Each reply has both name and id of a topic that was found. `at_once`: partitions that one transaction can end."""
    replies = []
    gone: dict[str, Topic] = {}
    repeated = _repeated_references(image, references)
    for reference in _answered_references(references):
        name = image.topic_names.get(reference.id) if reference.name is None else reference.name
        topic = None if name is None else image.topics.get(name)
        failure: Failure | None = None
        if reference in repeated:
            failure = Failure(ErrorCode.INVALID_REQUEST, repeated[reference])
        elif not settings.flag("delete.topic.enable"):
            failure = Failure(ErrorCode.TOPIC_DELETION_DISABLED)
        elif topic is None:
            by_name = reference.name is not None
            failure = Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            gone[topic.name] = topic
        replies.append(
            DeletedTopic(reference.name, reference.id, failure)
            if topic is None
            else DeletedTopic(topic.name, topic.id, failure)
        )
    if not gone:
        return Decision((), image, replies)
    operations: list[Operation] = []
    cuts: list[int] = []
    for topic in gone.values():
        steps = topic_deletion(topic, at_once)
        start = len(operations)
        operations += steps.operations
        cuts += [start, *(start + cut for cut in steps.cuts)]
    return Decision(operations, image.without_topics(gone), replies, cuts[1:])


def _answered_references(references: Iterable[TopicReference]) -> Iterator[TopicReference]:
    """What is named twice is answered once, as in Kafka (`ControllerApis.deleteTopics`)."""
    seen: set[TopicReference] = set()
    for reference in references:
        is_valid = (reference.name is None) == (reference.id != ZERO_UUID)
        if not is_valid or reference not in seen:
            yield reference
        seen.add(reference)


def _repeated_references(image: ClusterImage, references: Collection[TopicReference]) -> dict[TopicReference, str]:
    """References that are wrong whatever the cluster holds, and why."""
    wrong: dict[TopicReference, str] = {}
    counts = Counter(references)
    named = {reference.name for reference in references if reference.name is not None}
    for reference, count in counts.items():
        if reference.name is not None and reference.id != ZERO_UUID:
            wrong[reference] = "You may not specify both topic name and topic id."
        elif reference.name is None and reference.id == ZERO_UUID:
            wrong[reference] = "Neither topic name nor id were specified."
        elif count > 1:
            wrong[reference] = "Duplicate topic name." if reference.name is not None else "Duplicate topic id."
        elif reference.name is None and image.topic_names.get(reference.id) in named:
            wrong[reference] = "The provided topic name maps to an ID that was already supplied."
    return wrong


class Deletion(NamedTuple):
    """Operations that delete a topic, and the places between them where a transaction may end."""

    operations: Sequence[Operation]
    cuts: Sequence[int]


def topic_deletion(topic: Topic, at_once: int = MAX_PARTITIONS_DELETED_AT_ONCE) -> Deletion:
    """All nodes of a topic; for many nodes, a marker of their deletion."""
    path = TopicNode.path(topic.name)
    operations: list[Operation] = []
    cuts: list[int] = []
    marked = len(topic.partitions) > at_once
    if marked:
        operations.append(Create(DeletionNode.path(topic.name), b""))
    written = [index for index, state in enumerate(topic.partitions) if state.leader_epoch != NEVER_LED]
    for index in written:
        node = PartitionNode.path(topic.name, index)
        cuts.append(len(operations))
        operations += [Delete(node), Delete(node.removesuffix("/state"))]
    if written:
        operations.append(Delete(f"{path}/partitions"))
    operations += [Delete(path), Delete(ConfigNode.topic_path(topic.name))]
    if marked:
        operations.append(Delete(DeletionNode.path(topic.name)))
    return Deletion(operations, cuts if marked else ())


def create_partitions(
    image: ClusterImage,
    topics: Sequence[MorePartitions],
    random: Random,
    *,
    validate_only: bool = False,
    aliveness: Aliveness = BY_SESSIONS,
) -> Decision[GrownTopic]:
    """One reply for every distinct name."""
    steps = create_partitions_in_steps(image, topics, random, validate_only=validate_only, aliveness=aliveness)
    return drained(steps)


def create_partitions_in_steps(
    image: ClusterImage,
    topics: Sequence[MorePartitions],
    random: Random,
    *,
    validate_only: bool = False,
    aliveness: Aliveness = BY_SESSIONS,
) -> Steps[Decision[GrownTopic]]:
    """`create_partitions`, yielding now and then: thousands may be added."""
    counts = Counter(topic.name for topic in topics)
    operations: list[Operation] = []
    cuts: list[int] = []
    grown: list[Topic] = []
    replies = []
    for topic in {topic.name: topic for topic in topics}.values():
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            found = image.topics.get(topic.name)
            if found is None or topic.name in image.topics_in_deletion:
                replies.append(GrownTopic(topic.name, Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
                continue
            added = yield from _added_partitions(image, found, topic, random, aliveness)
        except KafkaError as error:
            replies.append(GrownTopic(topic.name, Failure(error.code, error.message)))
            continue
        larger = found._replace(partitions=found.partitions + added)
        start = len(operations)
        operations.append(Put(TopicNode.path(found.name), TopicNode.encode(found.id, larger.partitions)))
        for first in range(0, len(added), STEP_PARTITIONS):
            if first:
                yield
            some = added[first : first + STEP_PARTITIONS]
            operations += partition_creation(found.name, len(found.partitions) + first, some)
        cuts.extend(range(start or 1, len(operations)))
        grown.append(larger)
        replies.append(GrownTopic(topic.name, None))
    if validate_only or not grown:
        return Decision((), image, replies)
    return Decision(operations, image.with_topics(grown), replies, cuts)


def _added_partitions(
    image: ClusterImage, found: Topic, topic: MorePartitions, random: Random, aliveness: Aliveness
) -> Steps[tuple[PartitionState, ...]]:
    present = len(found.partitions)
    more = topic.total - present
    if more == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if more < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {found.name} currently has {present} partition(s); {topic.total} would not be an increase.",
        )
    if more > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    copies = len(found.partitions[0].replicas)
    replicas: Iterable[tuple[int, ...]]
    if topic.assignments is None:
        replicas = _place(image, more, copies, random)
    else:
        if len(topic.assignments) != more:
            only = "only " if len(topic.assignments) < more else ""
            raise _bad_assignment(
                f"Attempted to add {more} additional partition(s), but {only}{len(topic.assignments)} assignment(s) "
                "were specified."
            )
        for brokers in topic.assignments:
            _check_assignment(image, brokers, copies)
        replicas = map(tuple, topic.assignments)
    added = []
    for number, brokers in enumerate(replicas):
        if number and number % STEP_PARTITIONS == 0:
            yield
        added.append(_new_partition(image, brokers, present + number, aliveness))
    return tuple(added)
