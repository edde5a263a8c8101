"""From the content of a metadata store to a cluster image, and the operations that write a topic or its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.metadata.image import (
    DEFAULT_BROKER,
    NO_LEADER,
    ClientEntity,
    ClusterImage,
    PartitionState,
    Topic,
)
from odradek.metadata.nodes import (
    BROKER_CONFIGS,
    BROKER_IDS,
    CLIENT_METRICS,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DEFAULT_ENTITY,
    FEATURES,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_DELETIONS,
    TOPICS,
    BrokerNode,
    ClusterIdNode,
    ConfigNode,
    ControllerEpochNode,
    ControllerNode,
    FeatureNode,
    PartitionNode,
    TopicNode,
    desanitized,
)
from odradek.ports.store import Create, Delete, MetadataStore, Node, Operation, name_of
from odradek.wire.primitives import ZERO_UUID

# The epoch before the controller: read the other way round, a deposed one could pass for that of its successor's epoch,
# and the successor be refused as another one.
_BELOW_TOPICS = TOPICS + "/"
_PARTS = ("/brokers", "/config", TOPIC_DELETIONS, CONTROLLER_EPOCH, CONTROLLER, "/cluster", FEATURES)


async def read_subtree(store: MetadataStore, path: str) -> Mapping[str, Node]:
    """The node and all below it, by path. Raises StoreError."""
    return await store.subtree(path)


async def load_image(store: MetadataStore, version: int = 0) -> ClusterImage:
    """The whole cluster as the store has it. Raises StoreError, CorruptNode among them."""
    nodes: dict[str, Node] = {}
    for part in _PARTS:
        nodes.update(await read_subtree(store, part))
    return image_of(nodes, version)


async def load_configs(store: MetadataStore, image: ClusterImage) -> ClusterImage:
    """The image with all configurations and features as the store has them now. Raises StoreError, CorruptNode."""
    nodes: dict[str, Node] = {}
    for part in ("/config", FEATURES):
        nodes.update(await read_subtree(store, part))
    fresh = image_of(nodes)
    topics = []
    for name, topic in image.topics.items():
        path = ConfigNode.topic_path(name)
        node = nodes.get(path)
        configs = {} if node is None else ConfigNode.decode(path, node.data)
        if configs != topic.configs:
            topics.append(topic._replace(configs=configs))
    if topics:
        image = image.with_topics(topics)
    return image.with_configs_of(fresh)


def image_of(nodes: Mapping[str, Node], version: int = 0) -> ClusterImage:
    """The image that these nodes make; raises CorruptNode."""
    image = ClusterImage()
    if CLUSTER_ID in nodes:
        image = image.with_cluster_id(ClusterIdNode.decode(nodes[CLUSTER_ID].data))
    epoch = ControllerEpochNode.decode(nodes[CONTROLLER_EPOCH].data) if CONTROLLER_EPOCH in nodes else 0
    if CONTROLLER in nodes:
        image = image.with_controller(ControllerNode.decode(nodes[CONTROLLER].data), epoch)
    else:
        image = image.with_controller(image.controller_id, epoch)
    if FEATURES in nodes:
        image = image.with_features(FeatureNode.decode(nodes[FEATURES].data), nodes[FEATURES].version + 1)
    topics = []
    brokers: dict[str, dict[str, str]] = {}
    clients: dict[ClientEntity, dict[str, str]] = {}
    for path, node in nodes.items():
        top = path[: path.rfind("/")]
        if top != TOPICS and path.startswith(_BELOW_TOPICS):
            continue  # a partition, of which a large cluster has many; its topic reads it
        name = name_of(path)
        if top == TOPICS:
            topics.append(_topic(name, node, nodes))
        elif top == BROKER_IDS:
            image = image.with_broker(BrokerNode.decode(path, node.data))
        elif top == BROKER_CONFIGS:
            brokers[DEFAULT_BROKER if name == DEFAULT_ENTITY else name] = ConfigNode.decode(path, node.data)
        elif top == GROUP_CONFIGS:
            image = image.with_group_configs(desanitized(name), ConfigNode.decode(path, node.data))
        elif top == CLIENT_METRICS:
            image = image.with_client_metrics(desanitized(name), ConfigNode.decode(path, node.data))
        else:
            entity = ConfigNode.client_entity(path)
            if entity is not None:
                clients[entity] = ConfigNode.decode(path, node.data)
    image = image.with_topics(topics)
    if clients:
        image = image.with_client_configs(clients)
    deletions = [name_of(path) for path in nodes if path.startswith(TOPIC_DELETIONS + "/")]
    if deletions:
        image = image.with_topics_in_deletion(deletions)
    # Empty ones, too: tools of Kafka leave the node when the last setting goes, and it cannot be created again.
    image.broker_configs = brokers
    image.version = version
    return image


def _topic(name: str, node: Node, nodes: Mapping[str, Node]) -> Topic:
    content = TopicNode.decode(TopicNode.path(name), node.data)
    partitions = []
    for index, replicas in enumerate(content.replicas):
        path = PartitionNode.path(name, index)
        state_node = nodes.get(path)
        if state_node is None:
            # A controller died between the topic and its state: the partition has no leader yet.
            state = PartitionState(NO_LEADER, -1, replicas, ())
        else:
            state = PartitionNode.decode(path, state_node.data, state_node.version, replicas)
        adding, removing = content.adding.get(index, ()), content.removing.get(index, ())
        if adding or removing:
            state = state._replace(adding_replicas=adding, removing_replicas=removing)
        partitions.append(state)
    config_node = nodes.get(ConfigNode.topic_path(name))
    configs = {} if config_node is None else ConfigNode.decode(f"{TOPIC_CONFIGS}/{name}", config_node.data)
    return Topic(name, content.id or ZERO_UUID, tuple(partitions), configs)


def topic_creation(topic: Topic) -> list[Operation]:
    """All nodes of a new topic."""
    return topic_head_creation(topic) + partition_creation(topic.name, 0, topic.partitions)


def topic_head_creation(topic: Topic) -> list[Operation]:
    """The nodes of a new topic without those of its partitions; configs have one even if none is set, as in Kafka."""
    return [
        Create(ConfigNode.topic_path(topic.name), ConfigNode.encode(topic.configs)),
        Create(TopicNode.path(topic.name), TopicNode.encode(topic.id, topic.partitions)),
    ]


def partition_creation(topic: str, first: int, partitions: Sequence[PartitionState]) -> list[Operation]:
    """Operations that create the nodes of these partitions, the first of which has index `first`."""
    return [
        Create(PartitionNode.path(topic, first + i), PartitionNode.encode(state)) for i, state in enumerate(partitions)
    ]


def deletion(nodes: Mapping[str, Node]) -> list[Operation]:
    """Delete these nodes, those below first."""
    return [Delete(path) for path in sorted(nodes, key=lambda path: path.count("/"), reverse=True)]
