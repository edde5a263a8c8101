import asyncio
import logging

import pytest

from odradek.broker.task_failures import logs_failure

LOGGER = logging.getLogger("odradek.test_task_failures")


def test_only_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("the cause")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(fails()), loop.create_task(asyncio.sleep(0)), loop.create_task(asyncio.sleep(60))]
        for task in tasks:
            task.add_done_callback(logs_failure(LOGGER, "a job failed"))
        tasks[2].cancel()
        await asyncio.wait(tasks)

    asyncio.run(story())
    (record,) = (each for each in caplog.records if each.name == LOGGER.name)
    assert record.getMessage() == "a job failed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the cause"
