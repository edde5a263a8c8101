"""Guards of Produce and OffsetCommit: what is rejected as a whole, and what topic by topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.authorization.data_guards import guard_offset_commit, guard_produce
from odradek.authorization.authorizer import Access
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.offset_commit import OffsetCommit
from odradek.wire.produce import ProduceRequest
from tests.unit.log.support import batch, produced

GROUP, TOPIC, TRANSACTIONAL_ID = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID


class Rights:
    """An access that allows the named resources, and forgets its decisions."""

    def __init__(self, *allowed: tuple[ResourceType, str]) -> None:
        self._allowed = allowed
        self.asked: list[tuple[AclOperation, ResourceType, str]] = []

    def remembered(self, _right: int) -> dict[Any, int]:
        return {}

    def remember_id(self, _right: int, _topic_id: bytes) -> None:
        """Nothing is remembered."""

    def allows(self, operation: AclOperation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        self.asked.append((operation, kind, name))
        return (kind, name) in self._allowed


def guarded(guard: Any, request: Any, rights: Rights) -> set[str] | ErrorCode:
    """The topics that the handler learns to be denied, or the error of the whole request."""
    image = ClusterImage("c").with_topics([Topic("t", b"t" * 16, (PartitionState(1, 0, (1,), (1,)),))])
    context: Any = SimpleNamespace(denied=None, services=SimpleNamespace(image=lambda: image))
    access: Access = rights  # type: ignore[assignment]
    try:
        answer = guard(request, context, access, lambda *_: "handled")
    except KafkaError as error:
        return error.code
    assert answer == "handled"
    return set(context.denied or ())


def produce(records: Any, transactional_id: str | None = None) -> ProduceRequest:
    return ProduceRequest(transactional_id, -1, 1000, [("t", [(0, records)]), ("u", [(0, batch())])])


IN_TRANSACTION = produced(7, 0, transactional=True)
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("request_", "allowed", "expected"),
    [
        (produce(batch()), [(TOPIC, "t"), (TOPIC, "u")], set()),
        (produce(batch()), [(TOPIC, "t")], {"u"}),
        (produce(None), [(TOPIC, "t")], {"u"}),
        (produce(IN_TRANSACTION), [(TOPIC, "t")], DENIED),
        (produce(IN_TRANSACTION), [(TOPIC, "t"), (TOPIC, "u")], set()),
        (produce(IN_TRANSACTION, "id"), [(TOPIC, "t"), (TOPIC, "u")], DENIED),
        (produce(IN_TRANSACTION, "id"), [(TRANSACTIONAL_ID, "id"), (TOPIC, "t")], {"u"}),
        (produce(batch(), "id"), [(TOPIC, "t")], {"u"}),
    ],
)
def test_produce_needs_rights_on_its_topics_and_transaction(
    request_: ProduceRequest, allowed: list[tuple[ResourceType, str]], expected: set[str] | ErrorCode
) -> None:
    rights = Rights(*allowed)
    assert guarded(guard_produce, request_, rights) == expected
    assert {operation for operation, _, _ in rights.asked} == {AclOperation.WRITE}


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ([(GROUP, "g"), (TOPIC, "t"), (TOPIC, "u")], set()),
        ([(GROUP, "g"), (TOPIC, "u")], {"t"}),
        ([(TOPIC, "t"), (TOPIC, "u")], ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_commit_needs_rights_on_its_group_and_topics(
    allowed: list[tuple[ResourceType, str]], expected: set[str] | ErrorCode
) -> None:
    request = OffsetCommit("g", 0, "m", None, -1, [("t", []), ("u", [])])
    rights = Rights(*allowed)
    assert guarded(guard_offset_commit, request, rights) == expected
    assert {operation for operation, _, _ in rights.asked} == {AclOperation.READ}
