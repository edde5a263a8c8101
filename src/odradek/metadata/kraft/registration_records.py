"""Brokers and controllers as their registrations. Source: Kafka's `BrokerRegistration`, `ControllerRegistration`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.kraft.errors import CorruptMetadata, UnknownMetadata
from odradek.metadata.image import Broker, ControllerRegistration, Endpoint
from odradek.wire.messages.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterBrokerRecordBrokerEndpoint,
    RegisterBrokerRecordBrokerFeature,
    RegisterControllerRecord,
    RegisterControllerRecordControllerEndpoint,
    RegisterControllerRecordControllerFeature,
)

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By Kafka's numbers (`SecurityProtocol`)."""
FENCE, UNFENCE = 1, -1
"""In a BrokerRegistrationChangeRecord; 0 changes nothing."""


def broker_of(record: RegisterBrokerRecord) -> Broker:
    """The broker that a registration describes. Raises UnknownMetadata for an unknown security protocol."""
    return Broker(
        record.broker_id,
        record.broker_epoch,
        record.rack,
        endpoints_of(record.end_points),
        record.fenced,
        incarnation_id=record.incarnation_id,
        features=features_of(record.features),
        log_dirs=tuple(record.log_dirs),
        cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
        in_controlled_shutdown=record.in_controlled_shutdown,
    )


def broker_record(broker: Broker) -> RegisterBrokerRecord:
    """The registration of a broker."""
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            RegisterBrokerRecordBrokerEndpoint(name, each.host, each.port, protocol_number(each))
            for name, each in broker.endpoints.items()
        ],
        features=[RegisterBrokerRecordBrokerFeature(name, *levels) for name, levels in broker.features.items()],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=list(broker.cordoned_log_dirs) or None,
    )


def changed_broker(before: Broker, record: BrokerRegistrationChangeRecord) -> Broker:
    """The broker after a change of its registration. Raises CorruptMetadata for an unknown change."""
    if record.fenced not in (FENCE, UNFENCE, 0) or record.in_controlled_shutdown not in (0, 1):
        raise CorruptMetadata(
            f"a change of the registration of broker {record.broker_id} has fenced={record.fenced} and "
            f"inControlledShutdown={record.in_controlled_shutdown}"
        )
    cordoned = record.cordoned_log_dirs
    return before._replace(
        fenced=before.fenced if record.fenced == 0 else record.fenced == FENCE,
        in_controlled_shutdown=before.in_controlled_shutdown or record.in_controlled_shutdown == 1,
        log_dirs=tuple(record.log_dirs) if record.log_dirs else before.log_dirs,
        cordoned_log_dirs=before.cordoned_log_dirs if cordoned is None else tuple(cordoned),
    )


def broker_change(before: Broker, after: Broker) -> RegisterBrokerRecord | BrokerRegistrationChangeRecord | None:
    """The shortest record that leads from one registration to the other; None where there is no difference."""
    before = before._replace(unclean=after.unclean)
    if before == after:
        return None
    change = BrokerRegistrationChangeRecord(after.id, after.epoch)
    if after.fenced != before.fenced:
        change.fenced = FENCE if after.fenced else UNFENCE
    change.in_controlled_shutdown = int(after.in_controlled_shutdown and not before.in_controlled_shutdown)
    if after.log_dirs != before.log_dirs:
        change.log_dirs = list(after.log_dirs)
    if after.cordoned_log_dirs != before.cordoned_log_dirs:
        change.cordoned_log_dirs = list(after.cordoned_log_dirs)
    return change if changed_broker(before, change) == after else broker_record(after)


def controller_of(record: RegisterControllerRecord) -> ControllerRegistration:
    """The controller that a registration describes. Raises UnknownMetadata for an unknown security protocol."""
    return ControllerRegistration(
        record.controller_id, record.incarnation_id, endpoints_of(record.end_points), features_of(record.features)
    )


def controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    """The registration of a controller."""
    return RegisterControllerRecord(
        controller.id,
        controller.incarnation_id,
        end_points=[
            RegisterControllerRecordControllerEndpoint(name, each.host, each.port, protocol_number(each))
            for name, each in controller.endpoints.items()
        ],
        features=[
            RegisterControllerRecordControllerFeature(name, *levels) for name, levels in controller.features.items()
        ],
    )


def protocol_number(endpoint: Endpoint) -> int:
    """The security protocol by Kafka's number."""
    return _PROTOCOLS.index(endpoint.security_protocol)


def endpoints_of(rows: Iterable[Any]) -> Mapping[str, Endpoint]:
    """Listeners of a record or a request, by name. Raises UnknownMetadata for an unknown security protocol."""
    found = {}
    for row in rows:
        if not 0 <= row.security_protocol < len(_PROTOCOLS):
            raise UnknownMetadata(f"listener of the unknown security protocol {row.security_protocol}")
        found[row.name] = Endpoint(row.host, row.port, _PROTOCOLS[row.security_protocol])
    return found


def features_of(rows: Iterable[Any]) -> Mapping[str, tuple[int, int]]:
    """The lowest and the highest supported level of each feature, of a record or a request."""
    return {row.name: (row.min_supported_version, row.max_supported_version) for row in rows}
