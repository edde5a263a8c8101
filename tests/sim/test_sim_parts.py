"""The simulated ports by themselves: what a crash leaves, what a network does to bytes, how time goes."""

from __future__ import annotations

import asyncio
import errno
import gc
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from odradek.ports.disk import DiskError, FileRange
from odradek.ports.network import WOULD_BLOCK, Stream
from odradek.sim.checkers.clients import Promises, check, check_lost, check_outcome_order
from odradek.sim.checkers.history import (
    Deletion,
    FinalLog,
    History,
    Looked,
    PowerLoss,
    Reader,
    Seen,
    Send,
    Transaction,
    Violation,
)
from odradek.sim.faults.nemesis import PROFILES
from odradek.sim.world.disk import SECTOR, SimulatedDisk, Volume
from odradek.sim.world.hosts import BrokerHost, SimulatedClock, World
from odradek.sim.world.loop import Process, SimulationDeadlock, new_loop
from odradek.sim.world.network import SimulatedNetwork

# --- machines ---


def test_a_broker_is_not_stopped_in_the_middle_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where faults overlap; nor does `odradek serve` do that."""
    began: list[str] = []

    class SlowBroker:
        def __init__(self, *_: object) -> None:
            self.serves = False

        async def start(self) -> None:
            began.append("start")
            await asyncio.sleep(1)
            self.serves = True

        async def stop(self) -> None:
            began.append("stop")
            assert self.serves

    monkeypatch.setattr("odradek.sim.world.hosts.Broker", SlowBroker)
    loop = new_loop("1")
    host = BrokerHost(World(loop, "1", PROFILES["crash"]), 1, {})

    async def main() -> None:
        for _ in range(2):
            starting = asyncio.ensure_future(host.start())
            await asyncio.sleep(0.5)
            assert host.is_up
            assert not await host.stop()
            assert not host.is_up
            assert not await starting
        assert await host.start()
        assert await host.stop()

    loop.run_until_complete(main())
    loop.close()
    assert began == ["start", "start", "start", "stop"]


# --- time ---


def test_time_jumps_to_the_next_timer() -> None:
    loop = new_loop("1")

    async def main() -> float:
        await asyncio.sleep(3600)
        async with asyncio.timeout(5):
            await asyncio.sleep(1)
        return loop.time()

    assert loop.run_until_complete(main()) == pytest.approx(3601, abs=0.01)


def test_tasks_are_drawn_and_callbacks_keep_their_order() -> None:
    def order(seed: str) -> tuple[list[int], list[int]]:
        loop = new_loop(seed)
        tasks: list[int] = []
        callbacks: list[int] = []

        async def note(number: int) -> None:
            tasks.append(number)

        async def main() -> None:
            for number in range(6):
                loop.call_soon(callbacks.append, number)
            await asyncio.gather(*(note(number) for number in range(6)))

        loop.run_until_complete(main())
        return tasks, callbacks

    seen = {tuple(order(str(seed))[0]) for seed in range(20)}
    assert len(seen) > 10
    assert all(order(str(seed))[1] == list(range(6)) for seed in range(20))
    assert order("7") == order("7")


def test_nothing_left_to_do_is_a_deadlock() -> None:
    loop = new_loop("1")
    with pytest.raises(SimulationDeadlock):
        loop.run_until_complete(loop.create_future())


def test_a_killed_process_does_nothing_more_and_a_paused_one_later() -> None:
    loop = new_loop("1")
    ticks: dict[str, list[float]] = {"dies": [], "waits": []}

    async def tick(name: str) -> None:
        try:
            while True:
                ticks[name].append(loop.time())
                await asyncio.sleep(1)
        finally:
            ticks[name].append(-1.0)

    async def main() -> None:
        dies, waits = Process("dies", "a"), Process("waits", "b")
        for process in (dies, waits):
            loop.create_task(tick(process.name), context=process.context)
        await asyncio.sleep(2.5)
        loop.kill(dies)
        loop.pause(waits, 5)
        await asyncio.sleep(7)

    loop.run_until_complete(main())
    assert [round(at) for at in ticks["dies"]] == [0, 1, 2]
    assert [round(at, 1) for at in ticks["waits"]] == [0.0, 1.0, 2.0, 7.5, 8.5]
    loop.close()


def test_task_that_a_dying_process_creates_never_runs() -> None:
    loop = new_loop("1")
    ran: list[str] = []

    async def late() -> None:
        ran.append("late")

    async def dies(process: Process) -> None:
        loop.kill(process)
        loop.create_task(late())

    async def main() -> None:
        process = Process("dies", "a")
        loop.create_task(dies(process), context=process.context)
        await asyncio.sleep(1)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loop.run_until_complete(main())
        loop.close()
        del loop._graveyard[:]
    assert not ran
    assert not [str(each.message) for each in found]


def test_close_ends_coroutines_that_wait_while_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # other tests may have left what complains when it is collected
    loop = new_loop("1")
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    steps: list[str] = []

    async def last() -> None:
        await asyncio.sleep(1)

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            try:
                await asyncio.gather(last())
            finally:
                steps.append("gathered")
                await asyncio.sleep(1)

    async def main() -> None:
        tasks.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    loop.run_until_complete(main())
    loop.close()
    assert steps == ["gathered"]
    tasks.clear()
    gc.collect()
    assert not complaints


# --- disk ---


def disk_of(volume: Volume, seed: int = 1) -> SimulatedDisk:
    loop = new_loop(str(seed))
    return SimulatedDisk(volume, Process("p", "h"), loop, SimulatedClock(loop), random.Random(seed))


def test_a_power_loss_keeps_what_was_synced_and_a_torn_part_of_the_rest() -> None:
    left = set()
    for seed in range(60):
        volume = Volume()
        disk = disk_of(volume, seed)
        file = disk.open("/f", create=True)
        file.append([b"a" * 100])
        file.sync()
        disk.sync_directory("/")
        file.append([b"b" * 2000])
        assert file.size() == 2100
        volume.power_loss(random.Random(seed))
        data = disk.read_file("/f")
        assert data[:100] == b"a" * 100
        assert set(data[100:]) <= set(b"b\0")
        left.add(len(data))
    assert {100, 2100} < left
    assert any((size % SECTOR) == 0 for size in left)


def test_names_are_lost_unless_their_directory_is_synced() -> None:
    survived = 0
    for seed in range(40):
        volume = Volume()
        disk = disk_of(volume)
        disk.make_directories("/d")
        disk.sync_directory("/")
        disk.open("/d/synced", create=True).sync()
        disk.sync_directory("/d")
        disk.open("/d/new", create=True).sync()
        volume.power_loss(random.Random(seed))
        assert disk.exists("/d/synced")
        survived += disk.exists("/d/new")
    assert 10 < survived < 40


def test_a_rename_is_the_old_or_the_new() -> None:
    outcomes = set()
    for seed in range(40):
        volume = Volume()
        disk = disk_of(volume)
        disk.write_atomic("/f", b"old")
        disk.write_atomic("/f", b"new", sync=False)
        volume.power_loss(random.Random(seed))
        outcomes.add(disk.read_file("/f"))
    assert outcomes == {b"old", b"new", b""}


def test_a_process_crash_loses_nothing_and_its_lock() -> None:
    volume = Volume()
    loop = new_loop("1")
    process = Process("p", "h")
    disk = SimulatedDisk(volume, process, loop, SimulatedClock(loop), random.Random(1))
    disk.open("/f", create=True).append([b"abc"])
    disk.lock("/.lock")
    with pytest.raises(BlockingIOError):
        disk_of(volume).lock("/.lock")
    loop.kill(process)
    with pytest.raises(DiskError):
        disk.read_file("/f")
    later = disk_of(volume)
    later.lock("/.lock")
    assert later.read_file("/f") == b"abc"


def test_a_full_disk() -> None:
    volume = Volume()
    disk = disk_of(volume)
    file = disk.open("/f", create=True)
    volume.capacity = 10
    file.append([b"12345"])
    with pytest.raises(DiskError, match="no space"):
        file.append([b"123456"])
    assert file.size() == 5


def test_process_without_descriptors_keeps_using_its_open_files() -> None:
    volume = Volume()
    disk = disk_of(volume)
    disk.make_directories("/d")
    file = disk.open("/d/a", create=True)
    volume.faults.no_descriptor = 1.0
    calls: list[Callable[[], object]] = [
        lambda: disk.open("/d/a"),
        lambda: disk.read_file("/d/a"),
        lambda: disk.write_atomic("/d/b", b""),
        lambda: disk.list("/d"),
        lambda: disk.sync_directory("/d"),
        lambda: disk.remove_tree("/d"),
        lambda: disk.lock("/d/lock"),
    ]
    for call in calls:
        with pytest.raises(OSError, match="too many open files") as failure:
            call()
        assert failure.value.errno == errno.EMFILE
    assert disk.boot_id() == ""
    assert file.append([b"another"]) == 0
    disk.rename("/d/a", "/d/c")
    disk.make_directories("/d/e")
    assert (volume.faults.injected, volume.faults.refused) == (0, len(calls) + 1)
    volume.faults.no_descriptor = 0.0
    assert disk.list("/d") == ["c", "e"]


# --- network ---


def test_connections_wait_for_descriptors_in_the_order_in_which_they_came() -> None:
    loop = new_loop("1")
    network = SimulatedNetwork(loop)
    server, client = Process("server", "s"), Process("client", "c")
    accepted: list[int] = []

    async def main() -> None:
        listener = network.port_of(server).listen("s", 1, lambda stream: accepted.append(stream.peer_port))
        network.no_descriptor["s"] = 1.0
        port = network.port_of(client)
        for _ in range(3):
            await port.connect("s", 1, 5.0)
        await asyncio.sleep(1)
        assert accepted == []
        network.no_descriptor.clear()
        await asyncio.sleep(1)
        assert len(accepted) == 3
        assert accepted == sorted(accepted)
        network.no_descriptor["s"] = network.no_descriptor["c"] = 1.0
        with pytest.raises(OSError, match="too many open files"):
            await port.connect("s", 1, 5.0)
        network.no_descriptor.pop("c")
        late = await port.connect("s", 1, 5.0)
        await asyncio.sleep(1)
        listener.close()
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            late.receive_into(memoryview(bytearray(1)))

    loop.run_until_complete(main())
    loop.close()


def test_bytes_arrive_in_order_through_cuts_and_short_reads() -> None:
    loop = new_loop("5")
    network = SimulatedNetwork(loop)
    server, client = Process("server", "s"), Process("client", "c")
    received = bytearray()
    streams: list[Stream] = []

    def accept(stream: Stream) -> None:
        streams.append(stream)
        buffer = memoryview(bytearray(100))

        def read() -> None:
            size = stream.receive_into(buffer)
            if size == 0:
                stream.watch_reads(None)
            elif size != WOULD_BLOCK:
                received.extend(buffer[:size])

        stream.watch_reads(read)

    data = random.Random(3).randbytes(20_000)

    async def main() -> None:
        network.port_of(server).listen("s", 1, accept)
        stream = await network.port_of(client).connect("s", 1, 10)
        volume = Volume()
        file = disk_of(volume).open("/f", create=True)
        file.append([data[10_000:]])
        sent = 0
        while sent < len(data):
            if sent < 10_000:
                more = stream.send(data[sent : min(10_000, sent + 700)], True)
            else:
                more = stream.send_file(FileRange(file, sent - 10_000, len(data) - sent))
            if more == WOULD_BLOCK:
                await asyncio.sleep(0.01)
                continue
            sent += more
            if sent > 5_000:
                network.link("c", "s").cut_until = 30.0
        await asyncio.sleep(25)
        assert len(received) < len(data)
        await asyncio.sleep(60)

    loop.run_until_complete(main())
    assert bytes(received) == data


def test_sender_that_fills_the_window_does_not_fragment_its_data() -> None:
    loop = new_loop("5")
    network = SimulatedNetwork(loop)
    server, client = Process("server", "s"), Process("client", "c")
    left = 2_000_000
    received: list[int] = []
    done = loop.create_future()

    def accept(stream: Stream) -> None:
        def write() -> None:
            nonlocal left
            while left and (sent := stream.send(bytes(min(left, 2_000)), False)) != WOULD_BLOCK:
                left -= sent
            stream.watch_writes(write if left else None)

        write()

    async def main() -> None:
        network.port_of(server).listen("s", 1, accept)
        stream = await network.port_of(client).connect("s", 1, 10)
        buffer = memoryview(bytearray(100_000))

        def read() -> None:
            size = stream.receive_into(buffer)
            if size != WOULD_BLOCK:
                received.append(size)
            if sum(received) == 2_000_000:
                stream.watch_reads(None)
                done.set_result(None)

        stream.watch_reads(read)
        await done

    loop.run_until_complete(main())
    assert sum(received[-100:]) > 100 * 1_000, "as large at the end as at the beginning"


def test_peers_of_a_dead_process_learn_of_its_death() -> None:
    loop = new_loop("5")
    network = SimulatedNetwork(loop)
    server, client = Process("server", "s"), Process("client", "c")

    async def main() -> Any:
        network.port_of(server).listen("s", 1, lambda stream: stream.watch_reads(lambda: None))
        stream = await network.port_of(client).connect("s", 1, 10)
        await asyncio.sleep(1)
        loop.kill(server)
        await asyncio.sleep(1)
        with pytest.raises(ConnectionRefusedError):
            await network.port_of(client).connect("s", 1, 10)
        try:
            return stream.receive_into(memoryview(bytearray(10)))
        except ConnectionResetError:
            return 0

    assert loop.run_until_complete(main()) == 0


# --- checkers ---

KEY = ("t", 0)
ALL_KEPT = Promises(frozenset(), False)


def history(*, committed: list[int] | None = None, everything: tuple[int, ...] = (0, 1, 2)) -> History:
    made = History()
    transaction = Transaction("p", 1, 0.0, "committed", 1.0, 2.0)
    made.transactions.append(transaction)
    for number in range(3):
        made.send(Send(b"v%d" % number, "p", KEY, number, 0.5, transaction, "ok", number, 0.9))
    shown = everything if committed is None else committed
    made.final[KEY] = FinalLog(0, 4, [Seen(KEY, n, b"v%d" % n) for n in everything],
                               [Seen(KEY, n, b"v%d" % n) for n in shown], 4)  # fmt: skip
    return made


def found(made: History) -> str:
    with pytest.raises(Violation) as violation:
        check(made, ALL_KEPT)
    return violation.value.invariant


def test_a_sound_history_passes() -> None:
    check(history(), ALL_KEPT)


def test_lost_and_torn_and_duplicated() -> None:
    assert found(history(everything=(0, 2))) == "lost acknowledged write"
    assert found(history(committed=[0, 2])) == "lost committed write"
    torn = history(committed=[0, 2])
    torn.transactions[0].state = "unknown"
    assert found(torn) == "torn transaction"
    twice = history()
    twice.final[KEY].everything.append(Seen(KEY, 3, b"v0"))
    twice.sends[b"v0"].offset = 3
    assert found(twice) in ("duplicate", "one offset, two records")


def sent(*at: float, offsets: tuple[int, ...] = (0, 1, 2)) -> History:
    """Three records without a transaction, acknowledged at these times."""
    made = history()
    for send, when, offset in zip(made.sends.values(), at, offsets, strict=True):
        send.transaction, send.outcome_at, send.offset = None, when, offset
    return made


def test_record_without_offset_is_there_if_an_earlier_one_is() -> None:
    def remaining(*numbers: int, lost_at: float | None = None) -> History:
        made = sent(0.9, 0.9, 0.9, offsets=(0, -1, 2))
        made.final[KEY].everything[:] = [Seen(KEY, number, b"v%d" % number) for number in numbers]
        if lost_at is not None:
            made.power_losses.append(PowerLoss(lost_at, 1))
        return made

    deleted = remaining(2)
    deleted.final[KEY].start = 2
    others = remaining(0, 2)
    others.sends[b"v0"].producer = "q"
    losing = ALL_KEPT._replace(loses_power=True)
    for made, promises in (
        (remaining(0, 1, 2), ALL_KEPT),
        (deleted, ALL_KEPT),
        (others, ALL_KEPT),
        (remaining(0, lost_at=1.0), losing),
        (remaining(0, 2, lost_at=1.0), losing),
    ):
        check_lost(made, promises)
    for made, promises in (
        (remaining(0, 2), ALL_KEPT),
        (remaining(0), ALL_KEPT),
        (remaining(0, 2, lost_at=1.0), ALL_KEPT),
        (remaining(0, 2, lost_at=0.8), losing),
    ):
        with pytest.raises(Violation, match=r"lost acknowledged write: t-0 has .* and lacks "):
            check_lost(made, promises)


def test_hole_after_power_loss_is_found_beside_a_record_without_offset() -> None:
    made = sent(0.9, 0.9, 0.9, offsets=(-1, 1, 2))
    made.final[KEY].everything[:] = [Seen(KEY, 2, b"v2")]
    made.power_losses.append(PowerLoss(1.0, 1))
    with pytest.raises(Violation, match="hole after power loss"):
        check_lost(made, ALL_KEPT._replace(loses_power=True))


def test_restarted_broker_may_acknowledge_a_record_after_the_next() -> None:
    """The process before it wrote the first record. It was sent again before the broker led, the next one after."""

    def ended(at: float, offsets: tuple[int, ...] = (0, 1, 2)) -> History:
        made = sent(5.0, 2.0, 6.0, offsets=offsets)
        made.broker_ends.append(at)
        return made

    check_outcome_order(ended(1.0), ALL_KEPT)
    for made in (ended(0.4), ended(2.1), ended(1.0, (1, 0, 2))):
        with pytest.raises(Violation, match="acknowledged out of order"):
            check_outcome_order(made, ALL_KEPT)


def test_end_of_a_broker_is_in_the_history() -> None:
    loop = new_loop("1")
    world = World(loop, "1", PROFILES["crash"])
    host = BrokerHost(world, 1, {"node.id": "1", "log.dirs": "/data", "listeners": "PLAINTEXT://b1:9092"})
    host.volume.directories["/data"] = host.volume.durable_names["/data"] = None

    async def main() -> None:
        assert await host.start()
        await asyncio.sleep(1)
        host.kill()

    loop.run_until_complete(main())
    assert world.history.broker_ends == [loop.time()]
    loop.close()


def test_deposed_leader_may_acknowledge_after_its_successor() -> None:
    cluster = ALL_KEPT._replace(is_cluster=True)
    check_outcome_order(sent(5.0, 2.0, 6.0), cluster)
    for made, promises in (
        (sent(5.0, 2.0, 6.0), ALL_KEPT),
        (sent(5.0, 2.0, 6.0, offsets=(1, 0, 2)), cluster),
    ):
        with pytest.raises(Violation, match="acknowledged out of order"):
            check_outcome_order(made, promises)


def test_aborted_early_and_skipping_reads() -> None:
    aborted = history()
    aborted.transactions[0].state = "aborted"
    assert found(aborted) == "aborted read"
    early = history()
    early.readers.append(Reader("r", "read_committed", [(0.8, Seen(KEY, 0, b"v0"))]))
    assert found(early) == "pre-committed read"
    skipping = history()
    skipping.readers.append(Reader("r", "read_committed", [(3.0, Seen(KEY, 0, b"v0")), (3.1, Seen(KEY, 2, b"v2"))]))
    assert found(skipping) == "unseen"
    back = history()
    back.readers.append(Reader("r", "read_committed", [(3.0, Seen(KEY, 1, b"v1")), (3.1, Seen(KEY, 0, b"v0"))]))
    assert found(back) == "non-monotonic poll"
    hanging = history()
    hanging.final[KEY].last_stable = 2
    assert found(hanging) == "hanging transaction"


def test_a_next_leader_may_begin_before_what_only_the_last_one_had_deleted() -> None:
    cluster = ALL_KEPT._replace(is_cluster=True)

    def looks(*found: tuple[int, int], deleted_in: int | None = None, final_start: int = 2) -> History:
        """(offset, leader's epoch) of each look. Records below 2 are deleted, which a client learns after the first."""
        made = history()
        made.looks += [Looked(at, at + 0.5, "earliest", KEY, *look) for at, look in enumerate(found, 10)]
        heard = None if deleted_in is None else 10.7
        made.deletions.append(Deletion(KEY, 2, 9.0, heard, -1 if deleted_in is None else deleted_in))
        made.final[KEY].start = final_start
        return made

    for sound in (
        looks((2, 2), (0, 3), (2, 4), final_start=0),
        looks((2, 2), (0, 1), (2, 2), deleted_in=2),
        looks((0, 2), (2, 2), (2, 3), (0, -1), deleted_in=2),
    ):
        check(sound, cluster)
    for unsound in (
        looks((2, 2), (0, 3), (0, 2), final_start=0),
        looks((0, 2), (0, 2), deleted_in=2),
        looks((2, 2), (0, 3), deleted_in=2),
        looks((2, 2), deleted_in=2, final_start=0),
    ):
        with pytest.raises(Violation, match="earliest offset goes back"):
            check(unsound, cluster)
    with pytest.raises(Violation, match=r"earliest of t-0: 0 at 11\.500, 2 before 11\.000"):
        check(looks((2, 2), (0, 3), final_start=0), ALL_KEPT)
