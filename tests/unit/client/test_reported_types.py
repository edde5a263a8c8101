"""What clients report has types: enumerations in the place of numbers and texts that stand for something."""

from __future__ import annotations

import pkgutil
import typing
from importlib import import_module
from types import UnionType
from typing import Any

import pytest

import odradek.client
import odradek.client.admin
from odradek.client.admin.enums import GroupProtocolType, GroupState, GroupType
from odradek.client.blocking import Blocking
from odradek.client.model import ConsumerRecord, TimestampType
from odradek.testing import BlockingBroker
from odradek.wire.errors import ErrorCode

MEANINGS = ("code", "type", "state", "source", "mechanism", "match", "operation", "operations", "kind", "level")
"""Last words of names whose values are one of a few."""
NUMBERS = {"max_version_level": "levels of features are numbers of their own"}
"""Names that end so and are numbers indeed."""


def reports() -> list[type]:
    """Named tuples of the admin client, and of what all clients return."""
    names = [each.name for each in pkgutil.iter_modules(odradek.client.admin.__path__, "odradek.client.admin.")]
    names += ["odradek.client.model", "odradek.client.network.metadata", "odradek.client.share.records"]
    modules = [import_module(each) for each in names]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, tuple) and each.__module__ == module.__name__
    ]


def parts(annotation: Any) -> set[Any]:
    return set(typing.get_args(annotation)) if isinstance(annotation, UnionType) else {annotation}


def test_reports_have_enumerations_for_what_is_one_of_a_few() -> None:
    found = reports()
    assert {"GroupDescription", "ConfigEntry", "PartitionInfo", "ConsumerRecord"} <= {each.__name__ for each in found}
    bare = []
    for kind in found:
        for name, annotation in typing.get_type_hints(kind).items():
            meant = parts(annotation) - {type(None)}
            if name.split("_")[-1] in MEANINGS and name not in NUMBERS and meant <= {int, str}:
                bare.append(f"{kind.__name__}.{name}")
    assert bare == []


def test_protocol_types_of_programs_stay_texts() -> None:
    assert GroupProtocolType.from_wire("consumer") is GroupProtocolType.CONSUMER
    assert GroupProtocolType.from_wire("") is GroupProtocolType.SIMPLE
    own = GroupProtocolType.from_wire("sr")
    assert (own, type(own)) == ("sr", str)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_is_reported_with_enumerations(protocol: str) -> None:
    with BlockingBroker() as broker, Blocking() as blocking:
        topic = broker.topic(partitions=1)
        broker.produce(topic, "x")
        options: Any = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
        consumer: odradek.client.BlockingConsumer[bytes, bytes] = odradek.client.BlockingConsumer(
            topic, blocking=blocking, group_id=topic, group_protocol=protocol, **options
        )
        with consumer, odradek.client.BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            record = next(iter(consumer))
            assert record.timestamp_type is TimestampType.CREATE_TIME
            described = admin.groups.describe([topic])[topic]
            (listed,) = admin.groups.list(protocol_types=[GroupProtocolType.CONSUMER])
            partition = admin.describe_topics([topic])[topic].partitions[0]  # type: ignore[union-attr]
        for each in (described, listed):
            assert each.protocol_type is GroupProtocolType.CONSUMER  # type: ignore[union-attr]
            assert each.state is GroupState.STABLE  # type: ignore[union-attr]
            assert each.type is GroupType(protocol)  # type: ignore[union-attr]
        assert partition.error_code is ErrorCode.NONE


def test_timestamp_type_of_the_broker_s_clock_is_reported() -> None:
    with BlockingBroker({"log.message.timestamp.type": "LogAppendTime"}) as broker:
        topic = broker.topic(partitions=1)
        broker.produce(topic, "x")
        records: list[ConsumerRecord[Any, Any]] = list(broker.records(topic))
        assert [each.timestamp_type for each in records] == [TimestampType.LOG_APPEND_TIME]
