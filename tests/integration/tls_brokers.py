"""Brokers with TLS listeners in this process, and certificates for them and their clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from tests.certificates import Authority, Certificate


class Security:
    """An authority, the broker's certificate and that of a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.broker: Certificate = self.authority.issue("/CN=localhost")
        self.client: Certificate = self.authority.issue("/O=Acme/CN=alice")

    def settings(self, data: Path, **others: str) -> dict[str, str]:
        """A broker's file; the others with `_` for `.`."""
        return {
            "listeners": "SSL://127.0.0.1:0",
            "log.dirs": str(data),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.broker.both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.file,
            "offsets.topic.num.partitions": "1",
        } | {name.replace("_", "."): value for name, value in others.items()}


def with_broker(settings: dict[str, str], use: Callable[[str], Any]) -> Any:
    """What `use` answers in a thread, given the address of a running broker."""

    async def scenario() -> Any:
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        try:
            return await asyncio.to_thread(use, broker.bootstrap)
        finally:
            await broker.stop()

    return asyncio.run(scenario())
