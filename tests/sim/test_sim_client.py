"""The client under faults in the simulator, and the bugs that this search is known to find."""

from __future__ import annotations

import pyarrow as pa
import pytest

from odradek.client import Producer
from odradek.sim.planted.broker_bugs import Planted, planted
from odradek.testing import Simulation, search, simulate
from tests.sim import client_tables
from tests.sim.client_bugs import BUGS, TABLE_BUGS
from tests.sim.client_suite import scenario

BROKERS = 3
TIME_LIMIT_S = 1_000
QUICK = ("sequence reused", "committed before it is returned", "flush returns early", "old number of partitions")


def test_application_keeps_its_promises_under_faults() -> None:
    search(scenario, range(4), brokers=BROKERS, time_limit_s=TIME_LIMIT_S)


@pytest.mark.long
def test_application_keeps_its_promises_with_many_seeds() -> None:
    search(scenario, range(4, 60), brokers=BROKERS, time_limit_s=TIME_LIMIT_S)


def test_application_repeats_a_seed_to_the_byte() -> None:
    digests = {simulate(scenario, 3, brokers=BROKERS).digest for _ in range(2)}
    assert len(digests) == 1


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in QUICK], ids=lambda bug: bug.name)
def test_client_bug_is_found(bug: Planted) -> None:
    with planted(bug), pytest.raises(AssertionError):
        search(scenario, range(10), brokers=BROKERS, time_limit_s=TIME_LIMIT_S)


@pytest.mark.long
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name not in QUICK], ids=lambda bug: bug.name)
def test_another_client_bug_is_found(bug: Planted) -> None:
    with planted(bug), pytest.raises(AssertionError):
        search(scenario, range(10), brokers=BROKERS, time_limit_s=TIME_LIMIT_S)


def test_tables_and_batches_keep_their_promises_under_faults() -> None:
    search(client_tables.scenario, range(2), brokers=BROKERS, time_limit_s=TIME_LIMIT_S)


@pytest.mark.long
def test_tables_and_batches_keep_their_promises_with_many_seeds() -> None:
    search(client_tables.scenario, range(2, 22), brokers=BROKERS, time_limit_s=TIME_LIMIT_S)


def test_tables_of_a_seed_repeat_to_the_byte() -> None:
    """Rows without a key go to a partition by chance, and have the time of their sending: both follow from the seed."""

    async def send(sim: Simulation) -> None:
        await sim.topic("rows", partitions=8)
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            await producer.send_table(pa.table({"value": ["a", "b"]}), "rows")

    assert len({simulate(send, 5).digest for _ in range(4)}) == 1


@pytest.mark.parametrize("bug", TABLE_BUGS, ids=lambda bug: bug.name)
def test_bug_of_tables_or_batches_is_found(bug: Planted) -> None:
    with planted(bug), pytest.raises(AssertionError):
        search(client_tables.scenario, range(4), brokers=BROKERS, time_limit_s=TIME_LIMIT_S)
