"""One connector at work: its tasks, what each is doing, and the documents that describe them."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from odradek.connect.errors import ConnectError
from odradek.connect.model import Kind, State, Target

logger = logging.getLogger(__name__)

STOP_S: Final = 10.0
"""How long a task may take to end the batch in hand."""
_TRACE_CHARACTERS: Final = 8_000

RunTask = Callable[[int, int, asyncio.Event], Awaitable[None]]
"""(task, number of tasks, event that asks it to stop) -> runs until it is asked, or raises."""


class TaskRun:
    """One task: RUNNING until it fails or is stopped."""

    __slots__ = ("_stopping", "_task", "id", "state", "trace")

    def __init__(self, task_id: int) -> None:
        self.id = task_id
        """Number within the connector, from 0."""
        self.state = State.UNASSIGNED
        """What it is doing."""
        self.trace = ""
        """What it failed with."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, name: str, run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Begin to work."""
        self._stopping = asyncio.Event()
        self.state = State.RUNNING
        self.trace = ""
        self._task = asyncio.create_task(self._run(name, run), name=name)

    async def stop(self) -> None:
        """End the batch in hand, or after a while interrupt it, and wait."""
        self._stopping.set()
        if self._task is None:
            return
        await asyncio.wait((self._task,), timeout=STOP_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _run(self, name: str, run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        try:
            await run(self._stopping)
        except asyncio.CancelledError:
            raise
        except ConnectError as error:
            self._fail(name, error)
        except Exception as error:  # whatever a driver raises fails this task, and not the worker
            self._fail(name, error)
            logger.exception("connector task %s failed in an unexpected way", name)

    def _fail(self, name: str, error: Exception) -> None:
        self.state = State.FAILED
        self.trace = "".join(traceback.format_exception(error))[-_TRACE_CHARACTERS:]
        # data in a message may be no Unicode
        text = str(error).encode(errors="backslashreplace").decode()
        logger.error("connector task %s failed: %s; it stays failed until it is restarted", name, text)


class Connector:
    """A connector by its configuration: started, paused or stopped, and restarted."""

    def __init__(self, name: str, kind: Kind, config: Mapping[str, str], target: Target, worker_id: str) -> None:
        """`worker_id` names this worker in documents, HOST:PORT."""
        self.name = name
        """Its name."""
        self.kind = kind
        """Its direction."""
        self.config = dict(config)
        """Its configuration, secrets as placeholders."""
        self.target = target
        """What the user wants."""
        self.failure = ""
        """Why the connector itself could not be started."""
        self.topics: set[str] = set()
        """Topics that its tasks read or wrote."""
        self.tasks: list[TaskRun] = []
        """Its tasks; none while it is stopped."""
        self._worker_id = worker_id

    def start(self, count: int, run: RunTask) -> None:
        """Start this number of tasks, or keep them paused."""
        self.failure = ""
        self.tasks = [TaskRun(number) for number in range(count)]
        for each in self.tasks:
            if self.target is Target.STARTED:
                self.start_task(each, run)
            else:
                each.state = State.PAUSED

    def start_task(self, task: TaskRun, run: RunTask) -> None:
        """Start one task."""
        count = len(self.tasks)
        task.start(f"{self.name}-{task.id}", lambda stopping: run(task.id, count, stopping))

    async def stop(self) -> None:
        """End all tasks."""
        tasks, self.tasks = self.tasks, []
        await asyncio.gather(*(each.stop() for each in tasks))

    @property
    def state(self) -> State:
        """The connector's own state."""
        if self.failure:
            return State.FAILED
        return {Target.STARTED: State.RUNNING, Target.PAUSED: State.PAUSED, Target.STOPPED: State.STOPPED}[self.target]

    def info(self) -> dict[str, Any]:
        """The document of `GET /connectors/NAME`."""
        return {"name": self.name, "config": self.config, "tasks": self.task_ids(), "type": self.kind}

    def task_ids(self) -> list[dict[str, Any]]:
        """The tasks by name and number."""
        return [{"connector": self.name, "task": each.id} for each in self.tasks]

    def status(self) -> dict[str, Any]:
        """The document of `GET /connectors/NAME/status`."""
        own: dict[str, Any] = {"state": self.state, "worker_id": self._worker_id}
        if self.failure:
            own["trace"] = self.failure
        tasks = [self.task_status(each) for each in self.tasks]
        return {"name": self.name, "connector": own, "tasks": tasks, "type": self.kind}

    def task_status(self, task: TaskRun) -> dict[str, Any]:
        """The document of a task's status."""
        found: dict[str, Any] = {"id": task.id, "state": task.state, "worker_id": self._worker_id}
        if task.trace:
            found["trace"] = task.trace
        return found
