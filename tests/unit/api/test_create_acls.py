"""CreateAcls: valid ACLs are created together, and each entry has its own error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from odradek.api import api_30_create_acls
from odradek.wire.acls import AclBinding
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_acls import CreateAclsRequest, CreateAclsRequestCreation


def create(*creations: CreateAclsRequestCreation) -> tuple[list[int], list[list[AclBinding]]]:
    created: list[list[AclBinding]] = []

    async def note(bindings: list[AclBinding]) -> None:
        created.append(bindings)

    context: Any = SimpleNamespace(services=SimpleNamespace(authorization=SimpleNamespace(create=note)))
    answer = asyncio.run(api_30_create_acls.handle(CreateAclsRequest(list(creations)), context))
    return [each.error_code for each in answer.results], created


GOOD = CreateAclsRequestCreation(2, "t", 3, "User:a", "*", 3, 3)
BAD = CreateAclsRequestCreation(2, "t", 3, "a-name-without-a-type", "*", 3, 3)


def test_valid_acls_are_created_together() -> None:
    codes, created = create(GOOD, BAD, GOOD)
    assert [bool(code) for code in codes] == [False, True, False]
    assert [len(each) for each in created] == [2]
    assert {each.principal for each in created[0]} == {"User:a"}


def test_request_without_a_valid_acl_creates_nothing() -> None:
    codes, created = create(BAD)
    assert codes[0] != ErrorCode.NONE
    assert created == []
