"""Answers to clients with few rights, beside those of Apache Kafka with the same users and ACLs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import hypothesis
import hypothesis.strategies as st
import pytest

from odradek.api.requests.declarations import DECLARATIONS, Audience
from odradek.wire.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.apis import ApiKey
from tests.integration.acl_probes import GROUP, TOPIC, TRANSACTION, sets_of_rights
from tests.interop.acl_facts import Fact, authorization_of, facts_of
from tests.interop.acl_requests import MADE, Probe, all_probes
from tests.interop.acl_servers import AUDIT, MEMBERS, OPEN_TRANSACTION, SPARE, USERS, Server, apache, odradek

SETS = int(os.environ.get("ODRADEK_ACL_SETS", "32"))
"""Random sets of ACLs; 1,000 take some minutes."""
NOT_LISTED = frozenset((MADE, SPARE, "created"))
"""Topics that come and go: the other broker's image of them may be late."""
Rights = Sequence[AclBinding]
pytestmark = pytest.mark.xdist_group("acl-answers")


class Pair(NamedTuple):
    """Both brokers."""

    ours: Server
    apaches: Server


@pytest.fixture(scope="module")
def pair(java_tools: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    del java_tools  # which skips where Java or Apache Kafka is missing
    folder = tmp_path_factory.mktemp("answers")
    with odradek(folder / "odradek") as bootstrap, apache(folder / "apache") as other:
        yield Pair(Server(bootstrap), Server(other))


def answers(server: Server, user: str) -> list[tuple[Probe, set[Fact]]]:
    """The facts of all answers to a user."""
    server.restore()
    client = server.clients[user]
    names = {topic_id: name for name, topic_id in server.ids.items()}
    found = []
    for probe in all_probes(server.ids, server.tokens):
        answer = client.call(probe.request, probe.version)
        found.append((probe, facts_of(answer, names, NOT_LISTED if probe.lists_all else frozenset())))
    return found


def differences(pair: Pair, rights: Mapping[str, Rights]) -> list[str]:
    """A line for each answer that differs, with the user's ACLs."""
    for server in pair:
        server.set_acls(binding for of_user in rights.values() for binding in of_user)
    found = _differences(pair, rights)
    # Apache Kafka's controller may read an ACL after its broker, which has reported it.
    return [line for line in _differences(pair, rights) if line in found] if found else []


def _differences(pair: Pair, rights: Mapping[str, Rights]) -> list[str]:
    found: dict[str, str] = {}
    for user in USERS[: len(rights)]:
        for (probe, mine), (_, other) in zip(*(answers(server, user) for server in pair), strict=True):
            if probe.is_for_brokers and authorization_of(mine):
                continue
            if probe.creates or probe.changes_voters:
                mine, other = authorization_of(mine), authorization_of(other)
            ours, apaches = (sorted(map(str, facts)) for facts in (mine - other, other - mine))
            if ours or apaches:
                acls = [tuple(map(str, each)) for each in (*rights[user], *rights.get("*", ()))]
                found.setdefault(f"{probe.name}: ours {ours}, Apache's {apaches}", f"{user} {acls}")
    return [f"{difference} ({whose})" for difference, whose in found.items()]


def test_table_has_every_api_of_clients() -> None:
    tokens = dict.fromkeys(("admin", "zoe"), b"")
    ids = dict.fromkeys((TOPIC, AUDIT, SPARE), bytes(16))
    asked = {probe.request.API_KEY for probe in all_probes(ids, tokens)}
    of_clients = {key for key, each in DECLARATIONS.items() if each.audience is Audience.CLIENTS}
    no_rights = {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
    assert of_clients - no_rights <= asked


def test_answers_equal_those_of_apache_kafka(pair: Pair) -> None:
    sets = list(sets_of_rights())
    for first in range(0, len(sets), len(USERS)):
        rights = {
            user: [each._replace(principal=f"User:{user}", host="*") for each in of_user]
            for user, of_user in zip(USERS, sets[first:], strict=False)
        }
        found = differences(pair, rights)
        assert not found, f"{len(found)}:\n" + "\n".join(found)


OPERATIONS = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL",
    ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL",
    ResourceType.CLUSTER: "CREATE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE CLUSTER_ACTION ALL",
    ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE TWO_PHASE_COMMIT ALL",
    ResourceType.DELEGATION_TOKEN: "DESCRIBE ALL",
    ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS ALL",
}
NAMES = {
    ResourceType.TOPIC: (TOPIC, AUDIT, "o", "ord", "a", "missing", "m", "__consumer_offsets", SPARE),
    ResourceType.GROUP: (GROUP, MEMBERS, "b", "mem", "other"),
    ResourceType.TRANSACTIONAL_ID: (TRANSACTION, OPEN_TRANSACTION, "t", "other"),
    ResourceType.DELEGATION_TOKEN: ("none",),
    ResourceType.USER: ("User:zoe", "User:admin", "User:"),
}


@st.composite
def rights_of(draw: st.DrawFn, principal: str, most: int = 7) -> list[AclBinding]:
    """Random ACLs of a principal."""
    found = []
    for _ in range(draw(st.integers(0, most))):
        kind = draw(st.sampled_from([*OPERATIONS, ResourceType.TOPIC, ResourceType.GROUP]))
        operation = AclOperation[draw(st.sampled_from(OPERATIONS[kind].split()))]
        name, pattern = CLUSTER_NAME, PatternType.LITERAL
        if kind is not ResourceType.CLUSTER:
            name = draw(st.sampled_from((*NAMES[kind], "*")))
            pattern = draw(st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED))) if name != "*" else pattern
        permission = draw(st.sampled_from((AclPermissionType.ALLOW,) * 3 + (AclPermissionType.DENY,)))
        host = draw(st.sampled_from(("*", "*", "127.0.0.1", "127.0.0.2")))
        found.append(AclBinding(kind, name, principal, operation, permission, host, pattern))
    return found


WORLDS = st.fixed_dictionaries({user: rights_of(f"User:{user}") for user in USERS} | {"*": rights_of("User:*", 2)})


@hypothesis.settings(
    max_examples=-(-SETS // len(USERS)),
    derandomize=True,
    database=None,
    phases=(hypothesis.Phase.generate,),
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(rights=WORLDS)
def test_answers_equal_those_of_apache_kafka_on_random_acls(pair: Pair, rights: dict[str, Rights]) -> None:
    found = differences(pair, rights)
    assert not found, f"{len(found)}:\n" + "\n".join(found)
