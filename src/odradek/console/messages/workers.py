"""A process that does work which hostile input could make endless: it is ended when an answer takes too long."""

from __future__ import annotations

import asyncio
import sys

from odradek.console.messages.worker_frames import LENGTH


class WorkerEnded(Exception):
    """The process took too long, or ended by itself."""


class Worker:
    """A Python module that runs in a process of its own and answers each frame of bytes by one."""

    __slots__ = ("_module", "_process")

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._module,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async def ask(self, data: bytes, limit_s: float) -> bytes:
        """The answer to a frame. Raises WorkerEnded, after which the process has to be started again."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                process.stdin.write(LENGTH.pack(len(data)) + data)
                await process.stdin.drain()
                (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                return await process.stdout.readexactly(length)
        except TimeoutError:
            await self.end()
            raise WorkerEnded(f"took longer than {limit_s:g} s: it was ended") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.end()
            raise WorkerEnded("ended its process, probably for lack of memory") from None

    async def end(self) -> None:
        """End the process, if it runs."""
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
