"""Processor time of brokers in `odradek top`."""

from __future__ import annotations

import asyncio

import pytest

from odradek.cli.actions.broker_cpu import BrokerCpu, parse_addresses
from odradek.cli.arguments.errors import UsageError


def measured(*readings: dict[str, float | None]) -> dict[int, float]:
    """The last of several measurements, two seconds after each other."""
    steps = iter(readings)
    current: dict[str, float | None] = {}
    now = 0.0

    async def scenario() -> dict[int, float]:
        nonlocal now
        cpu = BrokerCpu({1: "a", 2: "b"}, lambda address: current[address], lambda: now)
        found: dict[int, float] = {}
        for reading in steps:
            current.update(reading)
            now += 2.0
            found = await cpu.measure()
        return found

    return asyncio.run(scenario())


def test_share_is_of_the_time_between_two_measurements() -> None:
    assert measured({"a": 10.0, "b": 5.0}, {"a": 11.0, "b": 5.0}) == {1: 50.0, 2: 0.0}


def test_first_measurement_has_no_share() -> None:
    assert measured({"a": 10.0, "b": 5.0}) == {}


def test_broker_that_was_restarted_or_is_silent_has_no_share() -> None:
    assert measured({"a": 10.0, "b": 5.0}, {"a": 1.0, "b": None}) == {}


@pytest.mark.parametrize("text", ["127.0.0.1:9644", "x=127.0.0.1:9644", "1=127.0.0.1", "1=http://h:9644/", "1="])
def test_address_without_an_id_or_a_port_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="ID=HOST:PORT expected"):
        parse_addresses([text])


def test_addresses_are_known_by_the_id() -> None:
    assert parse_addresses(["1=127.0.0.1:9644", "2=[::1]:9645"]) == {1: "127.0.0.1:9644", 2: "[::1]:9645"}
