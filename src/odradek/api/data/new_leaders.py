"""Current leaders for a client that asked the wrong broker, which spares it a Metadata request (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from odradek.api.requests.capabilities import HasImage, HasLeadership, HasNodeId, HasPartitions, HasUnreachable
from odradek.api.requests.context import RequestContext
from odradek.metadata.image import NO_LEADER, ClusterImage
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


class KnowsLeaders(HasImage, HasNodeId, Protocol):
    """What `current_leader` takes of the broker."""


class ShowsLeaders(HasImage, HasLeadership, HasPartitions, HasUnreachable, Protocol):
    """What `reachable_image` takes of the broker."""


def current_leader(context: RequestContext[KnowsLeaders], topic: TopicKey, index: int) -> tuple[int, int] | None:
    """(broker id, leader epoch) of the partition's leader as far as it is known here."""
    image = context.services.image()
    name = image.topic_names.get(topic) if isinstance(topic, bytes) else topic
    state = None if name is None else image.partition(name, index)
    if state is None or state.leader in (NO_LEADER, context.services.node_id):
        # This broker does not send clients to itself while it may not act as the leader.
        return None
    return state.leader, state.leader_epoch


def reachable_image(context: RequestContext[ShowsLeaders]) -> ClusterImage:
    """The cluster without leaders of which this broker, as their follower, knows that their processes are gone.

    Nor does it name this broker as the leader of partitions for which it may not act now.

    The controller is about to say so. A client that asks now, because its connection broke, learns that there is no
    leader and retries soon; with the old leader it would ask again only when its next refresh is due.
    """
    image = context.services.image()
    leadership = context.services.leadership
    if leadership is not None:
        image = leadership.shown(image, context.services.partitions.may_lead)
    unreachable = context.services.unreachable
    if not unreachable:
        return image
    return image.with_brokers({i: broker for i, broker in image.brokers.items() if i not in unreachable})


def endpoints(context: RequestContext[HasImage], leaders: Iterable[tuple[int, int] | None]) -> list[NodeEndpoint]:
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
