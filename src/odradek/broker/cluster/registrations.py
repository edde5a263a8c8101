"""Registered brokers in the store: read, make and end a registration.

Every registration bumps `/brokers/seqid`; its version is the registration's epoch. Who wants to change the node of a
registration checks that version, too: a node that was deleted and made again looks like new.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from odradek.metadata.image import Broker
from odradek.metadata.nodes import BROKER_IDS, BROKER_SEQUENCE, BrokerNode
from odradek.ports.store import BadVersion, Check, Create, Delete, MetadataStore, NodeExists, NoNode, Operation, Put

FIRST_EPOCH = 1

DIRECTORY_EVENTS = "/log_dir_event_notification"
"""A broker of which a directory failed leaves a node here: then the controller asks it about all its replicas."""


class Registrations(NamedTuple):
    """As of one moment at or after `sequence_version`: checking that version shows whether they still hold."""

    sequence_version: int
    brokers: dict[int, Broker]
    machines: dict[int, str]
    """Where brokers run that may have lost records; empty if their registrations do not say so."""


async def read_registrations(store: MetadataStore) -> Registrations:
    """Raises StoreError, CorruptNode among others."""
    sequence = await store.get(BROKER_SEQUENCE)
    nodes = await store.subtree(BROKER_IDS)
    found = {}
    machines = {}
    for path, node in nodes.items():
        if path != BROKER_IDS:
            broker = BrokerNode.decode(path, node.data)
            found[broker.id] = broker
            if broker.unclean:
                machines[broker.id] = BrokerNode.machine_of(path, node.data)
    return Registrations(-1 if sequence is None else sequence.version, dict(sorted(found.items())), machines)


class AlreadyRegistered(NamedTuple):
    """Another live process has this broker's id, or one of its addresses."""

    broker: Broker
    machine: str
    """Where it runs; empty if it is not known."""


async def register(store: MetadataStore, broker: Broker, now_ms: int, machine: str = "") -> Broker | AlreadyRegistered:
    """Register in this session; the broker with the epoch that it got.

    A registration of the same id at the same addresses is a dead process's, since only one process can listen there: it
    is replaced. Addresses of loopback are those of a machine, so that `machine` has to be the same, too. As in Apache
    Kafka (`KafkaServer.createBrokerInfo`), no two brokers have the same address. Raises StoreError.
    """
    path = BrokerNode.path(broker.id)
    while True:
        sequence = await store.get(BROKER_SEQUENCE)
        present = await store.get(path)
        operations: list[Operation] = []
        if present is not None:
            other = BrokerNode.decode(path, present.data)
            there = BrokerNode.machine_of(path, present.data)
            is_elsewhere = bool(machine and there and there != machine)
            if present.session != store.session and (is_elsewhere or other.endpoints != broker.endpoints):
                return AlreadyRegistered(other, there)
            operations.append(Delete(path, present.version))
        elif (neighbour := await _at_same_address(store, broker)) is not None:
            return neighbour
        epoch = FIRST_EPOCH if sequence is None else sequence.version + 1 + FIRST_EPOCH
        registered = broker._replace(epoch=epoch)
        operations += [
            Create(BROKER_SEQUENCE, b"") if sequence is None else Put(BROKER_SEQUENCE, b"", sequence.version),
            Create(path, BrokerNode.encode(registered, now_ms, machine), ephemeral=True),
        ]
        try:
            await store.apply(operations)
        except (BadVersion, NodeExists, NoNode):
            # Another broker registered in between, or the old registration has just ended.
            continue
        return registered


async def _at_same_address(store: MetadataStore, broker: Broker) -> AlreadyRegistered | None:
    """A registered broker of another id that has one of this broker's addresses."""
    addresses = {(each.host, each.port) for each in broker.endpoints.values()}
    for path, node in (await store.subtree(BROKER_IDS)).items():
        if path == BROKER_IDS or path == BrokerNode.path(broker.id):
            continue
        other = BrokerNode.decode(path, node.data)
        if any((each.host, each.port) in addresses for each in other.endpoints.values()):
            return AlreadyRegistered(other, BrokerNode.machine_of(path, node.data))
    return None


async def announce_failed_directory(store: MetadataStore, broker_id: int) -> None:
    """Have the controller ask this broker which of its replicas are offline. Raises StoreError."""
    content = json.dumps({"version": 1, "broker": broker_id, "event": 1}, separators=(",", ":")).encode()
    path = f"{DIRECTORY_EVENTS}/{broker_id}"
    try:
        await store.apply([Create(path, content)])
    except NodeExists:
        # An earlier failure left it and no broker has handled it yet: a new version notifies again.
        try:
            await store.apply([Put(path, content)])
        except NoNode:
            await store.apply([Create(path, content)])


async def burial(store: MetadataStore, broker: Broker) -> Sequence[Operation]:
    """The operations that end this registration, and no later one; none if it has ended. Raises StoreError."""
    sequence = await store.get(BROKER_SEQUENCE)
    path = BrokerNode.path(broker.id)
    node = await store.get(path)
    if sequence is None or node is None or BrokerNode.decode(path, node.data).epoch != broker.epoch:
        return ()
    return (Check(BROKER_SEQUENCE, sequence.version), Delete(path))
