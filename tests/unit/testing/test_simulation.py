"""`odradek.testing.simulate`: applications in virtual time, with faults that follow from a seed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.testing import Simulation, SimulationFailed, eventually, search, simulate


async def count_to_ten(sim: Simulation, topic: str) -> None:
    async with Producer(bootstrap_servers=sim.bootstrap_servers, client_id="counter") as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number)
            await asyncio.sleep(1)


def test_an_hour_passes_without_waiting() -> None:
    async def scenario(sim: Simulation) -> float:
        topic = await sim.topic()
        await sim.produce(topic, "before")
        await asyncio.sleep(3600)
        await sim.produce(topic, "after")
        assert [record.value for record in await sim.records(topic)] == [b"before", b"after"]
        return sim.now

    run = simulate(scenario)
    assert run.result >= 3600
    assert run.simulated_seconds >= 3600


def test_hour_of_retries_takes_few_steps_of_the_loop() -> None:
    """A producer without any broker waits between its attempts, also once it has forgotten the brokers (KIP-899)."""

    async def write(sim: Simulation, topic: str) -> None:
        options = {"delivery_timeout_ms": 7_200_000, "linger_ms": 0}
        async with Producer(bootstrap_servers=sim.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            await producer.send_and_wait(topic, b"before")
            await asyncio.sleep(5)
            await producer.send_and_wait(topic, b"after")

    async def scenario(sim: Simulation) -> int:
        topic = await sim.topic()
        writer = sim.program("writer", lambda: write(sim, topic))
        await asyncio.sleep(2)
        sim.broker(1).kill()
        before = sim._world.loop.steps
        await asyncio.sleep(3600)
        steps = sim._world.loop.steps - before
        await sim.broker(1).start()
        await writer.ended()
        assert [record.value for record in await sim.records(topic)] == [b"before", b"after"]
        return steps

    steps = simulate(scenario).result
    assert steps < 100_000, steps  # 63,000; without these waits more than 240,000


def test_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        counter = sim.program("counter", lambda: count_to_ten(sim, topic))
        await sim.faults(10)
        await counter.ended()

    first, again, other = simulate(scenario, 1), simulate(scenario, 1), simulate(scenario, 2)
    assert (first.digest, first.trace) == (again.digest, again.trace)
    assert first.digest != other.digest


def test_acknowledged_records_survive_faults() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        counter = sim.program("counter", lambda: count_to_ten(sim, topic))
        await sim.faults(20, ["kill", "restart", "cut", "reset"])
        await counter.ended()
        assert [record.value for record in await sim.records(topic)] == [b"%d" % number for number in range(10)]

    search(scenario, range(3))


def test_killed_program_starts_again() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        program = sim.program("counter", lambda: count_to_ten(sim, topic))
        await asyncio.sleep(5)
        program.kill()
        await program.ended()
        assert program.starts == 2
        assert len(await sim.records(topic)) > 10

    simulate(scenario)


def test_stopped_program_does_not_start_again() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        program = sim.program("counter", lambda: count_to_ten(sim, topic))
        await asyncio.sleep(5)
        program.stop()
        await program.ended()
        assert program.starts == 1
        assert len(await sim.records(topic)) < 10

    simulate(scenario)


def test_program_that_is_cut_off_waits() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        program = sim.program("counter", lambda: count_to_ten(sim, topic))
        program.cut_off(40)
        await asyncio.sleep(30)
        assert await sim.records(topic) == []
        await program.ended()
        assert sim.now > 40

    simulate(scenario)


def test_group_moves_to_the_living_member() -> None:
    async def member(sim: Simulation, topic: str, seen: list[bytes]) -> None:
        async with Consumer(
            topic,
            bootstrap_servers=sim.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
        ) as consumer:
            async for record in consumer:
                seen.append(record.value)  # noqa: PERF401 - the loop has no end

    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic(partitions=2)
        seen: list[bytes] = []
        first = sim.program("first", lambda: member(sim, topic, seen))
        sim.program("second", lambda: member(sim, topic, seen))
        await asyncio.sleep(20)
        first.stop()
        await sim.produce(topic, "1", "2", "3", key="a")
        await sim.produce(topic, "4", "5", "6", key="b")
        await eventually(lambda: sorted(seen) == [b"1", b"2", b"3", b"4", b"5", b"6"], 30)

    simulate(scenario)


async def read_as_member(sim: Simulation, topic: str, seen: list[bytes], **options: Any) -> None:
    async with Consumer(
        topic, bootstrap_servers=sim.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **options
    ) as consumer:
        async for record in consumer:
            seen.append(record.value)  # noqa: PERF401 - the loop has no end


@pytest.mark.parametrize(
    "options", [{}, {"group_protocol": "consumer"}, {"group_instance_id": "one"}], ids=["classic", "KIP-848", "static"]
)
def test_evicted_member_reads_its_records_again(options: dict[str, Any]) -> None:
    """The member reads without a commit in between, so that its new membership begins where the old one did."""

    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        seen: list[bytes] = []
        reader = sim.program(
            "reader", lambda: read_as_member(sim, topic, seen, auto_commit_interval_ms=3_600_000, **options)
        )
        await sim.produce(topic, "1", "2")
        await eventually(lambda: seen == [b"1", b"2"], 30)
        member_id = await sim.evict("g")
        await eventually(lambda: seen == [b"1", b"2", b"1", b"2"], 30)
        assert await sim.evict("g") != member_id or "group_protocol" in options
        assert reader.starts == 1

    simulate(scenario)


def test_eviction_from_a_group_without_members_is_an_error() -> None:
    async def scenario(sim: Simulation) -> None:
        await sim.evict("g")

    with pytest.raises(LookupError, match="group g has no member"):
        simulate(scenario)


def test_rebalance_fault_evicts_members_of_any_coordinator() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic(partitions=2)
        await sim.produce(topic, "1", key="a")
        seen: list[bytes] = []
        sim.program("first", lambda: read_as_member(sim, topic, seen))
        sim.program("second", lambda: read_as_member(sim, topic, seen))
        await eventually(lambda: seen == [b"1"], 60)
        await sim.faults(20, ["rebalance"])
        await sim.produce(topic, "2", key="a")
        await eventually(lambda: b"2" in seen, 60)

    run = simulate(scenario, 3, brokers=3)
    assert any("is evicted from group g" in line for line in run.trace)


def test_same_seed_evicts_the_same_members() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic(partitions=2)
        seen: list[bytes] = []
        for name in ("first", "second"):
            sim.program(name, lambda: read_as_member(sim, topic, seen))
        await sim.faults(20, ["rebalance", "kill", "full disk"])

    first, again = simulate(scenario, 3), simulate(scenario, 3)
    assert any("is evicted from group g" in line for line in first.trace)
    assert (first.digest, first.trace) == (again.digest, again.trace)


def test_full_disk_delays_records_until_it_has_room() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        sim.broker(1).fill_disk()
        written = asyncio.create_task(sim.produce(topic, "1" * 100))
        await asyncio.sleep(20)
        assert not written.done()
        sim.broker(1).heal_disk()
        await sim.broker(1).stop()
        await sim.broker(1).start()
        await written
        assert len(await sim.records(topic)) == 1

    simulate(scenario)


def test_slow_disk_delays_a_topic_with_synced_records() -> None:
    async def scenario(sim: Simulation) -> tuple[float, float]:
        topic = await sim.topic(configs={"flush.messages": "1"})
        started = sim.now
        await sim.produce(topic, *["1"] * 20)
        at_first = sim.now - started
        sim.broker(1).slow_disk(20.0)
        started = sim.now
        await sim.produce(topic, *["1"] * 20)
        return at_first, sim.now - started

    at_first, slowly = simulate(scenario).result
    assert slowly > 2 * at_first


def test_acknowledged_records_survive_faults_of_disks() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        counter = sim.program("counter", lambda: count_to_ten(sim, topic))
        await sim.faults(20, ["full disk", "failing disk", "slow disk"])
        await counter.ended()
        assert [record.value for record in await sim.records(topic)] == [b"%d" % number for number in range(10)]

    runs = search(scenario, range(5))
    assert any("fault: full disk" in line for run in runs for line in run.trace)


def test_cluster_elects_another_leader() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic()
        await sim.produce(topic, "before")
        sim.broker(1).kill()
        await sim.produce(topic, "after")
        sim.broker(2).lose_power()
        await sim.broker(1).start()
        assert [record.value for record in await sim.records(topic)] == [b"before", b"after"]

    simulate(scenario, brokers=3)


def test_failure_names_seed_command_and_last_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(sim: Simulation) -> None:
        sim.note("the till is opened")
        assert sim.random.random() < 0.5, "the till is empty"

    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_till.py::test_till (call)")
    with pytest.raises(AssertionError, match="the till is empty") as caught:
        search(scenario)
    command, events = caught.value.__notes__
    seed = int(command.split("ODRADEK_SEED=")[1].split()[0])
    assert "python -m pytest 'tests/test_till.py::test_till'" in command
    assert "the till is opened" in events
    monkeypatch.setenv("ODRADEK_SEED", str(seed))
    with pytest.raises(AssertionError, match="the till is empty"):
        search(scenario, range(1))


def test_failure_of_a_program_ends_the_run() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    async def scenario(sim: Simulation) -> None:
        sim.program("broken", broken)
        await asyncio.sleep(3600)

    with pytest.raises(ZeroDivisionError):
        simulate(scenario)


def test_scenario_without_an_end_fails() -> None:
    async def scenario(sim: Simulation) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationFailed, match="not ended after 60 virtual seconds"):
        simulate(scenario, time_limit_s=60)


@pytest.mark.parametrize("kinds", [["kil"], ["kill", "fire"]])
def test_unknown_fault_is_an_error(kinds: list[str]) -> None:
    async def scenario(sim: Simulation) -> Any:
        await sim.faults(1, kinds)

    with pytest.raises(ValueError, match="unknown faults"):
        simulate(scenario)


def test_second_program_of_a_name_is_an_error() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.program("one", lambda: asyncio.sleep(1))
        sim.program("one", lambda: asyncio.sleep(1))

    with pytest.raises(ValueError, match="there is a program one already"):
        simulate(scenario)
