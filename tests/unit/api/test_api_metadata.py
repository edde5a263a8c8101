"""Metadata: which topics an answer names, by name and by id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_03_metadata
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.wire.errors import ErrorCode as E
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPIC_ID = bytes(range(16))


def ask(*topics: MetadataRequestTopic, version: int = 13) -> MetadataResponse:
    image = ClusterImage("cluster")
    image.topics = {"t": Topic("t", TOPIC_ID, (PartitionState(1, 0, (1,), (1,)),))}
    image.topic_names = {TOPIC_ID: "t"}
    config = SimpleNamespace(flag=lambda _name: True)
    context: Any = SimpleNamespace(
        version=version,
        connection=SimpleNamespace(listener_name="PLAINTEXT"),
        services=SimpleNamespace(image=lambda: image, config=config),
    )
    answer: Any = api_03_metadata.handle(MetadataRequest(list(topics), version > 3), context)
    out = bytearray()
    answer.encode(out, version)
    return MetadataResponse.decode(memoryview(out), 0, version)[0]


@pytest.mark.parametrize("name", [None, ""])
@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_is_found_by_its_id_whatever_a_client_sends_as_its_name(name: str | None, version: int) -> None:
    (topic,) = ask(MetadataRequestTopic(TOPIC_ID, name), version=version).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (E.NONE, "t", TOPIC_ID)
    assert len(topic.partitions) == 1


def test_an_unknown_id_has_no_name_and_is_not_created() -> None:
    (topic,) = ask(MetadataRequestTopic(b"x" * 16, "")).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (E.UNKNOWN_TOPIC_ID, None, b"x" * 16)


@pytest.mark.parametrize("version", [1, 9, 10, 12])
def test_a_topic_is_found_by_its_name(version: int) -> None:
    (topic,) = ask(MetadataRequestTopic(name="t"), version=version).topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (E.NONE, "t", 1)
    assert topic.topic_id == (TOPIC_ID if version >= 10 else bytes(16))


def test_neither_name_nor_id_is_no_topic() -> None:
    (topic,) = ask(MetadataRequestTopic(name="")).topics
    assert topic.error_code == E.INVALID_TOPIC_EXCEPTION
