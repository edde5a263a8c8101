"""`/debug/stacks` and `/debug/profile`: what a running broker does, for `odradek debug bundle`.

Only programs of this machine are answered. The HTTP listener exists already, and needs neither a file in the data
folder nor the right to send signals. An event loop that does not turn cannot answer: tools such as py-spy look into its
process. Answers have places in the code without the values of variables.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

from odradek.broker.observability.http_messages import HttpRequest, HttpResponse, text_response
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.hosts import host_of_header, is_loopback
from odradek.ports.stacks import MAX_DEPTH, Profile, Stack, current_thread, place_of, sample_thread, thread_stacks

MAX_PROFILE_S: Final = 20.0
"""Longest profile, shorter than the time limit of answers."""
DEFAULT_PROFILE_S: Final = 5.0
MAX_TASK_STACKS: Final = 200
"""Distinct stacks of tasks that an answer has, the most frequent ones."""
_SLICE: Final = 100
"""Tasks that are looked at in one turn of the event loop."""
_LANE: Final = "profile"
_LOCAL_HOSTS: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_MAPPED: Final = "::ffff:"
"""What an IPv6 socket puts before the IPv4 address of its peer."""
_PROXY_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class DebugPages:
    """Stacks and profiles of the event loop that it is made in."""

    __slots__ = ("_clock", "_cpu_s", "_disk", "_is_closed", "_is_profiling", "_thread")

    def __init__(self, disk: Disk, clock: Clock, cpu_s: Callable[[], float]) -> None:
        """`cpu_s` is the processor time of the loop's thread, in seconds."""
        self._disk = disk
        self._clock = clock
        self._cpu_s = cpu_s
        self._thread = current_thread()
        self._is_profiling = False
        self._is_closed = False

    def close(self) -> None:
        """End a profile that is being made."""
        self._is_closed = True

    async def stacks(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /debug/stacks`: what tasks wait for and threads execute."""
        if not is_local(request):
            return _reject()
        counts = await _task_stacks()
        lines = [f"{sum(counts.values())} tasks, {len(counts)} distinct stacks\n"]
        for stack, count in counts.most_common(MAX_TASK_STACKS):
            lines.append(f"tasks: {count}\n{_indented(stack)}\n")
        lines += [f"thread {name}:\n{_indented(stack)}\n" for name, stack in thread_stacks()]
        return text_response(200, "\n".join(lines))

    async def profile(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /debug/profile?seconds=N`: samples of the event loop, as flame graph tools read them."""
        if not is_local(request):
            return _reject()
        try:
            seconds = float(request.query.get("seconds", [str(DEFAULT_PROFILE_S)])[-1])
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= MAX_PROFILE_S:
            return text_response(400, f"seconds: a number above 0, at most {MAX_PROFILE_S:g}, expected")
        if self._is_profiling:
            return text_response(429, "a profile is being made already")
        self._is_profiling = True
        began, cpu_before = self._clock.monotonic(), self._cpu_s()
        try:
            found = await self._disk.run(_LANE, sample_thread, self._thread, seconds, lambda: self._is_closed)
        finally:
            self._is_profiling = False
        elapsed = max(self._clock.monotonic() - began, 1e-9)
        return text_response(200, profile_text(found, elapsed, self._cpu_s() - cpu_before))


def profile_text(profile: Profile, elapsed_s: float, cpu_s: float) -> str:
    """Samples in the folded form of flame graphs, the most frequent stacks first, below a comment. Pure."""
    head = (
        f"# event loop: {profile.samples} samples in {elapsed_s:.1f} s, processor {cpu_s:.2f} s "
        f"({cpu_s / elapsed_s:.0%}); stacks that end in the loop's own code are idle time"
    )
    return "\n".join((head, *(f"{';'.join(stack)} {count}" for stack, count in profile.stacks.items())))


def is_local(request: HttpRequest) -> bool:
    """Whether a program of this machine asks, neither through a proxy nor from a page of a foreign name."""
    if any(name in request.headers for name in _PROXY_HEADERS):
        return False
    name = host_of_header(request.headers.get("host", ""))
    return name in _LOCAL_HOSTS and is_loopback(request.peer_host.removeprefix(_MAPPED))


def _reject() -> HttpResponse:
    return text_response(403, "only programs of this machine are answered, at http://127.0.0.1 and without a proxy")


async def _task_stacks() -> Counter[Stack]:
    """Stacks of all tasks. In slices: a broker with many clients has many tasks."""
    found: Counter[Stack] = Counter()
    for number, task in enumerate(list(asyncio.all_tasks())):
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        if not task.done():
            found[tuple(_awaits(task.get_coro()))] += 1
    return found


def _awaits(awaited: Any) -> Iterable[str]:
    """The places at which a coroutine and what it awaits are suspended, the outermost first."""
    for _ in range(MAX_DEPTH):
        frame: FrameType | None = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            if awaited is not None:
                yield type(awaited).__name__
            return
        yield place_of(frame.f_code, frame.f_lineno)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _indented(stack: Stack) -> str:
    return "\n".join(f"  {place}" for place in stack)
