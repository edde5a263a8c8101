"""Answers that may be there at once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from odradek.api.requests.answers import when
from odradek.wire.errors import ErrorCode, KafkaError


def test_answer_that_is_there_needs_no_coroutine() -> None:
    async def main() -> object:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.set_result(1)
        return when(answer, str)

    assert asyncio.run(main()) == "1"


def test_later_answer_and_failure_reach_the_request() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answer, failure = loop.create_future(), loop.create_future()
        waiting: Any = when(answer, str)
        failing: Any = when(failure, str)
        answer.set_result(1)
        failure.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        assert await waiting == "1"
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await failing

    asyncio.run(main())


def test_failure_is_read_when_a_request_is_cancelled_before_it_waits() -> None:
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        answer = loop.create_future()
        waiting: Any = when(answer, str)
        request = asyncio.ensure_future(waiting)
        request.cancel()
        answer.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        with pytest.raises(asyncio.CancelledError):
            await request
        del answer, waiting, request
        gc.collect()

    asyncio.run(main())
    assert not complaints
