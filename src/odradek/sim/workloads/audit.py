"""The audit topic beside the workload of rights: what brokers lose with their memory, and what the topic has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from odradek.broker.audit.assembly import Audit
from odradek.broker.lifecycle import Broker
from odradek.client.consumer.consumer import Consumer
from odradek.metadata.image import AUDIT_TOPIC
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.audit import parse_event
from odradek.sim.workloads.access import PASSWORDS
from odradek.sim.workloads.clients import CONSUMER_OPTIONS
from odradek.sim.world.hosts import EPOCH_MS, BrokerHost, ClientHost, World

_SMALL_QUEUE: Final = "4000"
_POLL_MS: Final = 1_000


def broker_settings(world: World) -> Mapping[str, str]:
    """Settings of the audit; with some seeds a queue that overflows when the topic cannot be written."""
    settings = {
        "odradek.audit.topic.enable": "true",
        "odradek.audit.topic.replication.factor": "3",
        "odradek.audit.topic.min.isr": "2",
    }
    if random.Random(f"{world.seed}:audit").random() < 0.2:
        settings["odradek.audit.queue.bytes"] = _SMALL_QUEUE
    return settings


def watch(host: BrokerHost) -> None:
    """Note what the broker has not written when its process ends."""

    def ended(broker: Broker) -> None:
        found = _audit_of(broker)
        if found is not None:
            _note_left(host.world, found)

    host.watch_ends(ended)


def _note_left(world: World, audit: Audit) -> None:
    queue = audit.queue
    world.history.audit.left += [parse_event(each.value, EPOCH_MS) for each in queue.waiting()]
    world.history.audit.lost[audit.trail.instance] = queue.lost
    if len(queue):
        world.mark("audit events lost with their broker")
    if queue.lost:
        world.mark("audit events lost by a full queue")


async def read_topic(host: ClientHost) -> None:
    """Wait until all brokers have written what they have, and read the topic."""
    world = host.world
    audit = world.history.audit
    audit.passwords = PASSWORDS
    partition = TopicPartition(AUDIT_TOPIC, 0)
    async with Consumer(**host.options(**CONSUMER_OPTIONS)) as consumer:
        while not audit.known_until:
            found = [_audit_of(each.broker) for each in world.brokers]
            if any(each is None or len(each.queue) for each in found):
                await asyncio.sleep(0.2)
                continue
            audit.known_until = world.now()
            audit.lost.update((each.trail.instance, each.queue.lost) for each in found if each is not None)
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.assign([partition])
        while await consumer.position(partition) < end:
            audit.topic += [parse_event(record.value, EPOCH_MS) for record in await consumer.poll(_POLL_MS)]
    world.note(f"the audit topic has {len(audit.topic)} events, {len(audit.left)} were lost with their brokers")
    world.mark("audit read")


def _audit_of(broker: Broker | None) -> Audit | None:
    found = None if broker is None else broker.inspect()
    return None if found is None else found.audit
