"""Clients that delete records (KIP-107), and what they may expect of it."""

from __future__ import annotations

from odradek.client.admin import Admin
from odradek.client.admin.requests import raise_first
from odradek.client.model import EARLIEST, LATEST
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import Deletion
from odradek.sim.workloads.clients import note_failure
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import KafkaError


async def delete_records(host: ClientHost, admin: Admin, key: TopicPartition, share: float) -> None:
    """Delete a share of the records; replicas that are away learn of it when they are back."""
    world = host.world
    start = raise_first(await admin.list_offsets({key: EARLIEST}))[key].offset
    end = raise_first(await admin.list_offsets({key: LATEST}))[key].offset
    deletion = Deletion((key.topic, key.partition), start + int((end - start) * share), world.now())
    world.history.deletions.append(deletion)
    before = world.stored.states.get(deletion.partition)
    answer = (await admin.delete_records({key: deletion.offset}))[key]
    if isinstance(answer, KafkaError):
        note_failure(host, "delete records", answer)
        return
    world.mark("records deleted")
    state = world.stored.states.get(deletion.partition)
    # Live replicas were waited for. Below min.insync.replicas the next leader may be one that was away (KIP-966), and
    # it may have all that is committed without what was deleted. A leader that was deposed unnoticed
    # waits for the replicas that it believes in.
    if state is None:
        deletion.kept_since = world.now()
    elif before is not None and before.leader_epoch == state.leader_epoch and not before.elr and not state.elr:
        deletion.kept_since = world.now()
        deletion.epoch = state.leader_epoch
