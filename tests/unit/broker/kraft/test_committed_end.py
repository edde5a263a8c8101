"""What a broker takes for the end of the committed part of the metadata log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.cluster.peers import Purpose
from odradek.broker.cluster.remote_controller import ControllerAway
from odradek.broker.kraft.committed_end import CommittedEnd
from odradek.kraft.metadata_observer import LogEnd
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic


def answer(high_watermark: int, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    part = FetchResponsePartition(error_code=error, high_watermark=high_watermark)
    return FetchResponse(responses=[FetchResponseTopic(partitions=[part])])


class AController:
    """Gives these answers, in their order."""

    def __init__(self, *answers: FetchResponse | ControllerAway) -> None:
        self.answers = list(answers)
        self.asked: list[FetchRequest] = []

    async def __call__(self, request: Any, _kind: type, _timeout_ms: float, _purpose: Purpose) -> Any:
        self.asked.append(request)
        found = self.answers.pop(0)
        if isinstance(found, ControllerAway):
            raise found
        return found


def found(controller: AController) -> int:
    follower = cast(Any, SimpleNamespace(epoch=9, log_end=LogEnd(40, 8)))
    return asyncio.run(CommittedEnd(controller, follower, "cluster", 1000).find())


def test_leader_of_the_known_epoch_is_asked_at_once() -> None:
    """Its answer does not wait for records, and it takes the question for that of no replica."""
    controller = AController(answer(42))
    assert found(controller) == 42
    (request,) = controller.asked
    (part,) = request.topics[0].partitions
    assert (part.current_leader_epoch, part.fetch_offset, part.last_fetched_epoch) == (9, 40, 8)
    assert (request.cluster_id, request.replica_state.replica_id, request.max_wait_ms) == ("cluster", -1, 0)


@pytest.mark.parametrize(
    "first",
    [
        answer(-1),
        answer(50, ErrorCode.FENCED_LEADER_EPOCH),
        FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
        ControllerAway("nothing answers"),
    ],
)
def test_question_without_an_answer_is_repeated(first: FetchResponse | ControllerAway) -> None:
    """A leader that has committed nothing in its epoch does not know what its predecessors have committed."""
    controller = AController(first, answer(42))
    assert found(controller) == 42
