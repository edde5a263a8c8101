"""Who leads instead: what a client hears that asked the wrong broker, which spares it a Metadata request (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.api.requests.context import RequestContext
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import ErrorCode
from odradek.wire.produce import NodeEndpoint, TopicKey

MOVED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        # Of a write that a deposed leader cannot confirm: it is sent again, best to the new one.
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
)
"""Errors whose answer names the leader."""


def current_leader(context: RequestContext, topic: TopicKey, index: int) -> tuple[int, int] | None:
    """(broker id, leader epoch) of the partition's leader as far as it is known here."""
    image = context.services.image()
    name = image.topic_names.get(topic) if isinstance(topic, bytes) else topic
    state = None if name is None else image.partition(name, index)
    return None if state is None or state.leader < 0 else (state.leader, state.leader_epoch)


def reachable_image(context: RequestContext) -> ClusterImage:
    """The cluster without leaders of which this broker, as their follower, knows that their processes are gone.

    The controller is about to say so. A client that asks now, because its connection broke, hears that there is no
    leader and soon asks again; if it heard of the old one it would look only when its next refresh is due.
    """
    image = context.services.image()
    unreachable = context.services.replica_sessions.rules.unreachable
    if not unreachable:
        return image
    return image.with_brokers({i: broker for i, broker in image.brokers.items() if i not in unreachable})


def endpoints(context: RequestContext, leaders: Iterable[tuple[int, int] | None]) -> list[NodeEndpoint]:
    """Where those leaders are reached over the listener that the client came by, each once."""
    brokers = context.services.image().brokers
    listener = context.session.listener_name
    found = []
    for broker_id in sorted({leader[0] for leader in leaders if leader is not None}):
        broker = brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(listener)
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
