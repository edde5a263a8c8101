"""The brokers that the Spark tests run against: ours and Apache's, with both versions of the transaction protocol."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.peers import kafka
from bench.peers.broker import BrokerProcess
from odradek.client.admin import Admin
from odradek.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)

NAMES: Final = ("odradek", "odradek-tv1", "kafka", "kafka-tv1")
_SAFE_DOWNGRADE: Final = 2


def is_cached(name: str) -> bool:
    """Whether the target needs no download."""
    return not name.startswith("kafka") or bool(os.environ.get("KAFKA_HOME")) or (kafka.CACHE / "complete").exists()


class Target:
    """One broker. Clients may be sent through a proxy: then that is the only address they learn."""

    def __init__(
        self, name: str, home: Path, proxy_port: int | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        self.name = name
        self._home = home
        self._settings: dict[str, object] = {"num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
        self._settings.update(settings or {})
        self._proxy_port = proxy_port
        if proxy_port is not None:
            self._settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy_port}"
        self.port = 0
        """Chosen by the first run, kept by the others."""
        self._broker = BrokerProcess(home / "data", self._settings)
        self._peer: subprocess.Popen[str] | None = None
        self.pid = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._proxy_port or self.port}"

    def start(self) -> None:
        self.run()
        self.prepare()

    def prepare(self) -> None:
        """What is left to do once clients reach the broker."""
        if self.name.endswith("-tv1"):
            asyncio.run(downgrade(self.bootstrap))

    def run(self) -> None:
        """Start the broker on the data that are there."""
        if not self.name.startswith("kafka"):
            self.pid = self._broker.start().pid
            self.port = self._broker.port
            return
        command = [sys.executable, kafka.__file__, "run", "--quick", "--port", str(self.port), "--dir", str(self._home)]
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        self._peer = subprocess.Popen([*command, "--for", "86400", *settings], stdout=subprocess.PIPE, text=True)
        assert self._peer.stdout is not None
        line = self._peer.stdout.readline().split()
        assert line[:1] == ["ready"], "Apache Kafka did not start"
        self.port = int(line[1].rpartition(":")[2])
        self.pid = int(dict(word.split("=", 1) for word in line[2:])["pids"])

    def is_dead(self) -> bool:
        if self._peer is None:
            return not self._broker.running()
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    def kill(self) -> None:
        """As kill -9; `run` may follow."""
        if self._peer is None:
            self._broker.kill()
        elif not self.is_dead():
            os.killpg(self.pid, signal.SIGKILL)
        self._end_peer()

    def stop(self) -> None:
        if self._peer is None:
            self._broker.stop()
        self._end_peer()

    def log(self) -> str:
        return self._broker.log()

    def _end_peer(self) -> None:
        if self._peer is not None:
            self._peer.terminate()
            self._peer.wait(60)


async def downgrade(bootstrap: str) -> None:
    """As kafka-features.sh downgrade --feature transaction.version=1."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        connection = await admin.cluster.connections.get(await admin.cluster.controller())
        update = UpdateFeaturesRequestFeatureUpdate(
            "transaction.version", upgrade_type=_SAFE_DOWNGRADE, max_version_level=1
        )
        request = UpdateFeaturesRequest(feature_updates=[update])
        answer = await admin.cluster.ask(connection, request, UpdateFeaturesResponse)
        assert not answer.error_code, answer
        assert not any(each.error_code for each in answer.results), answer
