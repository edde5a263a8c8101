"""Stacks and profiles of an event loop, for programs of this machine only."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.observability.debug_pages import DebugPages, is_local, profile_text
from odradek.broker.observability.http_messages import HttpRequest, HttpResponse
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.stacks import MAX_DEPTH, Profile, current_thread, sample_thread

HERE = {"host": "127.0.0.1:9644"}


def asked(peer: str = "127.0.0.1", **query: str) -> HttpRequest:
    return HttpRequest("/debug", {name: [value] for name, value in query.items()}, HERE, peer)


def with_pages(use: Callable[[DebugPages], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        disk = SystemDisk()
        pages = DebugPages(disk, SystemClock(), lambda: 0.0)
        try:
            async with asyncio.timeout(60):
                return await use(pages)
        finally:
            pages.close()
            disk.close()

    return asyncio.run(run())


def text_of(response: HttpResponse) -> str:
    return b"".join(response.body).decode()


@pytest.mark.parametrize(
    ("peer", "headers", "expected"),
    [
        ("127.0.0.1", HERE, True),
        ("::1", {"host": "[::1]:9644"}, True),
        ("::ffff:127.0.0.1", {"host": "localhost"}, True),
        ("192.0.2.1", HERE, False),
        ("fe80::1%eth0", HERE, False),
        ("", HERE, False),
        ("127.0.0.1", {"host": "attacker.example:9644"}, False),
        ("127.0.0.1", {}, False),
        ("127.0.0.1", HERE | {"x-forwarded-for": "192.0.2.1"}, False),
        ("127.0.0.1", HERE | {"forwarded": "for=192.0.2.1"}, False),
    ],
)
def test_only_programs_of_this_machine_are_answered(peer: str, headers: dict[str, str], expected: bool) -> None:
    assert is_local(HttpRequest("/debug/stacks", {}, headers, peer)) is expected


def test_debug_pages_reject_other_machines() -> None:
    async def use(pages: DebugPages) -> list[int]:
        return [(await page(asked("192.0.2.1"))).status for page in (pages.stacks, pages.profile)]

    assert with_pages(use) == [403, 403]


async def _inner(release: asyncio.Event, password: str) -> None:
    await release.wait()
    assert password


async def _outer(release: asyncio.Event) -> None:
    await _inner(release, "planted-4711")


def test_stacks_show_what_tasks_await_without_values() -> None:
    async def use(pages: DebugPages) -> str:
        release = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(_outer(release))
            await asyncio.sleep(0)
            found = text_of(await pages.stacks(asked()))
            release.set()
        return found

    text = with_pages(use)
    (stack,) = [each for each in text.split("\n\n") if each.startswith("tasks: 3\n")]
    assert [line.split()[-1] for line in stack.splitlines()[1:]] == ["_outer", "_inner", "Event.wait", "FutureIter"]
    assert "planted" not in text
    assert "thread MainThread" in text


def test_profile_shows_where_the_loop_spends_its_time() -> None:
    async def busy(stop: asyncio.Event) -> None:
        while not stop.is_set():
            sum(range(20_000))
            await asyncio.sleep(0)

    async def use(pages: DebugPages) -> str:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(busy(stop))
            found = text_of(await pages.profile(asked(seconds="0.3")))
            stop.set()
        return found

    head, *stacks = with_pages(use).splitlines()
    assert head.startswith("# event loop: ")
    assert "busy" in stacks[0]


@pytest.mark.parametrize("seconds", ["0", "-1", "21", "nan", "inf", "x", ""])
def test_profile_of_a_wrong_length_is_rejected(seconds: str) -> None:
    assert with_pages(lambda pages: pages.profile(asked(seconds=seconds))).status == 400


def test_one_profile_is_made_at_a_time_and_ends_at_the_stop() -> None:
    async def use(pages: DebugPages) -> tuple[int, int]:
        first = asyncio.create_task(pages.profile(asked(seconds="20")))
        await asyncio.sleep(0)
        second = await pages.profile(asked(seconds="20"))
        pages.close()
        return (await first).status, second.status

    assert with_pages(use) == (200, 429)


def test_profile_is_written_as_folded_stacks() -> None:
    text = profile_text(Profile(4, {("a:1 f", "b:2 g"): 3, ("a:1 f",): 1}), 2.0, 0.5)
    head, *stacks = text.splitlines()
    assert head.startswith("# event loop: 4 samples in 2.0 s, processor 0.50 s (25%); ")
    assert stacks == ["a:1 f;b:2 g 3", "a:1 f 1"]


def test_deep_stacks_are_cut() -> None:
    ready, stop = threading.Event(), threading.Event()
    found: list[int] = []

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            found.append(current_thread())
            ready.set()
            stop.wait(60)

    thread = threading.Thread(target=descend, args=(2 * MAX_DEPTH,))
    thread.start()
    assert ready.wait(60)
    profile = sample_thread(found[0], 0.05, lambda: False)
    stop.set()
    thread.join()
    assert {len(stack) for stack in profile.stacks} == {MAX_DEPTH}
    assert str(Path.home()) not in str(profile.stacks)


def test_sampling_ends_with_the_thread() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert sample_thread(thread.ident or 0, 60, lambda: False) == Profile(0, {})
