"""SCRAM credentials: the keys are those of RFC 7677, and nothing secret is described."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest

from odradek.client.admin.enums import ScramMechanism
from odradek.client.admin.users import ScramUpsertion
from odradek.controller.client_quotas import QuotaChange, QuotaOperation, alter_client_quotas, describe_client_quotas
from odradek.controller.scram_credentials import (
    Deletion,
    Upsertion,
    alter_scram_credentials,
    describe_scram_credentials,
    scram_credential,
)
from odradek.metadata.changes import load_image
from odradek.metadata.image import ClusterImage
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.security.scram import Mechanism, ScramCredential
from odradek.wire.errors import ErrorCode

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512


def upsertion(user: str = "alice", mechanism: int = SHA_256, iterations: int = 4096) -> Upsertion:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", iterations if iterations > 0 else 1)
    return Upsertion(user, mechanism, iterations, b"salt", salted)


def test_the_keys_are_those_of_the_rfc() -> None:
    """RFC 7677, section 3: user "user", password "pencil"."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    image = alter_scram_credentials(ClusterImage(), [], [Upsertion("user", SHA_256, 4096, salt, salted)]).image
    found = scram_credential(image, "user", SHA_256)
    assert found is not None
    assert base64.b64encode(found.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(found.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert ScramCredential.parse(found.text()) == found
    assert scram_credential(image, "user", SHA_512) is None


@pytest.mark.parametrize("text", ["", "salt=,", "salt=_,stored_key=,server_key=,iterations=1", "iterations=x"])
def test_what_is_no_credential(text: str) -> None:
    with pytest.raises(ValueError, match=r"credential|iterations|literal"):
        ScramCredential.parse(text)


def test_who_has_which() -> None:
    image = alter_scram_credentials(
        ClusterImage(), [], [upsertion("b"), upsertion("a"), upsertion("a", SHA_512, 8192)]
    ).image
    everybody = [(user, list(found)) for user, _, found in describe_scram_credentials(image, None)]
    assert everybody == [("a", [(1, 4096), (2, 8192)]), ("b", [(1, 4096)])]
    described = describe_scram_credentials(image, ["b", "c", "c", "d"])
    codes = [(user, failure and failure.code) for user, failure, _ in described]
    assert codes == [("b", None), ("c", ErrorCode.DUPLICATE_RESOURCE), ("d", ErrorCode.RESOURCE_NOT_FOUND)]
    image = alter_scram_credentials(image, [Deletion("a", SHA_256)], []).image
    assert [found for _, _, found in describe_scram_credentials(image, ["a"])] == [[(2, 8192)]]
    image = alter_scram_credentials(image, [Deletion("a", SHA_512)], []).image
    assert [user for user, _, _ in describe_scram_credentials(image, [])] == ["b"]


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (Deletion("unknown", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (Deletion("unknown", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion()._replace(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_is_rejected(alteration: Deletion | Upsertion, code: ErrorCode) -> None:
    deletions = [alteration] if isinstance(alteration, Deletion) else []
    upsertions = [alteration] if isinstance(alteration, Upsertion) else []
    decision = alter_scram_credentials(ClusterImage(), deletions, upsertions)
    (reply,) = decision.replies
    assert reply.failure is not None
    assert (reply.user, reply.failure.code) == (alteration.user, code)
    assert not decision.operations


def test_a_user_is_changed_as_a_whole_or_not_at_all() -> None:
    twice = [upsertion("a"), upsertion("a"), upsertion("b"), upsertion("c", SHA_512), upsertion("c", 7)]
    decision = alter_scram_credentials(ClusterImage(), [], twice)
    codes = {user: failure and failure.code for user, failure in decision.replies}
    assert codes == {"a": ErrorCode.DUPLICATE_RESOURCE, "b": None, "c": ErrorCode.UNSUPPORTED_SASL_MECHANISM}
    assert [user for user, _, _ in describe_scram_credentials(decision.image, None)] == ["b"]


def test_credentials_and_quotas_of_a_user_lie_in_one_node() -> None:
    async def play() -> None:
        store = MemoryStore()
        first = alter_scram_credentials(ClusterImage(), [], [upsertion("é/x")])
        quota = QuotaChange([("user", "é/x")], [QuotaOperation("producer_byte_rate", 5, False)])
        second = alter_client_quotas(first.image, [quota])
        for decision in (first, second):
            await store.apply(decision.operations)
        image = await load_image(store)
        assert scram_credential(image, "é/x", SHA_256) == scram_credential(second.image, "é/x", SHA_256)
        assert describe_client_quotas(image, [], strict=True) == []
        assert describe_client_quotas(image, [], strict=False) == [([("user", "é/x")], {"producer_byte_rate": 5})]

    asyncio.run(play())


def test_debug_output_of_credentials_shows_no_password() -> None:
    stored = Upsertion("u", Mechanism.SCRAM_SHA_256, 4096, b"salt", b"PLANTED")
    given = ScramUpsertion("u", ScramMechanism.SCRAM_SHA_256, "PLANTED")
    assert "PLANTED" not in f"{stored!r} {given!r} {[stored, given]}"
