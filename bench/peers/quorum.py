"""A KRaft quorum of Odradek on this machine: every process is a broker and a controller."""

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from bench.peers.broker import ANY_DISK, BrokerError, BrokerProcess
from bench.peers.zookeeper import free_ports

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class QuorumProcess:
    """`odradek serve` for each node, with static voters on free ports of 127.0.0.1."""

    def __init__(self, home: Path, nodes: int = 3, settings: Mapping[str, object] | None = None) -> None:
        ports = free_ports(2 * nodes)
        voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports[nodes:], 1))
        self._nodes: dict[int, BrokerProcess] = {}
        for node, (port, controller) in enumerate(zip(ports[:nodes], ports[nodes:], strict=True), 1):
            own = {
                "process.roles": "broker,controller",
                "node.id": node,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
            }
            self._nodes[node] = BrokerProcess(home / f"data-{node}", ANY_DISK | dict(settings or {}) | own, port)

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self._nodes.values())

    @property
    def ready_seconds(self) -> float:
        """Until the last node served."""
        return max(each.ready_seconds for each in self._nodes.values())

    def pids(self) -> dict[int, int]:
        return {node: each.pid for node, each in self._nodes.items()}

    def __enter__(self) -> Self:
        for each in self._nodes.values():
            self._format(each)
        try:
            # None of them serves before a majority runs.
            with ThreadPoolExecutor(len(self._nodes)) as pool:
                list(pool.map(BrokerProcess.start, self._nodes.values()))
        except BrokerError:
            self._kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def _kill(self) -> None:
        for each in self._nodes.values():
            each.kill()

    @staticmethod
    def _format(node: BrokerProcess) -> None:
        path = node.data_dir.with_suffix(".properties")
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = {**node.settings, "log.dirs": node.data_dir}
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "odradek.cli.main", "storage", "format", "-t", _CLUSTER_ID, "-c", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"{path} cannot be formatted: {done.stderr}")
