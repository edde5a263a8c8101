"""What the two ways to measure the followers of a metadata log share: the cluster's snapshot, settings and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from bench.scale import BROKERS, directory_of, records_of
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.controller.elections import ElectionType
from odradek.controller.record_controller import RecordController, Recorded
from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.metadata.features import CONTROLLER_FEATURES, METADATA_VERSION
from odradek.metadata.image import Broker, Endpoint
from odradek.metadata.kraft.record_versions import versioned
from odradek.metadata.kraft.registration_records import broker_record
from odradek.wire.messages import cluster_metadata as md
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

CLUSTER: Final = "4L6g3nShT-eMCtK--X86sw"
SNAPSHOT: Final = CheckpointId(10_000_000, 1)
CONTROLLER: Final = 1000
LEVELS: Final = {each.name: each.max_level for each in CONTROLLER_FEATURES}


def cluster_records(partitions: int, port: int) -> list[Any]:
    """The records of a cluster whose partitions are led by their second replica, so that an election changes them."""
    found: list[Any] = [md.FeatureLevelRecord(METADATA_VERSION, LEVELS[METADATA_VERSION])]
    listener = {"PLAINTEXT": Endpoint("127.0.0.1", port, "PLAINTEXT")}
    features = {name: (0 if name != METADATA_VERSION else 7, level) for name, level in LEVELS.items()}
    found += [
        broker_record(Broker(each, 1, None, listener, features=features, log_dirs=(directory_of(each),)))
        for each in range(BROKERS)
    ]
    for record in records_of(partitions):
        if isinstance(record, md.PartitionRecord):
            record.leader = record.replicas[1]
        found.append(record)
    return found


def snapshot_of(partitions: int, port: int) -> bytes:
    """The file with which all nodes begin. Something must listen on the port: the brokers' listener."""
    records = versioned(cluster_records(partitions, port), LEVELS[METADATA_VERSION])
    return bytes(encode_checkpoint(SNAPSHOT, records, timestamp_ms=1, last_timestamp_ms=1))


def properties_of(node_id: int, folder: Path, controller: str) -> dict[str, str]:
    """What a node is configured with; `controller` is the HOST:PORT of the only one."""
    return {
        "node.id": str(node_id),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{CONTROLLER}@{controller}",
        "log.dirs": str(folder),
        "broker.session.timeout.ms": "3600000",
        "auto.leader.rebalance.enable": "false",
    }


async def heartbeats(node: ControllerNode) -> None:
    """Let each broker send one: until then the controller looks for its process."""
    for broker in node.parts.controller.image.brokers.values():
        request = BrokerHeartbeatRequest(broker.id, broker.epoch, SNAPSHOT.end_offset, want_fence=False)
        await node.parts.brokers.heartbeat(request, broker.id)


def decision_on(what: str | int, controller: RecordController) -> Recorded[Any]:
    """Elect the first replica of a topic's partition 0, or fence a broker."""
    if isinstance(what, str):
        return controller.elect_leaders(ElectionType.PREFERRED, [(what, 0)])
    return controller.fence_brokers([what])


async def no_proof(_connection: Any, _node: int, _timeout_ms: float) -> None:
    """No login: the listener is PLAINTEXT."""
