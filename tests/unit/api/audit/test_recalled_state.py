"""Audited requests whose events show a state that only the broker's own parts know: offsets, log starts, tokens."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.audit.endpoints import audited_endpoint
from odradek.api.audit.selection import Selection
from odradek.api.audit.trail import AuditTrail
from odradek.api.requests.context import RequestContext
from odradek.api.requests.declarations import DECLARATIONS
from odradek.api.requests.registry import Endpoint, Handler
from odradek.api.requests.session import Session
from odradek.groups.events import CommitRequest, FetchedOffset, OffsetToCommit
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey, request_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import delete_groups, delete_records, offset_delete
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from odradek.wire.offset_commit import OffsetCommit
from tests.unit.api.audit.test_trail import Taken


class Parts:
    """Partitions, groups and tokens of a broker. `moved` is elsewhere."""

    def __init__(self) -> None:
        self.offset = 5

    def find(self, topic: str, _index: int) -> Any:
        if topic == "moved":
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return None if topic == "missing" else SimpleNamespace(log=SimpleNamespace(log_start_offset=3))

    def fetch_offsets(self, group: str, _topics: Any, _stable: bool) -> Any:
        if group == "moved":
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result([("t", [FetchedOffset(0, self.offset, -1, "")])])
        return answer

    def commit_offsets(self, request: CommitRequest, reply: Any) -> None:
        self.offset = request.offsets[0].offset
        reply.set_result([ErrorCode.NONE] * len(request.offsets))

    async def all(self) -> Any:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def events(request: Any, handle: Handler, key: ApiKey | None = None) -> list[dict[str, Any]]:
    """What is recorded when the handler serves the request."""

    async def scenario() -> list[dict[str, Any]]:
        taken, parts = Taken(), Parts()
        declared = DECLARATIONS[ApiKey(request.API_KEY) if key is None else key]
        found = Endpoint(declared, request_class(declared.key).decode, handle)
        audited = audited_endpoint(found, AuditTrail(1, lambda: 0, Selection(), taken))
        assert audited is not None
        services: Any = SimpleNamespace(image=ClusterImage, partitions=parts, groups=parts, tokens=parts)
        connection: Any = SimpleNamespace(session=Session("X", "peer"), identifier=1)
        answer = audited.handle(request, RequestContext(services, 2, 1, "t", connection))
        if hasattr(answer, "__await__"):
            await answer
        await asyncio.sleep(0)
        return taken.events

    return asyncio.run(scenario())


def shown(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(each["resource_name"], each.get("before"), each.get("after")) for each in found]


def test_deleted_group_is_recorded_with_the_offsets_that_it_had() -> None:
    names = ["moved", "g"]
    answer = delete_groups.DeleteGroupsResponse(
        results=[delete_groups.DeleteGroupsResponseGroup(name, code) for name, code in zip(names, (16, 0), strict=True)]
    )
    moved, deleted = shown(events(delete_groups.DeleteGroupsRequest(names), lambda *_: answer))
    assert moved == ("moved", {"offsets": {}}, {"offsets": {}})
    assert deleted == ("g", {"offsets": {"t": {"0": 5}}}, None)


def test_deleted_offsets_are_recorded_with_what_they_were() -> None:
    topic = offset_delete.OffsetDeleteRequestTopic("t", [offset_delete.OffsetDeleteRequestPartition(0)])
    done = offset_delete.OffsetDeleteResponseTopic("t", [offset_delete.OffsetDeleteResponsePartition(0, 0)])
    answer = offset_delete.OffsetDeleteResponse(topics=[done])
    found = shown(events(offset_delete.OffsetDeleteRequest("g", [topic]), lambda *_: answer))
    assert found == [("g", {"offsets": {"0": 5}}, {"offsets": {"0": None}})]


def test_deleted_records_are_recorded_with_the_log_start_of_led_partitions() -> None:
    names = ["moved", "missing", "t"]
    request = delete_records.DeleteRecordsRequest(
        [
            delete_records.DeleteRecordsRequestTopic(name, [delete_records.DeleteRecordsRequestPartition(0, 7)])
            for name in names
        ]
    )
    answer = delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsResponseTopic(
                name, [delete_records.DeleteRecordsResponsePartition(0, 7, 0 if name == "t" else 6)]
            )
            for name in names
        ]
    )
    starts = [before for _, before, _ in shown(events(request, lambda *_: answer))]
    assert starts == [None, None, {"partition": 0, "log_start_offset": 3}]


def test_token_is_recorded_without_its_owner_when_tokens_cannot_be_read() -> None:
    answer = RenewDelegationTokenResponse(error_code=61)
    assert shown(events(RenewDelegationTokenRequest(b"mac"), lambda *_: answer)) == [("", None, None)]


@pytest.mark.parametrize(
    ("generation", "member", "is_recorded"),
    [(-1, "", True), (0, "", False), (-1, "m", False)],
    ids=["administrator", "generation", "member"],
)
def test_only_commits_from_outside_of_the_group_are_recorded(generation: int, member: str, is_recorded: bool) -> None:
    replies: list[Any] = []

    def commit(request: OffsetCommit, context: Any) -> None:
        wanted = CommitRequest("g", request.member_id, None, request.generation_id, [OffsetToCommit("t", 0, 9)])
        reply: Any = SimpleNamespace(set_result=replies.append, done=lambda: bool(replies))
        context.services.groups.commit_offsets(wanted, reply)

    found = shown(events(OffsetCommit("g", generation, member, None, -1, []), commit, ApiKey.OFFSET_COMMIT))
    assert replies == [[ErrorCode.NONE]]
    assert found == ([("g", {"offsets": {"0": 5}}, {"offsets": {"0": 9}})] if is_recorded else [])


def test_failed_commit_is_recorded_with_its_error() -> None:
    def commit(_request: OffsetCommit, context: Any) -> None:
        wanted = CommitRequest("moved", "", None, -1, [OffsetToCommit("t", 0, 9)])
        context.services.groups._groups.commit_offsets = lambda _request, reply: reply.set_exception(
            KafkaError(ErrorCode.NOT_COORDINATOR)
        )
        context.services.groups.commit_offsets(wanted, SimpleNamespace(set_exception=lambda _error: None))

    (event,) = events(OffsetCommit("moved", -1, "", None, -1, []), commit, ApiKey.OFFSET_COMMIT)
    assert event["error"] == "NOT_COORDINATOR"
