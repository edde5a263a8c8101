"""Tasks continue after a batch's outcome as they do after a future's, within the call if they are alone."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.producer.accumulator import Batch, Compression, Delivery
from odradek.client.producer.outcome_wait import OutcomeWait
from odradek.records.compression import Codec

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="outside")


class Waiting:
    """Tasks that wait for outcomes, each with a context of its own, and what they saw."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.seen: list[str] = []

    async def begin(self, awaited: Any, name: str) -> asyncio.Task[None]:
        async def wait() -> None:
            NAME.set(name)
            await awaited
            self.seen.append(NAME.get())

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        return task

    async def from_a_callback(self, call: Callable[[], None]) -> list[str]:
        """Call as the loop calls what reads a connection; what tasks saw within the call."""
        within: asyncio.Future[list[str]] = self.loop.create_future()

        def callback() -> None:
            call()
            within.set_result(list(self.seen))

        self.loop.call_soon(callback)
        return await within


def batch_of_one_record() -> Batch:
    batch = Batch(("t", 0), 1_000, Compression(Codec.NONE, None), 0.0, 0)
    assert batch.append(7, None, b"x", b"")
    return batch


def test_lone_task_continues_within_the_call_and_in_its_context() -> None:
    async def main() -> None:
        waiting, batch = Waiting(), batch_of_one_record()
        task = await waiting.begin(Delivery(batch, 0, 7), "one")

        def acknowledge() -> None:
            batch.complete(3, -1)
            batch.wake_waiters(at_once=True)

        assert await waiting.from_a_callback(acknowledge) == ["one"]
        assert NAME.get() == "outside"
        await task

    asyncio.run(main())


def test_several_tasks_continue_in_the_next_turn() -> None:
    async def main() -> None:
        waiting, batch = Waiting(), batch_of_one_record()
        tasks = [await waiting.begin(Delivery(batch, 0, 7), name) for name in ("one", "two")]

        def acknowledge() -> None:
            batch.complete(3, -1)
            batch.wake_waiters(at_once=True)

        assert await waiting.from_a_callback(acknowledge) == []
        await asyncio.gather(*tasks)
        assert waiting.seen == ["one", "two"]

    asyncio.run(main())


def test_task_does_not_continue_within_another_task() -> None:
    async def main() -> None:
        waiting, wait = Waiting(), OutcomeWait(asyncio.get_running_loop())
        task = await waiting.begin(wait, "one")
        wait.end(at_once=True)
        assert waiting.seen == []
        await task
        assert waiting.seen == ["one"]

    asyncio.run(main())


def test_wait_that_is_over_does_not_stop_its_task() -> None:
    async def main() -> None:
        wait = OutcomeWait(asyncio.get_running_loop())
        wait.end(at_once=True)
        wait.end(at_once=True)
        await wait

    asyncio.run(main())


def test_wait_that_ends_before_its_task_has_stopped_continues_it() -> None:
    async def main() -> None:
        waiting, wait = Waiting(), OutcomeWait(asyncio.get_running_loop())
        seen: list[object] = []
        wait.end(at_once=True)
        wait.add_done_callback(seen.append, context=contextvars.copy_context())
        assert not seen
        await asyncio.sleep(0)
        assert seen == [wait]
        assert wait.get_loop() is waiting.loop

    asyncio.run(main())


@pytest.mark.parametrize("message", [None, "enough"])
def test_cancelled_task_raises_and_later_outcomes_change_nothing(message: str | None) -> None:
    async def main() -> None:
        waiting, wait = Waiting(), OutcomeWait(asyncio.get_running_loop())
        task = await waiting.begin(wait, "one")
        task.cancel(message)
        assert await waiting.from_a_callback(lambda: wait.end(at_once=True)) == []
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        assert raised.value.args == (() if message is None else (message,))
        assert not waiting.seen
        assert not wait.cancel()

    asyncio.run(main())


def test_timeout_of_a_waiting_task_ends_its_wait() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Delivery(batch_of_one_record(), 0, 7), 0.001)

    asyncio.run(main())


def test_error_of_a_task_that_continues_is_the_tasks_own() -> None:
    async def main() -> None:
        waiting, wait = Waiting(), OutcomeWait(asyncio.get_running_loop())

        async def fail() -> None:
            await wait
            raise ValueError("of the program")

        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        await waiting.from_a_callback(lambda: wait.end(at_once=True))
        with pytest.raises(ValueError, match="of the program"):
            await task

    asyncio.run(main())
