"""Clients that delete records (KIP-107), and what they may expect of it."""

from __future__ import annotations

from odradek.client.admin import Admin
from odradek.client.model import EARLIEST, LATEST, TopicPartition
from odradek.sim.history import Deletion
from odradek.sim.workloads import note_failure
from odradek.sim.world import ClientHost
from odradek.wire.errors import KafkaError


async def delete_records(host: ClientHost, admin: Admin, key: TopicPartition, share: float) -> None:
    """Delete a share of what is there; replicas that are away hear of it when they are back."""
    world = host.world
    start = (await admin.list_offsets({key: EARLIEST}))[key].offset
    end = (await admin.list_offsets({key: LATEST}))[key].offset
    deletion = Deletion((key.topic, key.partition), start + int((end - start) * share), world.now())
    world.history.deletions.append(deletion)
    answer = (await admin.delete_records({key: deletion.offset}))[key]
    if isinstance(answer, KafkaError):
        note_failure(host, "delete records", answer)
        return
    world.mark("records deleted")
    state = world.stored.states.get(deletion.partition)
    # Live replicas were waited for. Below min.insync.replicas the next leader may be one that was away (KIP-966), and
    # it may have all that is committed without what was deleted.
    if state is None or not state.elr:
        deletion.kept_since = world.now()
        deletion.epoch = -1 if state is None else state.leader_epoch
