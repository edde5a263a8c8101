"""The commands of docs/DEPLOYMENT.md for a cluster without ZooKeeper, run as the page has them, all on this machine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.broker import ANY_DISK, first_line
from tests.newcomer.pages import Page
from tests.unit.broker.quorum.controllers_in_process import free_ports

pytestmark = pytest.mark.long

SECTION = "A cluster without ZooKeeper: three controllers"
MACHINES = (1, 2, 3)
ODRADEK = [sys.executable, "-m", "odradek.cli.main"]
PATIENCE_SECONDS = 60


class Machines:
    """The machines of the page: its files with ports and directories of this machine, and its commands."""

    def __init__(self, place: Path) -> None:
        page = Page("docs/DEPLOYMENT.md")
        self._place = place
        self._ports = {(machine, port): found for (machine, port), found in zip(
            [(machine, port) for port in (9092, 9093) for machine in MACHINES], free_ports(6), strict=True
        )}  # fmt: skip
        self._processes: list[subprocess.Popen[bytes]] = []
        self.commands = [shlex.split(each) for each in page.commands(SECTION) if each.startswith("odradek ")]
        for name, block in zip(("controller", "broker"), page.blocks(SECTION), strict=False):
            for machine in MACHINES:
                (place / f"{machine}-{name}.properties").write_text(self._here(block, machine))

    def _here(self, block: str, machine: int) -> str:
        text = re.sub(r"^(node\.id=1?)1$", rf"\g<1>{machine}", block, flags=re.MULTILINE)
        text = text.replace("/var/lib/odradek", f"{self._place}/{machine}")
        text = re.sub(r"(?<=://)kafka1(?=\.example)", f"kafka{machine}", text)
        text = re.sub(r"0\.0\.0\.0", f"kafka{machine}.example.org", text)
        return self._addresses(text)

    def _addresses(self, text: str) -> str:
        def address(match: re.Match[str]) -> str:
            return f"127.0.0.1:{self._ports[int(match[1]), int(match[2])]}"

        return re.sub(r"kafka(\d)\.example\.org:(\d+)", address, text)

    def run(self, words: list[str], cluster_id: str = "") -> list[str]:
        """What the command prints on each machine, or once where it names no file of theirs."""
        words = [cluster_id if each == "CLUSTER_ID" else self._addresses(each) for each in words[1:]]
        if not words[-1].endswith(".properties"):
            return [self._run(words)]
        return [self._run([*words[:-1], str(self._place / f"{machine}-{words[-1]}")]) for machine in MACHINES]

    def _run(self, words: list[str]) -> str:
        if words[0] == "serve":
            extra = [part for name, value in ANY_DISK.items() for part in ("--set", f"{name}={value}")]
            with Path(f"{words[1]}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*ODRADEK, *words, *extra], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
                )
            self._processes.append(process)
            return ""
        done = subprocess.run([*ODRADEK, *words], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def ready_lines(self) -> list[str]:
        """One of each process that serves."""
        return [first_line(process, PATIENCE_SECONDS) for process in self._processes]

    def stop(self) -> list[int]:
        """SIGTERM to the brokers, then to the controllers; the exit statuses."""
        statuses = []
        for process in reversed(self._processes):
            process.terminate()
            statuses.append(process.wait(PATIENCE_SECONDS))
        return statuses

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    try:
        yield found
    finally:
        found.kill()


def test_commands_of_the_page_make_a_cluster_of_three_machines(machines: Machines) -> None:
    assert [words[1] for words in machines.commands] == [
        "storage", "storage", "storage", "serve", "serve", "metadata-quorum", "metadata-quorum", "topics",
    ]  # fmt: skip
    random_uuid, *rest = machines.commands
    (cluster_id,) = machines.run(random_uuid)
    printed: list[str] = []
    for words in rest:
        if words[1] == "metadata-quorum" and not printed:
            assert all(line.startswith("odradek ready ") for line in machines.ready_lines())
        printed += machines.run(words, cluster_id.strip()) if words[1] in ("metadata-quorum", "topics") else []
        if words[1] in ("storage", "serve"):
            machines.run(words, cluster_id.strip())
    status, replication, _ = printed
    assert f"ClusterId:              {cluster_id}" in status
    assert [status.count(f'"id": {node},') for node in MACHINES] == [1, 1, 1]
    rows = [line.split() for line in replication.splitlines()[1:]]
    assert sorted((row[0], row[-1] == "Observer") for row in rows) == [
        ("1", False), ("11", True), ("12", True), ("13", True), ("2", False), ("3", False),
    ]  # fmt: skip
    broker = next(words for words in machines.commands if words[1] == "topics")
    (described,) = machines.run(["odradek", "topics", "--describe", "--topic", "orders", *broker[-2:]])
    assert described.count("orders") >= 6
    assert machines.stop() == [0] * 6
