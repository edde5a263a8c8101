"""Every API is declared once, as what its handler and Kafka's authorization say it is.

`authorization_by_kafka_4_3_0.csv` has what Apache Kafka 4.3.0 asks of the principal of every request, read in its
source and probed in a running broker: resource, operation, condition, and the error or the effect of a denial.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from odradek.api.requests.declarations import DECLARATIONS, Audience, Declaration
from odradek.api.requests.registry import apis_for_clients, endpoint
from odradek.api.requests.rights import Denial, Right
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from tests.unit.house.sources import PACKAGE

FACTS = Path(__file__).with_name("authorization_by_kafka_4_3_0.csv")
WITHOUT_RIGHTS = {17, 18, 36, 39, 40, 71, 72}
"""ApiVersions and telemetry, which every client may send, what proves an identity, and changes of tokens by those they
name.
"""
KRAFT_ONLY = "KRaft controller"
"""In the condition of a fact that holds on a quorum's controllers only."""


def words(name: str) -> str:
    """`ClusterAction` as CLUSTER_ACTION."""
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).lstrip("_")


def facts(key: int) -> list[tuple[AclOperation, ResourceType, str]]:
    """What Kafka asks for: operation, resource, and the effect of a denial in words."""
    with FACTS.open(newline="") as file:
        return [
            (
                AclOperation.ANY if row["operation"].startswith("(") else AclOperation[words(row["operation"])],
                ResourceType[words(row["resource_type"])],
                row["error_or_effect"],
            )
            for row in csv.DictReader(file)
            if int(row["api_key"]) == key and row["operation"] != "-" and KRAFT_ONLY not in row["when"]
        ]


def agrees(right: Right, effect: str) -> bool:
    """Whether a denial has the effect that Kafka's has."""
    if right.denial is Denial.NEXT:
        return effect.startswith(("allowed", "goes on to"))
    if right.denial is Denial.HIDDEN:
        return effect.startswith("hidden")
    if right.denial is Denial.REPORTED:
        return "bit field" in effect or "authorized_operations = 0" in effect
    return right.error.name in effect


OWN_KEYS = range(10_000, 11_000)
"""APIs that Kafka does not have: brokers of Odradek send them to each other."""


served = pytest.mark.parametrize("declared", DECLARATIONS.values(), ids=lambda declared: declared.key.name)


@served
def test_declared_rights_are_those_of_kafka(declared: Declaration) -> None:
    if declared.key in OWN_KEYS:
        assert [right[:2] for right in declared.rights] == [(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)]
        return
    expected = facts(declared.key)
    asked = Counter((right.operation, right.resource) for right in declared.rights)
    assert asked == Counter((operation, resource) for operation, resource, _ in expected)
    for right in declared.rights:
        effects = [effect for operation, resource, effect in expected if (operation, resource) == right[:2]]
        assert any(agrees(right, effect) for effect in effects), f"{right} against {effects}"


@served
def test_declaration_has_a_right_unless_everybody_may_ask(declared: Declaration) -> None:
    assert bool(declared.rights) != (declared.key in WITHOUT_RIGHTS)


@served
def test_declaration_is_served_by_the_module_of_its_name(declared: Declaration) -> None:
    found = endpoint(declared.key)
    assert found is not None
    assert found.declared is declared
    assert found.handle.__module__ == f"odradek.api.{declared.module}"


def test_every_handler_module_is_declared() -> None:
    modules = {path.stem for path in (PACKAGE / "api").glob("api_*.py")}
    assert modules == {declared.module for declared in DECLARATIONS.values()}


def test_requests_between_brokers_are_not_listed_and_never_throttled() -> None:
    for key, declared in DECLARATIONS.items():
        is_for_clients = (
            declared.audience is Audience.CLIENTS and not declared.is_for_sasl and not declared.is_for_telemetry
        )
        assert (key in apis_for_clients()) == is_for_clients
        assert declared.audience is Audience.CLIENTS or not declared.is_throttled


def test_apis_without_declaration_are_neither_served_nor_advertised() -> None:
    """The codecs of KRaft's own APIs are there for its peers; no broker serves them yet."""
    undeclared = {key for key in ApiKey if key not in DECLARATIONS}
    assert undeclared >= {ApiKey.VOTE, ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_REGISTRATION, ApiKey.UPDATE_RAFT_VOTER}
    assert [key for key in undeclared if endpoint(key) is not None] == []
    assert not undeclared & apis_for_clients(with_sasl=True, with_telemetry=True).keys()


def test_declarations_load_no_handler() -> None:
    """A start must not pay for handlers that no client asks for."""
    requests = PACKAGE / "api" / "requests"
    source = (requests / "declarations.py").read_text() + (requests / "registry.py").read_text()
    assert "from odradek.api.api_" not in source
