"""Conversion, both ways, between parts of the cluster image and the structs of the controller's requests."""

from __future__ import annotations

from odradek.metadata.image import Broker, Endpoint, PartitionState
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from odradek.wire.messages.update_metadata import (
    UpdateMetadataRequestBroker,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestPartitionState,
)

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By their numbers (Kafka's SecurityProtocol)."""


def replica_message(index: int, state: PartitionState, *, is_new: bool) -> LeaderAndIsrRequestPartitionState:
    """A partition in a LeaderAndIsr request; `is_new` if its topic has just been created."""
    return LeaderAndIsrRequestPartitionState(
        partition_index=index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        is_new=is_new,
        eligible_leader_replicas=list(state.elr),
    )


def replica_partition(message: LeaderAndIsrRequestPartitionState) -> PartitionState:
    """`offline_replicas` are not part of the message."""
    return PartitionState(
        message.leader,
        message.leader_epoch,
        tuple(message.replicas),
        tuple(message.isr),
        message.partition_epoch,
        tuple(message.adding_replicas),
        tuple(message.removing_replicas),
        message.controller_epoch,
        tuple(message.eligible_leader_replicas),
    )


def metadata_message(index: int, state: PartitionState) -> UpdateMetadataRequestPartitionState:
    """A partition in an UpdateMetadata request."""
    return UpdateMetadataRequestPartitionState(
        partition_index=index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(state.replicas),
        offline_replicas=list(state.offline_replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        eligible_leader_replicas=list(state.elr),
    )


def metadata_partition(message: UpdateMetadataRequestPartitionState) -> PartitionState:
    """The state in a partition of an UpdateMetadata request."""
    return PartitionState(
        message.leader,
        message.leader_epoch,
        tuple(message.replicas),
        tuple(message.isr),
        message.partition_epoch,
        tuple(message.adding_replicas),
        tuple(message.removing_replicas),
        message.controller_epoch,
        tuple(message.eligible_leader_replicas),
        offline_replicas=tuple(message.offline_replicas),
    )


def broker_message(broker: Broker) -> UpdateMetadataRequestBroker:
    """A broker in an UpdateMetadata request."""
    return UpdateMetadataRequestBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataRequestEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=name,
                security_protocol=_PROTOCOLS.index(endpoint.security_protocol),
            )
            for name, endpoint in broker.endpoints.items()
        ],
        rack=broker.rack,
        epoch=broker.epoch,
    )


def broker_of(message: UpdateMetadataRequestBroker) -> Broker:
    """The broker in an UpdateMetadata request."""
    endpoints = {
        each.listener: Endpoint(each.host, each.port, _PROTOCOLS[each.security_protocol]) for each in message.endpoints
    }
    return Broker(message.id, message.epoch, message.rack, endpoints)
