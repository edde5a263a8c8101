"""The nodes that Kafka's brokers and controller keep in ZooKeeper: where each lies and what it holds.

Each class is one kind of node, with its path and the two directions of its content. The layout and the JSON are those
of Kafka's `ZkData`, so a tree that Kafka 3.x wrote can be read. What cannot be read raises CorruptNode.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from odradek.metadata.image import ANY, Broker, ClientEntity, Endpoint, PartitionState
from odradek.ports.store import StoreError

Assignments = Sequence[tuple[int, ...]]

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
"""Its version grows with every registration of a broker; it is the registration's epoch."""
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS = "/config/client-metrics"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
FEATURES = "/feature"
TOPIC_DELETIONS = "/admin/delete_topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CLUSTER_KEY = "/cluster/secret"
"""By which brokers prove to each other that they are of this cluster; ours, Kafka's layout has none."""
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

DEFAULT_ENTITY = "<default>"


class CorruptNode(StoreError):
    """A node holds what no Kafka wrote; the text names its path."""


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise CorruptNode(f"{path}: {error!r}") from error


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def id_text(raw: bytes) -> str:
    """Kafka's text form of a UUID: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def id_bytes(text: str) -> bytes:
    """ValueError unless the text stands for 16 bytes."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a UUID")
    return raw


class BrokerNode:
    """Ephemeral: a registered broker. `epoch` is ours; ZooKeeper's is the transaction id of the node."""

    @staticmethod
    def is_of_odradek(path: str, data: bytes) -> bool:
        """Whether Odradek wrote it: Apache Kafka's registrations have no `epoch`."""
        with _reading(path):
            return "epoch" in json.loads(data)

    @staticmethod
    def path(broker_id: int) -> str:
        """The path of a broker's registration."""
        return f"{BROKER_IDS}/{broker_id}"

    @staticmethod
    def encode(broker: Broker, timestamp_ms: int, machine: str = "") -> bytes:
        """The content of a registration, with the time at which it was made, and the machine if it is to be known."""
        plain = next((e for e in broker.endpoints.values() if e.security_protocol == "PLAINTEXT"), None)
        content: dict[str, object] = {
            "version": 5,
            "host": plain.host if plain is not None else None,
            "port": plain.port if plain is not None else -1,
            "jmx_port": -1,
            "timestamp": str(timestamp_ms),
            "endpoints": [f"{name}://{_bracketed(e.host)}:{e.port}" for name, e in broker.endpoints.items()],
            "listener_security_protocol_map": {name: e.security_protocol for name, e in broker.endpoints.items()},
            "features": {},
            "epoch": broker.epoch,
        }
        if broker.rack is not None:
            content["rack"] = broker.rack
        if broker.unclean:
            content["unclean"] = True
        if machine:
            content["machine"] = machine
        return _json(content)

    @staticmethod
    def machine_of(path: str, data: bytes) -> str:
        """The machine in a registration; empty if it says none. Raises CorruptNode."""
        with _reading(path):
            return str(json.loads(data).get("machine", ""))

    @staticmethod
    def decode(path: str, data: bytes) -> Broker:
        """The broker in a registration. Raises CorruptNode."""
        with _reading(path):
            content = json.loads(data)
            protocols = content.get("listener_security_protocol_map", {})
            endpoints = {}
            for text in content["endpoints"]:
                name, _, address = text.partition("://")
                host, _, port = address.rpartition(":")
                endpoints[name] = Endpoint(host.strip("[]"), int(port), protocols.get(name, name))
            broker_id = int(path.rpartition("/")[2])
            epoch, unclean = int(content.get("epoch", 0)), bool(content.get("unclean", False))
            return Broker(broker_id, epoch, content.get("rack"), endpoints, unclean=unclean)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class TopicContent(NamedTuple):
    """The content of a topic's node; partitions that are not reassigned are absent in `adding` and `removing`."""

    id: bytes | None
    replicas: tuple[tuple[int, ...], ...]
    adding: Mapping[int, tuple[int, ...]]
    removing: Mapping[int, tuple[int, ...]]


class TopicNode:
    """Which brokers hold which partition of a topic (version 3 of its JSON has the topic's id)."""

    @staticmethod
    def path(topic: str) -> str:
        """The path of a topic."""
        return f"{TOPICS}/{topic}"

    @staticmethod
    def encode(topic_id: bytes, partitions: Sequence[PartitionState]) -> bytes:
        """The content for a topic with these partitions."""
        return _json(
            {
                "version": 3,
                "topic_id": id_text(topic_id),
                "partitions": {str(i): list(p.replicas) for i, p in enumerate(partitions)},
                "adding_replicas": {
                    str(i): list(p.adding_replicas) for i, p in enumerate(partitions) if p.adding_replicas
                },
                "removing_replicas": {
                    str(i): list(p.removing_replicas) for i, p in enumerate(partitions) if p.removing_replicas
                },
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> TopicContent:
        """The replicas of all partitions. Raises CorruptNode."""
        with _reading(path):
            content = json.loads(data)
            by_index = _by_partition(content["partitions"])
            replicas = tuple(by_index[i] for i in range(len(by_index)))
            text = content.get("topic_id")
            return TopicContent(
                id_bytes(text) if text else None,
                replicas,
                _by_partition(content.get("adding_replicas", {})),
                _by_partition(content.get("removing_replicas", {})),
            )


def _by_partition(content: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(replicas) for index, replicas in content.items()}


class PartitionNode:
    """Leader and in-sync replicas of a partition. The node's version is the partition epoch.

    `elr` and `leader_broker_epoch` are ours; Kafka ignores what it does not know.
    """

    @staticmethod
    def path(topic: str, partition: int) -> str:
        """The path of a partition's state."""
        return f"{TOPICS}/{topic}/partitions/{partition}/state"

    @staticmethod
    def encode(state: PartitionState) -> bytes:
        """The content for a state; replicas are in the topic's node."""
        return _encoded_state(
            state.controller_epoch, state.leader, state.leader_epoch, state.isr, state.elr, state.leader_broker_epoch
        )

    @staticmethod
    def decode(path: str, data: bytes, version: int, replicas: tuple[int, ...]) -> PartitionState:
        """The state of a partition with these replicas. Raises CorruptNode."""
        try:
            return _partition_state(data, version, replicas)
        except Exception:
            with _reading(path):
                raise


@lru_cache(maxsize=4096)
def _encoded_state(
    controller_epoch: int,
    leader: int,
    leader_epoch: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    leader_broker_epoch: int,
) -> bytes:
    """Encoded once for all partitions in the same state: those of a new topic are in one of a few."""
    content: dict[str, object] = {
        "controller_epoch": controller_epoch,
        "leader": leader,
        "version": 1,
        "leader_epoch": leader_epoch,
        "isr": list(isr),
    }
    if elr:
        content["elr"] = list(elr)
    if leader_broker_epoch >= 0:
        content["leader_broker_epoch"] = leader_broker_epoch
    return _json(content)


@lru_cache(maxsize=4096)
def _partition_state(data: bytes, version: int, replicas: tuple[int, ...]) -> PartitionState:
    """One object for all partitions in the same state: in a large cluster most are in one of a few."""
    content = json.loads(data)
    return PartitionState(
        content["leader"],
        content["leader_epoch"],
        replicas,
        tuple(content["isr"]),
        version,
        controller_epoch=content["controller_epoch"],
        elr=tuple(content.get("elr", ())),
        leader_broker_epoch=int(content.get("leader_broker_epoch", -1)),
    )


class ConfigNode:
    """What was set for a topic, a broker, all brokers or a group."""

    @staticmethod
    def topic_path(topic: str) -> str:
        """The path of a topic's configurations."""
        return f"{TOPIC_CONFIGS}/{topic}"

    @staticmethod
    def broker_path(broker: str) -> str:
        """Of a broker id as text; the empty one stands for all brokers."""
        return f"{BROKER_CONFIGS}/{broker or DEFAULT_ENTITY}"

    @staticmethod
    def group_path(group_id: str) -> str:
        """The path of a group's configurations."""
        # A group's name may hold slashes and anything else: it is written as ZooKeeper's clients write user names.
        return f"{GROUP_CONFIGS}/{sanitized(group_id)}"

    @staticmethod
    def client_metrics_path(name: str) -> str:
        """The path of a subscription to client metrics."""
        return f"{CLIENT_METRICS}/{sanitized(name)}"

    @staticmethod
    def client_path(entity: ClientEntity) -> str:
        """Of quotas and credentials; those of a user's client lie below the user's."""
        if entity.ip is not None:
            return f"{IP_CONFIGS}/{_entity(entity.ip)}"
        if entity.user is None:
            return f"{CLIENT_CONFIGS}/{_entity(entity.client_id or ANY)}"
        user = f"{USER_CONFIGS}/{_entity(entity.user)}"
        return user if entity.client_id is None else f"{user}/clients/{_entity(entity.client_id)}"

    @staticmethod
    def client_entity(path: str) -> ClientEntity | None:
        """What `client_path` made the path of; None for other nodes."""
        for top, kind in ((USER_CONFIGS, "user"), (CLIENT_CONFIGS, "client_id"), (IP_CONFIGS, "ip")):
            if path.startswith(top + "/"):
                parts = path[len(top) + 1 :].split("/")
                if len(parts) == 1:
                    return ClientEntity(**{kind: _named(parts[0])})
                if kind == "user" and len(parts) == 3 and parts[1] == "clients":
                    return ClientEntity(_named(parts[0]), _named(parts[2]))
        return None

    @staticmethod
    def encode(configs: Mapping[str, str]) -> bytes:
        """The content for these configurations."""
        return _json({"version": 1, "config": dict(configs)})

    @staticmethod
    def decode(path: str, data: bytes) -> dict[str, str]:
        """The configurations in a node; values that are not text are left out. Raises CorruptNode."""
        if not data:
            return {}
        with _reading(path):
            configs: dict[str, Any] = json.loads(data)["config"]
            return {name: value for name, value in configs.items() if isinstance(value, str)}


def _entity(name: str) -> str:
    return DEFAULT_ENTITY if name == ANY else sanitized(name)


def _named(part: str) -> str:
    return ANY if part == DEFAULT_ENTITY else desanitized(part)


def sanitized(name: str) -> str:
    """Kafka's `Sanitizer`: percent-encoding of all but letters, digits, '.', '_' and '-'."""
    from urllib.parse import quote

    return quote(name, safe="").replace("~", "%7E")


def desanitized(name: str) -> str:
    """The name that `sanitized` encoded."""
    from urllib.parse import unquote

    return unquote(name)


class FeatureNode:
    """The finalized levels of features. The node's version, which grows with every change, is the epoch less one."""

    @staticmethod
    def encode(levels: Mapping[str, int]) -> bytes:
        """The content for these levels."""
        return _json({"version": 2, "status": 1, "features": dict(levels)})

    @staticmethod
    def decode(data: bytes) -> dict[str, int]:
        """Also of version 1 (Kafka 2.7 to 3.2), which had ranges of levels."""
        with _reading(FEATURES):
            found: Mapping[str, Any] = json.loads(data)["features"]
            return {
                name: int(level["max_version_level"] if isinstance(level, dict) else level)
                for name, level in found.items()
            }


class DeletionNode:
    """Its presence says that the topic is to be deleted."""

    @staticmethod
    def path(topic: str) -> str:
        """The path of the mark for a topic."""
        return f"{TOPIC_DELETIONS}/{topic}"


class ControllerNode:
    """Ephemeral: the broker that created it is the controller."""

    @staticmethod
    def is_of_odradek(data: bytes) -> bool:
        """Whether Odradek may have written it: a controller of Kafka 3.4 and later writes version 2, KRaft's too."""
        with _reading(CONTROLLER):
            return int(json.loads(data)["version"]) == 1

    @staticmethod
    def encode(broker_id: int, timestamp_ms: int) -> bytes:
        """The content for a controller that was elected at this time."""
        return _json({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})

    @staticmethod
    def decode(data: bytes) -> int:
        """The id of the controller's broker. Raises CorruptNode."""
        with _reading(CONTROLLER):
            return int(json.loads(data)["brokerid"])


class ControllerEpochNode:
    """The epoch of the newest election."""

    @staticmethod
    def encode(epoch: int) -> bytes:
        """The content for an epoch."""
        return str(epoch).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        """The epoch. Raises CorruptNode."""
        with _reading(CONTROLLER_EPOCH):
            return int(data)


class ClusterIdNode:
    """The id of the cluster, written by its first broker."""

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        """The content for an id."""
        return _json({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        """The id. Raises CorruptNode."""
        with _reading(CLUSTER_ID):
            return str(json.loads(data)["id"])


class ClusterSecretNode:
    """Persistent: the secret that the brokers of a cluster share, never changed in place."""

    @staticmethod
    def encode(secret: bytes) -> bytes:
        """Raises nothing; the content is JSON, as that of Kafka's nodes."""
        return _json({"version": "1", "secret": secret.hex()})

    @staticmethod
    def decode(data: bytes) -> bytes:
        """Raises CorruptNode."""
        with _reading(CLUSTER_KEY):
            return bytes.fromhex(json.loads(data)["secret"])


class ProducerIdBlock(NamedTuple):
    """Producer ids that a broker may hand out: both ends belong to it."""

    broker_id: int
    first: int
    last: int


class ProducerIdBlockNode:
    """The newest block of producer ids that a broker was given."""

    @staticmethod
    def encode(block: ProducerIdBlock) -> bytes:
        """The content for a block."""
        content = {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
        return _json(content)

    @staticmethod
    def decode(data: bytes) -> ProducerIdBlock:
        """The block. Raises CorruptNode."""
        with _reading(PRODUCER_ID_BLOCK):
            content = json.loads(data)
            return ProducerIdBlock(content["broker"], int(content["block_start"]), int(content["block_end"]))
