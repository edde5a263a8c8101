"""Decisions against a naive reading of Kafka's rules, and the rules one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.authorization.acl_index import AclIndex, grouped
from odradek.authorization.decisions import Decision, Reason, Subject, decide, decide_on_any
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

ALICE = Subject("User:alice", "10.0.0.1")
TOPIC = ResourceType.TOPIC
DENY = AclPermissionType.DENY
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL


def acl(name: str, operation: AclOperation, principal: str = "User:alice", **fields: object) -> AclBinding:
    return AclBinding(TOPIC, name, principal, operation, **fields)  # type: ignore[arg-type]


def prefixed(name: str, operation: AclOperation, principal: str = "User:alice", **fields: object) -> AclBinding:
    return acl(name, operation, principal, pattern_type=PatternType.PREFIXED, **fields)


def decision(
    bindings: list[AclBinding], operation: AclOperation, name: str, subject: Subject = ALICE, *, free: bool = False
) -> Decision:
    return decide(AclIndex(grouped(bindings)), subject, operation, TOPIC, name, allow_without_acl=free)


def allowed(bindings: list[AclBinding], operation: AclOperation, name: str, subject: Subject = ALICE) -> bool:
    return decision(bindings, operation, name, subject).is_allowed


def test_literal_acl_allows_only_the_topic_of_its_name() -> None:
    bindings = [acl("orders", READ)]
    assert allowed(bindings, READ, "orders")
    assert not allowed(bindings, READ, "orders2")
    assert not allowed(bindings, WRITE, "orders")


def test_prefixed_acl_allows_topics_that_begin_with_its_name() -> None:
    bindings = [prefixed("or", READ), acl("order", WRITE)]
    assert allowed(bindings, READ, "orders")
    assert allowed(bindings, READ, "or")
    assert not allowed(bindings, READ, "o")


def test_wildcard_resource_matches_every_name() -> None:
    assert allowed([acl("*", READ)], READ, "anything")


def test_prefixed_star_is_no_wildcard() -> None:
    assert not allowed([prefixed("*", READ)], READ, "anything")
    assert allowed([prefixed("*", READ)], READ, "*odd")


def test_wildcard_principal_is_every_user() -> None:
    assert allowed([acl("orders", READ, "User:*")], READ, "orders")


def test_denial_wins_over_every_allowance() -> None:
    bindings = [acl("orders", ALL), prefixed("ord", READ, permission=DENY)]
    assert not allowed(bindings, READ, "orders")
    assert allowed(bindings, WRITE, "orders")


def test_allowed_reads_writes_deletes_alters_imply_describe() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        assert allowed([acl("orders", operation)], DESCRIBE, "orders")
    assert not allowed([acl("orders", AclOperation.CREATE)], DESCRIBE, "orders")


def test_allowed_alter_configs_implies_describe_configs() -> None:
    bindings = [acl("orders", AclOperation.ALTER_CONFIGS)]
    assert allowed(bindings, AclOperation.DESCRIBE_CONFIGS, "orders")
    assert not allowed(bindings, DESCRIBE, "orders")


def test_denied_read_does_not_deny_describe() -> None:
    bindings = [acl("orders", READ, permission=DENY), acl("orders", DESCRIBE)]
    assert allowed(bindings, DESCRIBE, "orders")


def test_host_of_an_acl_is_an_address_a_network_or_any() -> None:
    assert allowed([acl("orders", READ, host="10.0.0.1")], READ, "orders")
    assert not allowed([acl("orders", READ, host="10.0.0.2")], READ, "orders")
    assert allowed([acl("orders", READ, host="10.0.0.0/8")], READ, "orders")
    assert not allowed([acl("orders", READ, host="192.168.0.0/16")], READ, "orders")


def test_default_counts_only_where_no_acl_is_for_the_resource() -> None:
    others = [acl("orders", READ, "User:bob")]
    assert decision(others, READ, "payments", free=True) == Decision(True, Reason.NO_ACL)
    assert decision(others, READ, "orders", free=True) == Decision(False, Reason.NO_MATCH)


def test_acl_of_a_role_is_for_its_members() -> None:
    member = ALICE._replace(roles=frozenset(("Role:analysts",)))
    bindings = [acl("orders", READ, "Role:analysts"), acl("orders", WRITE, "Role:analysts", permission=DENY)]
    assert allowed(bindings, READ, "orders", member)
    assert not allowed([*bindings, acl("orders", WRITE)], WRITE, "orders", member)
    assert not allowed(bindings, READ, "orders")


def test_membership_of_a_role_is_an_acl_on_the_user_of_its_name() -> None:
    def membership(role: str, **fields: object) -> AclBinding:
        return AclBinding(ResourceType.USER, role, "User:alice", ALL, **fields)  # type: ignore[arg-type]

    index = AclIndex(
        grouped(
            [
                membership("Role:analysts"),
                membership("Role:elsewhere", host="10.9.9.9"),
                membership("Role:banned"),
                membership("Role:banned", permission=DENY),
                membership("*"),
                membership("Role:", pattern_type=PatternType.PREFIXED),
            ]
        )
    )
    assert index.roles_of("User:alice", "10.0.0.1") == {"Role:analysts"}
    assert index.roles_of("User:bob", "10.0.0.1") == frozenset()


# --- against a naive procedure ---

NAMES = st.text("ab*", min_size=1, max_size=3)
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:*", "Role:r"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2", "10.0.0.0/30"])
OPERATIONS = st.sampled_from([*AclOperation][2:12])
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES,
    PRINCIPALS,
    OPERATIONS,
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
    HOSTS,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)


def matches_resource(binding: AclBinding, kind: ResourceType, name: str) -> bool:
    if binding.resource_type != kind:
        return False
    if binding.pattern_type == PatternType.PREFIXED:
        return name.startswith(binding.resource_name)
    return binding.resource_name in (name, "*")


def matches_subject(binding: AclBinding, subject: Subject) -> bool:
    in_network = binding.host == "10.0.0.0/30" and subject.address in ("10.0.0.1", "10.0.0.2")
    is_host = binding.host in ("*", subject.address) or in_network
    return is_host and binding.principal in (subject.principal, "User:*", *subject.roles)


def implies(operation: AclOperation, wanted: AclOperation) -> bool:
    if wanted == DESCRIBE and operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        return True
    if wanted == AclOperation.DESCRIBE_CONFIGS and operation == AclOperation.ALTER_CONFIGS:
        return True
    return operation in (wanted, ALL)


def naive(bindings: list[AclBinding], subject: Subject, wanted: AclOperation, name: str, free: bool) -> bool:
    of_resource = [each for each in bindings if matches_resource(each, TOPIC, name)]
    if not of_resource:
        return free
    applying = [each for each in of_resource if matches_subject(each, subject)]
    if any(each.permission == DENY and each.operation in (wanted, ALL) for each in applying):
        return False
    return any(each.permission != DENY and implies(each.operation, wanted) for each in applying)


SUBJECTS = st.builds(
    Subject,
    st.sampled_from(["User:alice", "User:bob"]),
    st.sampled_from(["10.0.0.1", "10.0.0.9"]),
    st.sampled_from([frozenset(), frozenset(("Role:r",))]),
)


@given(st.lists(BINDINGS, max_size=12), SUBJECTS, OPERATIONS.filter(lambda each: each != ALL), NAMES, st.booleans())
def test_decision_equals_a_naive_procedure(
    bindings: list[AclBinding], subject: Subject, wanted: AclOperation, name: str, free: bool
) -> None:
    found = decide(AclIndex(grouped(bindings)), subject, wanted, TOPIC, name, allow_without_acl=free)
    assert found.is_allowed == naive(bindings, subject, wanted, name, free)


@given(st.lists(BINDINGS, max_size=8), SUBJECTS)
@settings(max_examples=200)
def test_any_resource_is_allowed_if_a_naive_search_finds_one(bindings: list[AclBinding], subject: Subject) -> None:
    """Each allowed name, or a longer one that no other ACL names, is tried: one of them is what "any" means."""
    found = decide_on_any(AclIndex(grouped(bindings)), subject, WRITE, TOPIC)
    candidates = {name for each in bindings for name in (each.resource_name, each.resource_name + "zzzz")} | {"zzzz"}
    if any(naive(bindings, subject, WRITE, name, False) for name in candidates - {"*"} if name):
        assert found.is_allowed


def test_any_resource_is_denied_where_a_prefix_covers_the_allowance() -> None:
    def on_any(*bindings: AclBinding) -> bool:
        return decide_on_any(AclIndex(grouped(bindings)), ALICE, WRITE, TOPIC).is_allowed

    assert on_any(acl("orders", WRITE))
    assert not on_any(acl("orders", READ))
    assert not on_any(acl("orders", WRITE), prefixed("ord", WRITE, permission=DENY))
    assert on_any(acl("orders", WRITE), prefixed("orders2", WRITE, permission=DENY))
    assert on_any(prefixed("ord", WRITE), acl("ord", WRITE, permission=DENY))
    assert not on_any(acl("orders", WRITE), acl("*", WRITE, permission=DENY))
    assert on_any(acl("*", WRITE))


@given(st.lists(st.lists(BINDINGS, max_size=6), min_size=2, max_size=4))
def test_changed_index_equals_a_new_one(steps: list[list[AclBinding]]) -> None:
    index = AclIndex()
    for bindings in steps:
        index = AclIndex(grouped(bindings), index)
        fresh = AclIndex(grouped(bindings))
        for name in ("a", "b", "ab", "*", "a*b"):
            for kind in (ResourceType.TOPIC, ResourceType.GROUP):
                assert index.matching(kind, name) == fresh.matching(kind, name) or _same(index, fresh, kind, name)


def _same(index: AclIndex, fresh: AclIndex, kind: ResourceType, name: str) -> bool:
    """Rules hold functions, which compare by identity: the ACLs in them are compared instead."""

    def acls(of: AclIndex) -> list[list[AclBinding]]:
        return [[r.binding for rules in found.values() for r in rules] for found in of.matching(kind, name)]

    return acls(index) == acls(fresh)
