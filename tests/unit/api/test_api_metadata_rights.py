"""Metadata of a broker with an authorizer: the answer to a repeated request is the one that a first request gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_03_metadata
from odradek.api.data.described_topics import OMITTED
from odradek.api.requests.session import Session
from odradek.authorization.acl_index import grouped
from odradek.authorization.authorizer import Access, Authorizer, Question, Settings
from odradek.authorization.decisions import Decision
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.wire.acls import AclBinding, AclOperation, ResourceType
from odradek.wire.errors import ErrorCode as E
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

IDS = {"seen": bytes(range(16)), "hidden": bytes(range(1, 17))}
SEEN = MetadataRequestTopic(name="seen")
ALLOW = AclBinding(ResourceType.TOPIC, "seen", "User:alice", AclOperation.DESCRIBE)


class World:
    """A connection of a client that may describe one of two topics."""

    def __init__(self, *more: AclBinding) -> None:
        self.denied: list[tuple[AclOperation, ResourceType, bool]] = []
        """Operation, resource, and whether the denial stays out of the log."""
        self.authorizer = Authorizer(Settings(), self._report)
        self.authorizer.update(grouped([ALLOW, *more]))
        self.session = Session("PLAINTEXT", "10.0.0.1")
        self.session.access = Access(self.authorizer, "User:alice", "10.0.0.1")

    def _report(self, question: Question, decision: Decision, quiet: bool) -> None:
        if not decision.is_allowed:
            self.denied.append((question.operation, question.kind, quiet))

    def ask(
        self, *topics: MetadataRequestTopic, version: int = 12, creates: bool = False, **more: Any
    ) -> dict[str | None, tuple[E, int]]:
        """Error and operations by name; `creates`: the request may create missing topics."""
        topics_there = [Topic(name, IDS[name], (PartitionState(1, 0, (1,), (1,)),)) for name in IDS]
        image = ClusterImage("cluster").with_topics(topics_there)
        services = SimpleNamespace(
            authorization=True, audit=None, image=lambda: image, config=SimpleNamespace(flag=lambda _: True),
            unreachable=frozenset(), leadership=None, cluster=SimpleNamespace(has_metadata=True),
        )  # fmt: skip
        context: Any = SimpleNamespace(
            version=version, session=self.session, access=self.session.access, services=services,
            connection=SimpleNamespace(session=self.session),
        )  # fmt: skip
        answer: Any = api_03_metadata.handle(MetadataRequest(list(topics), creates, **more), context)
        out = bytearray()
        answer.encode(out, version)
        found = MetadataResponse.decode(memoryview(out), 0, version)[0].topics
        return {each.name: (E(each.error_code), each.topic_authorized_operations) for each in found}


@pytest.mark.parametrize(
    "topics",
    [
        (SEEN,),
        (SEEN, MetadataRequestTopic(name="hidden")),
        (SEEN, MetadataRequestTopic(name="missing")),
        (SEEN, MetadataRequestTopic(IDS["hidden"], None)),
        (MetadataRequestTopic(IDS["hidden"], "seen"),),
        (MetadataRequestTopic(IDS["seen"], None),),
        (MetadataRequestTopic(name=""),),
    ],
)
def test_repeated_request_gets_the_first_answer(topics: tuple[MetadataRequestTopic, ...]) -> None:
    world = World()
    world.ask(SEEN)
    first = World().ask(*topics)
    assert world.ask(*topics) == first
    assert world.ask(*topics) == first
    assert all(code is not E.NONE for name, (code, _) in first.items() if name != "seen")


def test_repeated_request_is_denied_when_the_acl_is_removed() -> None:
    world = World()
    assert world.ask(SEEN) == world.ask(SEEN) == {"seen": (E.NONE, OMITTED)}
    world.authorizer.update(grouped([]))
    assert world.ask(SEEN) == {"seen": (E.TOPIC_AUTHORIZATION_FAILED, OMITTED)}


def test_repeated_request_for_operations_names_only_those_allowed() -> None:
    world = World()
    world.ask(SEEN)
    found = world.ask(SEEN, version=10, include_topic_authorized_operations=True)
    assert found == {"seen": (E.NONE, 1 << AclOperation.DESCRIBE)}


def test_right_to_create_on_the_cluster_is_denied_without_a_log_line() -> None:
    """Only the right to the topic is reported as missing; a client may have either (`Authorizer.authorize`)."""
    world = World(AclBinding(ResourceType.TOPIC, "missing", "User:alice", AclOperation.DESCRIBE))
    answer = world.ask(MetadataRequestTopic(name="missing"), creates=True)
    assert answer == {"missing": (E.TOPIC_AUTHORIZATION_FAILED, OMITTED)}
    assert set(world.denied) == {
        (AclOperation.CREATE, ResourceType.CLUSTER, True),
        (AclOperation.CREATE, ResourceType.TOPIC, False),
    }
