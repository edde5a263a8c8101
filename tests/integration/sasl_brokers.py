"""Brokers with SASL listeners in this process, and clients that log in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.client import Admin
from odradek.client.admin import ScramMechanism, ScramUpsertion

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
ALICE, ALICE_PASSWORD = "alice", "alice,=secret"


def sasl_settings(data: Path, **others: str) -> dict[str, str]:
    """A broker's file with all mechanisms; the others with `_` for `.`."""
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} required username="{ADMIN}" password="{ADMIN_PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}";'
        ),
        "log.dirs": str(data),
        "offsets.topic.num.partitions": "1",
    } | {name.replace("_", "."): value for name, value in others.items()}


def login(
    bootstrap: str, mechanism: str = "PLAIN", user: str = ADMIN, password: str = ADMIN_PASSWORD
) -> dict[str, Any]:
    """Options of our client, kafka-python and aiokafka, which have the same names."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


async def add_users(bootstrap: str, users: Iterable[tuple[str, str]] = ((ALICE, ALICE_PASSWORD),)) -> None:
    """Create SCRAM credentials of both mechanisms."""
    async with Admin(**login(bootstrap)) as admin:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            changes = [ScramUpsertion(name, mechanism, password, 4096) for name, password in users]
            assert set((await admin.users.alter(changes)).values()) == {None}


def with_sasl_broker(settings: dict[str, str], use: Callable[[str], Awaitable[Any]]) -> Any:
    """What `use` answers, given the address of a running broker whose store has a SCRAM user."""

    async def scenario() -> Any:
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        try:
            await add_users(broker.bootstrap)
            return await use(broker.bootstrap)
        finally:
            await broker.stop()

    return asyncio.run(scenario())
