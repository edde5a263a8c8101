"""`odradek acls explain`: the decision of a broker, with the roles that a certificate or a token gives."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.authorization.acl_index import grouped
from odradek.authorization.authorizer import Authorizer, Settings
from odradek.cli.arguments.errors import UsageError
from odradek.cli.catalog import load, parser_of
from odradek.cli.commands import acls
from odradek.wire.acls import AclBinding, AclOperation, ResourceType

OF_ANALYSTS = AclBinding(ResourceType.TOPIC, "orders", "Role:analysts", AclOperation.READ)


@pytest.fixture(autouse=True)
def _acls_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer = Authorizer(Settings(frozenset(("Role:operators",))))
    authorizer.update(grouped([OF_ANALYSTS]))

    def run_admin(_arguments: Any, _work: Any) -> Authorizer:
        return authorizer

    monkeypatch.setattr(acls, "run_admin", run_admin)


def explained(words: str) -> int:
    return acls.run(parser_of("acls", load("acls")).parse(words.split()))


def test_role_of_a_proof_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained("explain User:dora read topic:orders --role guests --role analysts") == 0
    assert capsys.readouterr().out == (
        "User:dora (roles: Role:analysts, Role:guests) from 127.0.0.1: READ on TOPIC orders is allowed\n"
        "by: Allow Role:analysts READ on TOPIC:LITERAL:orders from *\n"
    )


def test_operation_is_denied_without_the_role() -> None:
    assert explained("explain User:dora read topic:orders") == 1


def test_role_may_be_named_as_a_principal_and_be_a_super_user(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained("explain User:dora delete topic:orders --role Role:operators") == 0
    assert "the principal is one of super.users" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["explain User:d read topic:o --role *", "list --role analysts"])
def test_role_that_counts_for_nothing_is_an_error(words: str) -> None:
    with pytest.raises(UsageError, match="role"):
        explained(words)
