"""Guards that rely on earlier decisions, and filters of answers that must not record a denial."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.authorization.guards import GUARDS
from odradek.api.authorization.transaction_guards import visible_topics_of_transactions
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from tests.unit.api.test_guards import Access

ORDERS, BILLS = bytes(range(16)), bytes(range(1, 17))
READ_GROUP = (AclOperation.READ, ResourceType.GROUP)


class Remembering(Access):
    """Denies what it is asked, and remembers decisions (1: allowed, -1: denied)."""

    def __init__(self, known: dict[Any, int], *granted: tuple[AclOperation, ResourceType]) -> None:
        super().__init__(*granted)
        self.known = known
        self.loud: list[str] = []

    def remembered(self, _right: int) -> dict[Any, int]:
        return self.known

    def remember_id(self, _right: int, topic_id: bytes) -> None:
        self.known[topic_id] = 1

    def allows(self, operation: AclOperation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        if not quiet:
            self.loud.append(name)
        return super().allows(operation, kind, name, quiet=quiet)


def denied_of(topics: list[Any], known: dict[Any, int]) -> Any:
    """The topics that a commit may not use, given earlier decisions."""
    image = SimpleNamespace(topic_names={ORDERS: "orders", BILLS: "bills"})
    context: Any = SimpleNamespace(services=SimpleNamespace(image=lambda: image), denied=None)
    request: Any = SimpleNamespace(group_id="g", topics=[(topic, ()) for topic in topics])
    access: Any = Remembering(known, READ_GROUP)
    return GUARDS[ApiKey.OFFSET_COMMIT](request, context, access, lambda _request, after: after.denied)


@pytest.mark.parametrize(
    ("topics", "known", "denied"),
    [
        (["orders"], {"orders": 1}, None),
        ([ORDERS], {"orders": 1}, None),
        (["orders", "bills"], {"orders": 1}, {"orders", "bills"}),
        ([ORDERS, BILLS], {"orders": 1}, {ORDERS, BILLS}),
        (["orders"], {}, {"orders"}),
        (["orders"], {"orders": -1}, {"orders"}),
        ([ORDERS], {"orders": -1}, {ORDERS}),
        ([bytes(16)], {"orders": 1}, None),
    ],
)
def test_only_topics_that_were_allowed_need_no_decision(topics: list[Any], known: dict[str, int], denied: Any) -> None:
    assert denied_of(topics, dict(known)) == denied


def test_allowed_topic_is_remembered_by_its_id() -> None:
    known: dict[Any, int] = {"orders": 1}
    assert denied_of([ORDERS], known) is None
    assert known == {"orders": 1, ORDERS: 1}


@pytest.mark.parametrize(
    ("granted", "passes"), [([AclOperation.ALTER], True), ([AclOperation.CLUSTER_ACTION], True), ([], False)]
)
def test_markers_need_alter_or_cluster_action(granted: list[AclOperation], passes: bool) -> None:
    access: Any = Access(*((operation, ResourceType.CLUSTER) for operation in granted))
    context: Any = SimpleNamespace()

    def write() -> object:
        return GUARDS[ApiKey.WRITE_TXN_MARKERS](None, context, access, lambda *_: "written")

    if passes:
        assert write() == "written"
    else:
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            write()


def test_hidden_topics_of_a_transaction_are_no_denials() -> None:
    state = SimpleNamespace(topics=[SimpleNamespace(topic="orders")])
    access: Any = Remembering({})
    context: Any = None
    visible_topics_of_transactions(None, SimpleNamespace(transaction_states=[state]), context, access)
    assert state.topics == []
    assert access.loud == []
