"""The access of a connection: super users, remembered decisions, what is reported."""

from __future__ import annotations

from typing import NamedTuple

from odradek.authorization.acl_index import grouped
from odradek.authorization.authorizer import Access, Authorizer, Mode, Question, Settings, right_key
from odradek.authorization.decision_log import acl_text, escaped
from odradek.authorization.decisions import Decision
from odradek.authorization.hosts import is_valid_host
from odradek.ports.hosts import normalized
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC = ResourceType.TOPIC
READ_ORDERS = AclBinding(TOPIC, "orders", "User:alice", READ)


class Reported(NamedTuple):
    name: str
    is_allowed: bool
    quiet: bool


class World:
    """An authorizer, a client and what was reported."""

    def __init__(self, *bindings: AclBinding, settings: Settings = Settings(), is_broker: bool = False) -> None:  # noqa: B008
        self.reported: list[Reported] = []
        self.authorizer = Authorizer(settings, self._report)
        self.authorizer.update(grouped(bindings))
        self.alice = Access(self.authorizer, "User:alice", "10.0.0.1", is_broker=is_broker)

    def _report(self, question: Question, decision: Decision, quiet: bool) -> None:
        self.reported.append(Reported(question.name, decision.is_allowed, quiet))


def test_super_user_may_do_what_is_denied() -> None:
    denied = READ_ORDERS._replace(permission=AclPermissionType.DENY)
    world = World(denied, settings=Settings(frozenset(("User:alice",))))
    assert world.alice.allows(READ, TOPIC, "orders")
    assert world.alice.allows_on_any(WRITE, TOPIC)


def test_role_may_be_a_super_user() -> None:
    member = AclBinding(ResourceType.USER, "Role:admins", "User:alice", AclOperation.ALL)
    world = World(member, settings=Settings(frozenset(("Role:admins",))))
    assert world.alice.allows_cluster(AclOperation.ALTER)


def test_broker_may_do_everything() -> None:
    assert World(is_broker=True).alice.allows_cluster(AclOperation.CLUSTER_ACTION)


def test_resource_without_a_name_is_not_any_resource() -> None:
    world = World(READ_ORDERS)
    assert world.alice.allows_on_any(READ, TOPIC)
    assert not world.alice.allows(READ, TOPIC, "")
    assert world.alice.allows_on_any(READ, TOPIC)


def test_remembered_decisions_are_those_of_the_right_only() -> None:
    world = World(READ_ORDERS)
    assert not world.alice.remembered(right_key(READ, TOPIC))
    assert world.alice.allows(READ, TOPIC, "orders")
    assert not world.alice.allows(READ, TOPIC, "others")
    assert not world.alice.allows(WRITE, TOPIC, "orders")
    known = world.alice.remembered(right_key(READ, TOPIC))
    assert known["orders"] > 0 >= known["others"]
    assert world.alice.remembered(right_key(WRITE, TOPIC))["orders"] <= 0


def test_readable_topic_is_remembered_by_its_id_until_the_acls_change() -> None:
    world = World(READ_ORDERS)
    assert world.alice.may_read("orders", b"id")
    assert not world.alice.may_read("others", b"other")
    assert world.alice.readable_topics() == {"orders": 1, b"id": 1, "others": 0}
    world.authorizer.update({})
    assert not world.alice.readable_topics()
    assert not world.alice.may_read("orders", b"id")


def test_remembered_ids_are_bounded() -> None:
    world = World(READ_ORDERS)
    for number in range(3000):
        assert world.alice.may_read("orders", b"%d" % number)
    assert len(world.alice.readable_topics()) <= 2000


def test_remembered_decisions_end_with_the_acls() -> None:
    world = World(READ_ORDERS)
    assert world.alice.allows(READ, TOPIC, "orders")
    world.authorizer.update({})
    assert not world.alice.remembered(right_key(READ, TOPIC))


def test_decision_is_remembered_until_the_acls_change() -> None:
    world = World(READ_ORDERS)
    for _ in range(3):
        assert world.alice.allows(READ, TOPIC, "orders")
    assert len(world.reported) == 1
    world.authorizer.update({})
    assert not world.alice.allows(READ, TOPIC, "orders")


def test_removed_membership_ends_the_access_of_an_open_connection() -> None:
    member = AclBinding(ResourceType.USER, "Role:analysts", "User:alice", AclOperation.ALL)
    world = World(READ_ORDERS._replace(principal="Role:analysts"), member)
    assert world.alice.allows(READ, TOPIC, "orders")
    world.authorizer.update(grouped([READ_ORDERS._replace(principal="Role:analysts")]))
    assert not world.alice.allows(READ, TOPIC, "orders")


def test_quiet_denial_is_reported_again_when_it_rejects_a_request() -> None:
    world = World()
    for quiet in (True, True, False, False, True):
        assert not world.alice.allows(READ, TOPIC, "orders", quiet=quiet)
    assert [each.quiet for each in world.reported] == [True, False]


def test_audit_mode_allows_and_reports_denials() -> None:
    world = World(settings=Settings(mode=Mode.AUDIT))
    assert world.alice.allows(READ, TOPIC, "orders")
    assert world.reported == [Reported("orders", False, False)]


def test_remembered_decisions_are_bounded() -> None:
    world = World(READ_ORDERS)
    for number in range(5000):
        world.alice.allows(READ, TOPIC, f"t{number}")
    world.alice.allows(READ, TOPIC, "x" * 30_000)
    assert sum(map(len, world.alice._decisions.values())) <= 2000


def test_operations_are_a_bit_field_of_what_is_allowed() -> None:
    world = World(READ_ORDERS)
    assert world.alice.operations(TOPIC, "orders") == 1 << READ | 1 << DESCRIBE
    assert all(each.quiet for each in world.reported)


def test_addresses_are_compared_by_value() -> None:
    assert normalized("::ffff:10.0.0.1") == "10.0.0.1"
    assert normalized("0:0:0:0:0:0:0:1") == normalized("::1")
    assert normalized("fe80::1%eth0") == "fe80::1"
    assert normalized("host.example") == "host.example"


def test_host_with_a_slash_has_to_be_a_network() -> None:
    assert is_valid_host("10.0.0.0/8")
    assert is_valid_host("2001:db8::/32")
    assert is_valid_host("*")
    assert not is_valid_host("10.0.0.0/33")
    assert not is_valid_host("")


def test_line_of_the_log_has_no_line_breaks_of_clients() -> None:
    assert escaped("a\nPrincipal = User:eve") == "a\\nPrincipal = User:eve"
    forged = READ_ORDERS._replace(principal="User:a\nb", pattern_type=PatternType.PREFIXED)
    assert acl_text(forged) == "Allow User:a\\nb READ on TOPIC:PREFIXED:orders from *"


def test_acl_allows_reading_of_the_audit_topic_only() -> None:
    world = World(AclBinding(TOPIC, "*", "User:alice", AclOperation.ALL))
    assert world.alice.allows(READ, TOPIC, "__odradek_audit")
    assert world.alice.allows(DESCRIBE, TOPIC, "__odradek_audit")
    assert not world.alice.allows(WRITE, TOPIC, "__odradek_audit")
    assert not world.alice.allows(AclOperation.DELETE, TOPIC, "__odradek_audit")


def test_audit_topic_is_protected_also_where_denials_are_only_logged() -> None:
    assert not World(settings=Settings(mode=Mode.AUDIT)).alice.allows(WRITE, TOPIC, "__odradek_audit")


def test_super_user_may_write_the_audit_topic() -> None:
    world = World(settings=Settings(frozenset(("User:alice",))))
    assert world.alice.allows(WRITE, TOPIC, "__odradek_audit")
